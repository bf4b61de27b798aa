//! Spinning: time of tasks that wait for others in a loop.

use super::known;
use crate::task::TaskNo;
use crate::world::World;
use colocate_evidence::{Provider, Refusal, SeenTask};

pub(super) fn answer(world: &World<'_>) -> Result<Provider, Refusal> {
    let hidden =
        Refusal { why: "the scenario hides it".to_owned(), remedy: "let the scenario show it" };
    if world.hides_spinning() { Err(hidden) } else { Ok(known()) }
}

pub(super) fn report(world: &World<'_>, task: TaskNo, seen: &mut SeenTask) {
    seen.spun = (!world.hides_spinning()).then(|| world.spun(task));
}
