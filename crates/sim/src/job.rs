//! A simulated job: its runs, and whether it is stopped.

use crate::task::TaskNo;
use colocate_machine::Nanos;
use std::collections::VecDeque;
use std::ops::Range;

/// State of a job.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedJob {
    /// Its tasks, by place in the list of all tasks.
    tasks: Range<TaskNo>,
    /// Tasks with work left in this run.
    busy: usize,
    /// Time of the first launch.
    pub launched: Option<Nanos>,
    /// Time of this run's launch.
    run_launched: Nanos,
    /// Time of the first end of its work.
    pub done: Option<Nanos>,
    /// Finished runs.
    pub runs: u32,
    /// Whether the job has ended for good.
    over: bool,
    /// Whether the job is stopped, by a plan.
    pub is_stopped: bool,
    /// Whether the instructions of its tasks are counted by phase, for their mix.
    pub is_watched: bool,
    /// Tasks whose creation fell due during the stop.
    pub held_creations: Vec<TaskNo>,
    /// Tasks that wait for the job's server, first come first served.
    pub requests: VecDeque<TaskNo>,
}

impl SimulatedJob {
    /// A job with these tasks, to be launched at a time.
    pub const fn new(tasks: Range<TaskNo>, arrives: Nanos) -> Self {
        Self {
            busy: tasks.end - tasks.start,
            tasks,
            launched: None,
            run_launched: arrives,
            done: None,
            runs: 0,
            over: false,
            is_stopped: false,
            is_watched: false,
            held_creations: Vec::new(),
            requests: VecDeque::new(),
        }
    }

    /// Its tasks, by place in the list of all tasks.
    pub const fn tasks(&self) -> Range<TaskNo> {
        self.tasks.start..self.tasks.end
    }

    /// Its first task.
    pub const fn first(&self) -> TaskNo {
        self.tasks.start
    }

    /// Stops the job. Whether it was not stopped before.
    pub const fn stop(&mut self) -> bool {
        !std::mem::replace(&mut self.is_stopped, true)
    }

    /// Lets the job continue. Whether it was stopped.
    pub const fn go_on(&mut self) -> bool {
        std::mem::replace(&mut self.is_stopped, false)
    }

    /// Notes that a task is over with its work. Whether that ends the run.
    pub fn finish_task(&mut self, now: Nanos) -> bool {
        self.busy -= 1;
        if self.busy == 0 {
            self.runs += 1;
            self.done.get_or_insert(now);
        }
        self.busy == 0
    }

    /// Begins another run, at the earliest `delay` after the last launch. Returns its time.
    pub fn relaunch(&mut self, now: Nanos, delay: Nanos) -> Nanos {
        self.run_launched = now.max(self.run_launched + delay);
        self.busy = self.tasks.len();
        self.run_launched
    }

    /// Ends the job for good. Whether it had not ended before.
    pub const fn end(&mut self) -> bool {
        !std::mem::replace(&mut self.over, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_its_last_task() {
        let mut job = SimulatedJob::new(3..5, Nanos(1));
        job.launched = Some(Nanos(2));
        assert!(!job.finish_task(Nanos(4)) && job.finish_task(Nanos(5)));
        assert_eq!((job.runs, job.done, job.launched), (1, Some(Nanos(5)), Some(Nanos(2))));
        assert_eq!(job.relaunch(Nanos(6), Nanos(10)), Nanos(11));
        assert!(!job.finish_task(Nanos(12)) && job.finish_task(Nanos(13)));
        assert_eq!(job.done, Some(Nanos(5)));
        assert!(job.end() && !job.end());
    }

    #[test]
    fn a_job_stops_and_goes_on() {
        let mut job = SimulatedJob::new(0..2, Nanos::ZERO);
        assert!(job.stop() && !job.stop() && job.is_stopped);
        assert!(job.go_on() && !job.go_on());
    }
}
