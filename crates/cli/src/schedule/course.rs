//! How far jobs are while they run, and what their host has to say meanwhile.

use super::workload::Job;
use colocate_engine::{Host, HostError, Observation, Request};
use colocate_host::{LinuxHost, Target};
use colocate_machine::{Machine, Nanos, PuNr};
use colocate_model::stack::Parts;
use colocate_policy::{Grant, Plan};
use std::cell::RefCell;

/// What a host tells after a quantum, beside what the loop asks it for.
#[derive(Debug, Default)]
pub struct Course {
    /// Lines for the user.
    pub notes: Vec<String>,
    /// How often each job has run to its own end.
    pub runs: Vec<u32>,
    /// Instructions of each job in all its runs; `None` if not counted.
    pub instructions: Option<Vec<u64>>,
    /// What it answered when evidence was requested.
    pub grants: Vec<Grant>,
    /// The parts of the stacks that are counted, or why none are.
    pub stack_parts: Option<Result<Parts, String>>,
    /// How many PUs each job uses where it has the machine to itself, at least 1; 1 for those after the last one.
    pub widths: Vec<f64>,
}

/// A host that is listened to after each quantum.
pub struct Heard<'a> {
    /// The host.
    pub host: &'a mut LinuxHost,
    /// Where what it tells is kept.
    pub course: &'a RefCell<Course>,
}

impl Host for Heard<'_> {
    fn machine(&self) -> &Machine {
        self.host.machine()
    }

    fn usable(&self) -> &[PuNr] {
        self.host.usable()
    }

    fn request(&mut self, requests: &[Request<'_>]) -> Vec<Grant> {
        self.host.request(requests)
    }

    fn run_quantum(&mut self, plan: &Plan, quantum: Nanos) -> Result<Observation, HostError> {
        let seen = self.host.run_quantum(plan, quantum)?;
        let mut course = self.course.borrow_mut();
        course.notes.extend(self.host.notes());
        (course.runs, course.instructions) = (self.host.runs(), self.host.instructions());
        course.stack_parts = Some(self.host.stack_parts());
        Ok(seen)
    }
}

/// What a job has to do.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Its target.
    pub target: Target,
    /// How long a run takes that has the machine to itself, in seconds, above 0; `None` if not given.
    pub alone_s: Option<f64>,
}

impl Goal {
    /// What `job` has to do.
    pub fn of(job: &Job) -> Self {
        let alone_s = job.alone.map(|alone| alone.seconds).filter(|seconds| *seconds > 0.0);
        Self { target: job.target, alone_s }
    }

    /// How far it is, as text: the share of its instructions, how many of its runs, or, with a `~`, its CPU time
    /// by what was said of it alone, shared out to as many PUs as it uses at a time. Empty if unknown.
    #[allow(clippy::cast_precision_loss)] // instructions of a run are far below 2^53
    pub fn done(&self, course: &Course, job: usize, cpu_time: Option<Nanos>) -> String {
        match self.target {
            Target::Instructions(target) => {
                let counted = course.instructions.as_ref().and_then(|all| all.get(job));
                counted.map_or_else(String::new, |done| percent(*done as f64 / target as f64))
            }
            Target::Completions(wanted) if wanted > 1 => {
                let ran = course.runs.get(job).copied().unwrap_or(0);
                format!("{ran} of {wanted} runs")
            }
            Target::Completions(_) => match cpu_time.zip(self.alone_s) {
                Some((time, alone_s)) => {
                    let width = course.widths.get(job).copied().unwrap_or(1.0);
                    format!("~{}", percent(time.as_secs_f64() / width / alone_s))
                }
                None => String::new(),
            },
        }
    }
}

/// Whole percent, rounded down, so that 100 are all of it; a job that does more than was wanted has done all.
fn percent(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).floor().min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_it_is() {
        let course =
            Course { runs: vec![1, 3], instructions: Some(vec![999, 5_000]), ..Course::default() };
        let done = |target, alone_s, course: &Course, job| {
            Goal { target, alone_s }.done(course, job, Some(Nanos::from_millis(500)))
        };
        assert_eq!(done(Target::Instructions(1_000), None, &course, 0), "99 %");
        assert_eq!(done(Target::Instructions(1_000), None, &course, 1), "100 %");
        assert_eq!(done(Target::Instructions(1_000), None, &Course::default(), 1), "");
        assert_eq!(done(Target::Completions(5), None, &course, 1), "3 of 5 runs");
        assert_eq!(done(Target::Completions(1), Some(2.0), &course, 0), "~25 %");
        assert_eq!(done(Target::Completions(1), None, &course, 0), "");
        // 0.5 s of CPU time are 0.125 s of a job whose four threads run side by side.
        let wide = Course { widths: vec![4.0, 1.0], ..Course::default() };
        assert_eq!(done(Target::Completions(1), Some(0.25), &wide, 0), "~50 %");
        assert_eq!(done(Target::Completions(1), Some(2.0), &wide, 1), "~25 %");
    }
}
