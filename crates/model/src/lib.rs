//! What programs demand of a core, as values with units and a version.
//!
//! Pure: reads no file, no clock and no global.

pub mod mix;
pub mod overlap;
pub mod profile;

pub use mix::{Class, Mix, Share};
pub use overlap::Demand;
pub use profile::{Backend, Profile, ProfileError, Program, ThreadProfile};
