//! `mix`: least overlap of whole mixes.

use super::{Placement, instruction};
use crate::places::Places;
use crate::plan::Task;
pub(super) fn place(places: &Places<'_>, tasks: &[&Task]) -> Placement {
    instruction::place(places, tasks, None)
}
