//! Types of printed JSON, for the comparison of their schemas with docs/schemas.

pub use crate::pages::{Moved, Pages};
pub use crate::report::Report;
pub use crate::restore::RestoreOutcome as Restored;
pub use crate::threads::ThreadsReport as Threads;
pub use crate::top::{MatrixRecord, TopTable};
