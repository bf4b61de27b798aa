//! Run states: CPU time, and waits for a PU.

use crate::task::TaskNo;
use crate::world::World;
use colocate_engine::SeenTask;

pub(super) fn report(world: &World<'_>, task: TaskNo, seen: &mut SeenTask) {
    seen.cpu_time = Some(world.tasks[task].total.ran);
    seen.waited = Some(world.waited(task));
}
