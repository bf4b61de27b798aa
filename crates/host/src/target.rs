//! When a job has done its work: after so many runs, or so many instructions.
//!
//! # Problem
//! Programs end at different times, so what one policy did to them cannot be compared with what another
//! one did: the load is not the same.
//! # Approach
//! Fixed work, as in Feliu's method: a job that ends before its target is launched anew, and one that has
//! reached it is ended and leaves; or, so that the load stays, runs on until all have reached theirs.
//! # Properties
//! Decisions only: nothing here makes a system call. A run that fails is never followed by another, so a
//! program that cannot work ends its job, and a job that was killed from outside stays dead. -> test
//! `a_failed_run_is_the_last`

use colocate_evidence::{JobEnd, JobIdx};

/// Target of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobTarget {
    /// Number of complete runs, at least 1.
    Completions(u32),
    /// Instructions outside the kernel, over all runs and threads.
    Instructions(u64),
}

impl Default for JobTarget {
    fn default() -> Self {
        Self::Completions(1)
    }
}

/// Progress of a workload's jobs.
#[derive(Debug)]
pub struct Targets {
    jobs: Vec<TargetProgress>,
    repeat: bool,
}

#[derive(Debug)]
struct TargetProgress {
    target: JobTarget,
    runs: u32,
    /// End on which the target was reached or missed.
    end: Option<JobEnd>,
    /// Whether no run is left and none will start.
    left: bool,
    reported: bool,
}

impl Targets {
    /// Targets of `jobs` jobs; a job without a target runs once. With `repeat`, jobs restart until
    /// all targets are reached.
    pub fn new(jobs: usize, targets: &[JobTarget], repeat: bool) -> Self {
        let target = |job| targets.get(job).copied().unwrap_or_default();
        Self {
            jobs: (0..jobs)
                .map(|job| TargetProgress {
                    target: target(job),
                    runs: 0,
                    end: None,
                    left: false,
                    reported: false,
                })
                .collect(),
            repeat,
        }
    }

    /// First instruction target, if any: its instructions must be counted.
    pub fn instructions(&self) -> Option<u64> {
        self.jobs.iter().find_map(|progress| match progress.target {
            JobTarget::Instructions(target) => Some(target),
            JobTarget::Completions(_) => None,
        })
    }

    /// Number of completed runs of each job.
    pub fn runs(&self) -> Vec<u32> {
        self.jobs.iter().map(|progress| progress.runs).collect()
    }

    /// Records the end of a run; `instructions` is the sum over all runs of the job. Returns
    /// whether the job is to be launched again.
    pub fn run_ended(&mut self, end: JobEnd, instructions: u64) -> bool {
        let others_are_done = self.all_done_but(end.job);
        let Some(progress) = self.jobs.get_mut(end.job.0 as usize) else { return false };
        progress.runs = progress.runs.saturating_add(1);
        let reached = match progress.target {
            JobTarget::Completions(target) => progress.runs >= target,
            JobTarget::Instructions(target) => instructions >= target,
        };
        let failed = end.status != 0;
        // The first end stays, also while the job runs on for others.
        if reached || failed {
            progress.end.get_or_insert(end);
        }
        let done = progress.end.is_some() && (others_are_done || !self.repeat);
        progress.left = failed || done;
        !progress.left
    }

    /// Records a failed relaunch: the job ends here unless its target was reached before.
    pub fn give_up(&mut self, end: JobEnd) {
        if let Some(progress) = self.jobs.get_mut(end.job.0 as usize) {
            progress.end.get_or_insert(end);
            progress.left = true;
        }
    }

    /// Marks a job as done, whatever its target.
    pub fn reach(&mut self, end: JobEnd) {
        if let Some(progress) = self.jobs.get_mut(end.job.0 as usize) {
            progress.end.get_or_insert(end);
        }
    }

    /// Records the job's instructions over all its runs. On first reaching the target, `end` gives
    /// the job's end.
    pub fn counted(&mut self, job: JobIdx, instructions: u64, end: impl FnOnce() -> JobEnd) {
        let Some(progress) = self.jobs.get_mut(job.0 as usize) else { return };
        let reached =
            matches!(progress.target, JobTarget::Instructions(target) if instructions >= target);
        if reached && progress.end.is_none() {
            progress.end = Some(end());
        }
    }

    /// Running jobs that have reached their targets and are to be ended. Marks them as having left.
    pub fn take_leaving(&mut self) -> Vec<JobIdx> {
        if self.repeat && !self.jobs.iter().all(|progress| progress.end.is_some()) {
            return Vec::new();
        }
        let mut leaving = Vec::new();
        for (job, progress) in (0..).map(JobIdx).zip(&mut self.jobs) {
            if progress.end.is_some() && !progress.left {
                progress.left = true;
                leaving.push(job);
            }
        }
        leaving
    }

    /// Ends of jobs that have left since the last call, in the order of time.
    pub fn new_ends(&mut self) -> Vec<JobEnd> {
        let unreported =
            self.jobs.iter_mut().filter(|progress| progress.left && !progress.reported);
        let mut ends: Vec<JobEnd> = unreported
            .filter_map(|progress| {
                progress.reported = true;
                progress.end
            })
            .collect();
        ends.sort_by_key(|end| (end.at, end.job));
        ends
    }

    fn all_done_but(&self, job: JobIdx) -> bool {
        let others = self.jobs.iter().enumerate().filter(|(other, _)| *other != job.0 as usize);
        others.map(|(_, progress)| progress).all(|progress| progress.end.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::Nanos;
    use proptest::prelude::*;

    fn end(job: u32, at: u64, status: i32) -> JobEnd {
        JobEnd { job: JobIdx(job), at: Nanos(at), status, cpu_time: None }
    }

    #[test]
    fn once_if_nothing_is_said() {
        let mut targets = Targets::new(2, &[], false);
        assert!(!targets.run_ended(end(1, 5, 0), 0));
        assert_eq!(targets.new_ends(), [end(1, 5, 0)]);
        assert_eq!((targets.new_ends(), targets.instructions()), (vec![], None));
    }

    #[test]
    fn until_the_target() {
        let wanted = [JobTarget::Completions(3), JobTarget::Instructions(100)];
        let mut targets = Targets::new(2, &wanted, false);
        assert_eq!(targets.instructions(), Some(100));
        let again: Vec<bool> = (1..4).map(|at| targets.run_ended(end(0, at, 0), 0)).collect();
        assert_eq!(again, [true, true, false]);
        assert!(targets.run_ended(end(1, 4, 0), 60));
        targets.counted(JobIdx(1), 99, || end(1, 5, 0));
        assert!(targets.take_leaving().is_empty());
        targets.counted(JobIdx(1), 100, || end(1, 6, 0));
        targets.counted(JobIdx(1), 120, || end(1, 7, 0));
        assert_eq!(targets.take_leaving(), [JobIdx(1)]);
        assert!(targets.take_leaving().is_empty());
        assert_eq!(targets.new_ends(), [end(0, 3, 0), end(1, 6, 0)]);
        assert_eq!(targets.runs(), [3, 1]);
    }

    /// Job 0 is done first and runs on for the load's sake; its time is that of its first end.
    #[test]
    fn the_load_stays() {
        let wanted = [JobTarget::Completions(1), JobTarget::Instructions(100)];
        let mut targets = Targets::new(2, &wanted, true);
        assert!(targets.run_ended(end(0, 1, 0), 0));
        assert!(targets.run_ended(end(0, 2, 0), 0));
        assert!(targets.new_ends().is_empty() && targets.take_leaving().is_empty());
        targets.counted(JobIdx(1), 100, || end(1, 3, 0));
        assert_eq!(targets.take_leaving(), [JobIdx(0), JobIdx(1)]);
        assert_eq!(targets.new_ends(), [end(0, 1, 0), end(1, 3, 0)]);
    }

    #[test]
    fn the_last_one_is_not_launched_again() {
        let mut targets = Targets::new(2, &[], true);
        assert!(targets.run_ended(end(0, 1, 0), 0));
        assert!(!targets.run_ended(end(1, 2, 0), 0));
        assert_eq!(targets.take_leaving(), [JobIdx(0)]);
        assert_eq!(targets.new_ends(), [end(0, 1, 0), end(1, 2, 0)]);
    }

    #[test]
    fn a_failed_run_is_the_last() {
        for repeat in [false, true] {
            let mut targets = Targets::new(2, &[JobTarget::Completions(9); 2], repeat);
            assert!(targets.run_ended(end(0, 1, 0), 0));
            assert!(!targets.run_ended(end(0, 2, 137), 0));
            assert_eq!(targets.new_ends(), [end(0, 2, 137)]);
        }
    }

    /// Job 0 has reached its target and runs on for the load's sake; job 1 lacks eight of nine runs.
    #[test]
    fn nothing_more_is_launched() {
        let mut targets =
            Targets::new(2, &[JobTarget::Completions(1), JobTarget::Completions(9)], true);
        for (job, status) in [(0, 0), (1, 143)] {
            assert!(targets.run_ended(end(job, 2, 0), 0));
            targets.give_up(end(job, 3, 143));
            let at = if status == 0 { 2 } else { 3 };
            assert_eq!(targets.new_ends(), [end(job, at, status)]);
        }
        assert_eq!(targets.runs(), [1, 1], "a job that is given up has not run once more");
        assert!(targets.take_leaving().is_empty());
    }

    proptest! {
        /// Whatever happens, the end of every job is returned once, after at most as many runs as there are events.
        #[test]
        fn each_job_ends_once(
            repeat: bool,
            wanted in prop::collection::vec((prop::bool::ANY, 1_u32..4), 1..6),
            fails in prop::collection::vec(0_u32..8, 60),
        ) {
            let target = |&(count, n): &(bool, u32)| match count {
                true => JobTarget::Instructions(u64::from(n)),
                false => JobTarget::Completions(n),
            };
            let list: Vec<JobTarget> = wanted.iter().map(target).collect();
            let mut targets = Targets::new(list.len(), &list, repeat);
            let mut running: Vec<bool> = vec![true; list.len()];
            let mut reported = Vec::new();
            for (at, fails) in (0..).zip(fails) {
                for job in (0..list.len()).filter(|job| running[*job]).collect::<Vec<_>>() {
                    let number = u32::try_from(job).unwrap();
                    let status = i32::from(fails == 0);
                    running[job] = targets.run_ended(end(number, at, status), at);
                }
                targets.take_leaving().iter().for_each(|job| running[job.0 as usize] = false);
                reported.extend(targets.new_ends().iter().map(|end| end.job));
            }
            reported.sort_unstable();
            let all: Vec<JobIdx> = (0..).map(JobIdx).take(list.len()).collect();
            prop_assert_eq!(reported, all);
        }
    }
}
