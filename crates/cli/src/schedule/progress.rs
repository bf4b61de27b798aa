//! Progress of jobs while they run, and the reports of their host.

use super::workload::ScheduledJob;
use colocate_engine::{Host, HostError, Request};
use colocate_evidence::{Grant, Observation};
use colocate_host::{JobTarget, LinuxHost};
use colocate_machine::{Machine, Nanos, PuNr};
use colocate_model::stack::StackParts;
use colocate_policy::Plan;
use std::cell::RefCell;

/// Reports of a host after a quantum, beside its observation.
#[derive(Debug, Default)]
pub struct HostReports {
    /// Lines for the user.
    pub notes: Vec<String>,
    /// Number of each job's runs that ended by themselves.
    pub runs: Vec<u32>,
    /// Instructions of each job in all its runs; `None` if not counted.
    pub instructions: Option<Vec<u64>>,
    /// Parts of the counted stacks, or the reason why none are counted.
    pub stack_parts: Option<Result<StackParts, String>>,
}

/// A host that keeps its reports after each quantum.
pub struct ReportingHost<'a> {
    pub host: &'a mut LinuxHost,
    pub reports: &'a RefCell<HostReports>,
}

impl Host for ReportingHost<'_> {
    fn machine(&self) -> &Machine {
        self.host.machine()
    }

    fn usable(&self) -> &[PuNr] {
        self.host.usable()
    }

    fn request(&mut self, requests: &[Request<'_>]) -> Vec<Grant> {
        self.host.request(requests)
    }

    fn is_throttled(&self) -> bool {
        self.host.is_throttled()
    }

    fn run_quantum(&mut self, plan: &Plan, quantum: Nanos) -> Result<Observation, HostError> {
        let seen = self.host.run_quantum(plan, quantum)?;
        let mut reports = self.reports.borrow_mut();
        reports.notes.extend(self.host.notes());
        reports.runs = self.host.runs();
        reports.instructions = self.host.instructions();
        reports.stack_parts = Some(self.host.stack_parts());
        Ok(seen)
    }
}

/// Goal of a job.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Instructions or runs at which the job is complete.
    pub target: JobTarget,
    /// Duration of a run with the machine to itself, in seconds, above 0; `None` if not given.
    pub alone_s: Option<f64>,
}

impl Goal {
    /// The goal of `job`.
    pub fn of(job: &ScheduledJob) -> Self {
        let alone_s = job.alone.map(|alone| alone.seconds).filter(|seconds| *seconds > 0.0);
        Self { target: job.target, alone_s }
    }

    /// Progress of `job` as text: the share of its instructions, the number of its runs or, marked
    /// `~`, its CPU time over the product of solo time and mean PUs in use (`width`). Empty if
    /// unknown.
    pub fn done(
        &self,
        reports: &HostReports,
        job: usize,
        (cpu_time, width): (Option<Nanos>, f64),
    ) -> String {
        match self.target {
            JobTarget::Instructions(target) => {
                let counted = reports.instructions.as_ref().and_then(|all| all.get(job));
                counted.map_or_else(String::new, |done| percent(*done as f64 / target as f64))
            }
            JobTarget::Completions(wanted) if wanted > 1 => {
                let ran = reports.runs.get(job).copied().unwrap_or(0);
                format!("{ran} of {wanted} runs")
            }
            JobTarget::Completions(_) => {
                let share = cpu_time.zip(self.alone_s);
                let share = share.map(|(time, alone_s)| time.as_secs_f64() / width / alone_s);
                share.map_or_else(String::new, |share| format!("~{}", percent(share)))
            }
        }
    }
}

/// Whole percent, rounded down, so 100 means complete; at most 100.
fn percent(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).floor().min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_it_is() {
        let reports = HostReports {
            runs: vec![1, 3],
            instructions: Some(vec![999, 5_000]),
            ..HostReports::default()
        };
        let none = HostReports::default();
        let wide = |target, alone_s, reports: &HostReports, job, width| {
            Goal { target, alone_s }.done(reports, job, (Some(Nanos::from_millis(500)), width))
        };
        let done =
            |target, alone_s, reports: &HostReports, job| wide(target, alone_s, reports, job, 1.0);
        assert_eq!(done(JobTarget::Instructions(1_000), None, &reports, 0), "99 %");
        assert_eq!(done(JobTarget::Instructions(1_000), None, &reports, 1), "100 %");
        assert_eq!(done(JobTarget::Instructions(1_000), None, &none, 1), "");
        assert_eq!(done(JobTarget::Completions(5), None, &reports, 1), "3 of 5 runs");
        assert_eq!(done(JobTarget::Completions(1), Some(2.0), &reports, 0), "~25 %");
        assert_eq!(done(JobTarget::Completions(1), None, &reports, 0), "");
        // 0.5 s of CPU time are 0.125 s of a job whose four threads run side by side.
        assert_eq!(wide(JobTarget::Completions(1), Some(0.25), &none, 0, 4.0), "~50 %");
        assert_eq!(wide(JobTarget::Completions(1), Some(2.0), &none, 1, 1.0), "~25 %");
    }
}
