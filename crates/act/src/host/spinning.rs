//! Which threads only wait for others in a loop.

use super::LinuxHost;
use super::spins::Spins;
use colocate_engine::SeenTask;
use colocate_machine::{Nanos, PuSet};
use colocate_observe::{Pid, SysError};
use colocate_policy::TaskId;

impl LinuxHost {
    /// From now on samples running threads, so often a second of their CPU time, to see who only waits in a loop. To be
    /// called before any quantum.
    ///
    /// # Errors
    /// Where events are denied. Nothing is sampled then.
    pub fn watch_spinning(&mut self, rate_hz: u32) -> Result<(), SysError> {
        let mut spins = Spins::new(rate_hz, &self.sampling.watch, self.nice)?;
        for job in self.tasks.jobs() {
            spins.also(job.pid)?;
        }
        self.spins = Some(spins);
        Ok(())
    }

    /// Samples a job that begins anew as well.
    pub(super) fn sample_anew(&mut self, before: Pid, pid: Pid) {
        // Where it is denied now, it is unknown how its threads wait.
        let _ = self.spins.as_mut().map(|spins| spins.instead(before, pid));
    }

    /// Takes in what has been sampled, after CPU times were read.
    pub(super) fn look_at_spinning(&mut self) {
        let Some(spins) = &mut self.spins else { return };
        let awake: Vec<TaskId> = self.tasks.running().collect();
        let table = &mut self.tasks;
        spins.look(awake.into_iter().filter_map(|id| {
            let task = table.task(id)?;
            Some((task.tid, task.id, (task.cpu_time?, task.waited.unwrap_or(Nanos::ZERO))))
        }));
    }

    /// Adds for how long tasks have waited in loops.
    pub(super) fn add_spinning(&mut self, tasks: &mut [SeenTask]) {
        let Some(spins) = &mut self.spins else { return };
        for task in tasks.iter_mut() {
            task.spun = spins.spun(task.id);
        }
        spins.keep(tasks.iter().map(|task| task.id));
    }
}

/// What it means that PUs have come since sampling began.
pub(super) fn not_sampled(new: &PuSet) -> String {
    format!(
        "threads on PU {new}, not online at the start, are not sampled: who waits in a loop there is taken to do what it \
         did before"
    )
}
