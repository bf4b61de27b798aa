//! Wake-ups: of threads that take turns. What wakes threads at barriers is not a thread.

use super::known;
use crate::world::World;
use colocate_evidence::{Provider, Refusal};

pub(super) fn answer(world: &World<'_>) -> Result<Provider, Refusal> {
    let why = || Refusal {
        why: "threads of this scenario do not wake each other".to_owned(),
        remedy: "let threads take turns",
    };
    world.takes_turns().then(known).ok_or_else(why)
}
