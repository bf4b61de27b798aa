//! Ends of jobs, and of the simulation.

use colocate_evidence::{JobEnd, JobIdx, QuantumEnd};
use colocate_machine::Nanos;

/// Ended jobs, and reasons for the end of a quantum.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuantumEnds {
    /// All ended jobs, in the order of their ends.
    pub jobs: Vec<JobEnd>,
    has_job_ended: bool,
    /// Whether a hotplug event has happened in this quantum.
    pub has_machine_changed: bool,
    /// Whether the simulation has ended.
    pub is_over: bool,
}

impl QuantumEnds {
    /// Begins a quantum: no job has ended in it, and the machine has not changed.
    pub const fn begin_quantum(&mut self) {
        self.has_job_ended = false;
        self.has_machine_changed = false;
    }

    /// Adds the end of a job.
    pub fn end_job(&mut self, job: usize, at: Nanos, status: i32, cpu_time: Nanos) {
        let job = JobIdx(u32::try_from(job).unwrap_or(u32::MAX));
        self.jobs.push(JobEnd { job, at, status, cpu_time: Some(cpu_time) });
        self.has_job_ended = true;
    }

    /// Reason for which a quantum ends now; of several the first in the order of this function.
    pub const fn of_quantum(&self) -> QuantumEnd {
        match self {
            Self { is_over: true, .. } => QuantumEnd::AllJobsEnded,
            Self { has_machine_changed: true, .. } => QuantumEnd::MachineChanged,
            Self { has_job_ended: true, .. } => QuantumEnd::JobEnded,
            _ => QuantumEnd::Elapsed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantum_ends_for_the_first_reason() {
        let mut ends = QuantumEnds::default();
        assert_eq!(ends.of_quantum(), QuantumEnd::Elapsed);
        ends.end_job(0, Nanos(1), 0, Nanos(1));
        assert_eq!(ends.of_quantum(), QuantumEnd::JobEnded);
        ends.has_machine_changed = true;
        assert_eq!(ends.of_quantum(), QuantumEnd::MachineChanged);
        ends.begin_quantum();
        assert_eq!((ends.of_quantum(), ends.jobs.len()), (QuantumEnd::Elapsed, 1));
        ends.is_over = true;
        assert_eq!(ends.of_quantum(), QuantumEnd::AllJobsEnded);
    }
}
