//! Types of printed JSON, for the comparison of their schemas with docs/schemas.

pub use crate::pages::{Moved, Pages};
pub use crate::report::Report;
pub use crate::restore::Done as Restored;
pub use crate::threads::Report as Threads;
pub use crate::top::{Line, Table};
