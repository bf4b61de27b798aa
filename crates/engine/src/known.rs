//! Tasks of a job that are known before their creation: the part of its profile worth planning for.
//!
//! A program can create ten thousand threads that never live together. Planning for all of them
//! would crowd most PUs with tasks that have ended, so a plan is made for the threads that live
//! together when the program is busiest; the others get the default placement.

use crate::lookup::by_job;
use colocate_evidence::SeenTask;
use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::Nanos;
use colocate_model::{Class, Mix, Phase, Profile, Share, ThreadProfile};
use colocate_policy::Task;
use std::collections::BTreeSet;

/// Knowledge of one job when the engine starts.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownJob {
    /// The job's name, for messages.
    pub name: String,
    /// Its profile; `None` if it was never profiled.
    pub profile: Option<Profile>,
    /// Demand vectors of its threads in the order of their creation; those of later threads are
    /// unknown.
    pub phases: Vec<Phase>,
}

impl KnownJob {
    /// Orders of the threads that live together when the program is busiest.
    ///
    /// The moment is the creation of a thread, as load only grows then; the earliest such moment if
    /// several are as busy. Empty without a profile.
    pub fn busiest_together(&self) -> BTreeSet<u32> {
        let threads = self.profile.as_ref().map_or(&[][..], |profile| &profile.threads);
        let watched = self.profile.as_ref().map_or(Nanos::ZERO, |profile| profile.watched_ns);
        let moment = busiest_moment(threads, watched);
        let there = threads.iter().filter(|thread| lives_at(thread, moment));
        there.map(|thread| thread.order).collect()
    }

    fn thread(&self, order: u32) -> Option<&ThreadProfile> {
        self.profile.as_ref()?.threads.get(order as usize)
    }

    /// Mean mix of the job's threads, weighted by CPU time: the expectation for a thread that was
    /// not profiled.
    fn typical(&self) -> Mix {
        let threads = self.profile.as_ref().map_or(&[][..], |profile| &profile.threads);
        mean(threads.iter().map(|thread| (thread.mix, thread.cpu_time_ns)))
    }
}

fn lives_at(thread: &ThreadProfile, moment: Nanos) -> bool {
    thread.start_ns <= moment && thread.end_ns.is_none_or(|end| end > moment)
}

/// CPU time over life time, in 0 ..= 1; `None` if the CPU time is unknown.
fn busy_of(thread: &ThreadProfile, watched: Nanos) -> Option<f64> {
    busy(thread.cpu_time_ns, life(thread, watched))
}

/// Weight of a thread's life time: 1 if it is long enough for a place of its own, less if shorter.
fn lasts(thread: &ThreadProfile, watched: Nanos) -> f64 {
    (life(thread, watched).as_secs_f64() / (NEGLIGIBLE * watched.as_secs_f64())).min(1.0)
}

fn life(thread: &ThreadProfile, watched: Nanos) -> Nanos {
    thread.end_ns.unwrap_or(watched).saturating_sub(thread.start_ns)
}

fn busy(cpu_time: Option<Nanos>, life: Nanos) -> Option<f64> {
    let share = cpu_time?.as_secs_f64() / life.as_secs_f64();
    // A life of no length has no share.
    share.is_finite().then(|| share.clamp(0.0, 1.0))
}

/// Creation with the highest load, by a sweep over creations and ends.
fn busiest_moment(threads: &[ThreadProfile], watched: Nanos) -> Nanos {
    let mut changes: Vec<(Nanos, f64)> = Vec::with_capacity(2 * threads.len());
    for thread in threads {
        // A thread with unknown CPU time counts as busy: it is better to have planned for it. A
        // wrapper is busy before it executes its program, too, but only for a moment, so the life
        // time is a factor.
        let load = busy_of(thread, watched).unwrap_or(1.0) * lasts(thread, watched);
        changes.push((thread.start_ns, load));
        changes.extend(thread.end_ns.map(|end| (end, -load)));
    }
    // At equal times ends come first: a thread and its successor are not together.
    changes.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut load = 0.0;
    let mut best = (f64::NEG_INFINITY, Nanos::ZERO);
    for (at, change) in changes {
        load += change;
        // Rounding errors must not move the moment, so only a real gain counts.
        if change >= 0.0 && load > best.0 + 1e-9 {
            best = (load, at);
        }
    }
    best.1
}

/// Mean of mixes weighted by CPU time; a class is unknown if it is unknown of all threads.
fn mean(mixes: impl Iterator<Item = (Mix, Option<Nanos>)> + Clone) -> Mix {
    let mut mean = Mix::default();
    for class in Class::ALL {
        let mut sum = 0.0;
        let mut weights = 0.0;
        for (mix, cpu_time) in mixes.clone() {
            if let Some(share) = mix.get(class) {
                // A tiny weight, so threads without CPU time count only if no thread has any.
                let weight = cpu_time.map_or(1e-9, |time| time.as_secs_f64().max(1e-9));
                sum += weight * share.get();
                weights += weight;
            }
        }
        // Rounding can lead beyond 1, which is no share.
        let share = if weights > 0.0 { Share::new((sum / weights).min(1.0)) } else { None };
        mean.set(class, share);
    }
    mean
}

/// Least busy share that is planned for. Chosen: below it, a task needs a unit at the same time as
/// another task for at most a hundredth of the time, and a place of its own would be wasted.
const NEGLIGIBLE: f64 = 0.01;

/// Whether `task` is busy enough for a place in a plan. An unknown share counts as busy.
pub fn is_worth_a_place(task: &Task) -> bool {
    task.busy.is_none_or(|busy| busy >= NEGLIGIBLE)
}

/// Tasks to plan for, in the order of their IDs: known tasks of jobs that are busy enough, created
/// or not, and every living task that was seen.
///
/// The mix of a task is the mix seen now, else the profile's, else the typical mix of its job.
pub fn tasks_to_plan(jobs: &[KnownJob], seen: &[SeenTask], at: Nanos) -> Vec<Task> {
    let mut tasks = Vec::with_capacity(seen.len());
    for (index, job) in jobs.iter().enumerate() {
        let coming = job
            .busiest_together()
            .into_iter()
            .map(|order| TaskId { job: JobIdx(index_u32(index)), order })
            .filter(|id: &TaskId| seen.binary_search_by_key(id, |task| task.id).is_err());
        tasks.extend(coming.map(|id| expected(job, id)));
    }
    for (index, of_job) in by_job(seen) {
        let job = jobs.get(index.0 as usize);
        let typical = job.map(|job| typical_of(job, of_job)).unwrap_or_default();
        let alive = of_job.iter().filter(|task| task.alive());
        tasks.extend(alive.map(|task| merged(job, typical, task, at)));
    }
    tasks.sort_by_key(|task| task.id);
    tasks
}

fn index_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// A task that is not created yet, by its profile.
fn expected(job: &KnownJob, id: TaskId) -> Task {
    let thread = job.thread(id.order);
    let watched = job.profile.as_ref().map_or(Nanos::ZERO, |profile| profile.watched_ns);
    let name = thread.map_or("", |thread| &thread.name);
    Task {
        id,
        name: format!("{}/{name}", job.name),
        mix: thread.map(|thread| thread.mix).unwrap_or_default(),
        busy: thread.and_then(|thread| busy_of(thread, watched)),
        ipc: thread.and_then(ThreadProfile::ipc),
        instructions: thread.and_then(|thread| thread.instructions),
        phase: job.phases.get(id.order as usize).cloned(),
    }
}

/// A living task of a job, by observation and profile; `typical` is the typical mix of the job.
fn merged(job: Option<&KnownJob>, typical: Mix, task: &SeenTask, at: Nanos) -> Task {
    let before = job
        .filter(|job: &&KnownJob| job.profile.is_some() || !job.phases.is_empty())
        .map(|job| expected(job, task.id));
    let seen = task.known_mix();
    let mix = if seen != Mix::default() {
        seen
    } else {
        let profiled = before.as_ref().map(|task| task.mix).unwrap_or_default();
        if profiled == Mix::default() { typical } else { profiled }
    };
    Task {
        id: task.id,
        name: task.name.to_string(),
        mix,
        busy: before
            .as_ref()
            .and_then(|task| task.busy)
            .or_else(|| busy(task.cpu_time, at.saturating_sub(task.created))),
        // A profiled rate may have been counted alone; the rate counted now depends on the
        // neighbours.
        ipc: before.as_ref().and_then(|task| task.ipc).or_else(|| task.ipc()),
        // A count of a task that runs depends on its age, so only profiled counts are comparable.
        instructions: before.as_ref().and_then(|task| task.instructions),
        phase: before.and_then(|task| task.phase),
    }
}

/// Typical mix of a job: by its profile, or by its tasks seen now.
fn typical_of(job: &KnownJob, seen: &[SeenTask]) -> Mix {
    let profiled = job.typical();
    if profiled != Mix::default() {
        return profiled;
    }
    mean(seen.iter().map(|task| (task.known_mix(), task.cpu_time)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_model::{Backend, ProfiledProgram};

    fn thread(order: u32, start_s: u64, end_s: Option<u64>, cpu_s: u64) -> ThreadProfile {
        ThreadProfile {
            order,
            process: 0,
            name: "t".into(),
            start_ns: Nanos::from_secs(start_s),
            end_ns: end_s.map(Nanos::from_secs),
            cpu_time_ns: Some(Nanos::from_secs(cpu_s)),
            instructions: None,
            cycles: None,
            samples: None,
            mix: Mix::default(),
        }
    }

    fn known(threads: Vec<ThreadProfile>) -> KnownJob {
        let program =
            ProfiledProgram { path: "p".into(), args: vec![], identity: "sha256:0".into() };
        let profile = Profile {
            version: colocate_model::profile::VERSION,
            backend: Backend::Sample,
            program,
            processor: None,
            started_unix_s: 0,
            watched_ns: Nanos::from_secs(100),
            complete: true,
            threads,
            notes: vec![],
        };
        KnownJob { name: "job".into(), profile: Some(profile), phases: Vec::new() }
    }

    #[test]
    fn ten_thousand_short_threads_are_not_planned_for() {
        let mut threads = vec![thread(0, 0, None, 1)];
        threads.extend((1..10_000).map(|n| thread(n, u64::from(n), Some(u64::from(n) + 1), 1)));
        assert_eq!(known(threads).busiest_together().len(), 2);
    }

    /// Two teams of two, one after the other; the second is busier: 2 × 40/40 against 2 × 10/40.
    #[test]
    fn the_busier_team_is_planned_for() {
        let threads = vec![
            thread(0, 0, None, 1),
            thread(1, 1, Some(41), 10),
            thread(2, 1, Some(41), 10),
            thread(3, 50, Some(90), 40),
            thread(4, 50, Some(90), 40),
        ];
        assert_eq!(known(threads).busiest_together(), BTreeSet::from([0, 3, 4]));
    }

    /// A shell calls `seq`, of which nothing but 10 ms of life is known, and then four workers, which share two PUs.
    #[test]
    fn what_a_wrapper_calls_first_is_not_planned_for() {
        let mut threads = vec![thread(0, 0, None, 0), thread(1, 1, None, 0)];
        threads[1].end_ns = Some(threads[1].start_ns + Nanos::from_millis(10));
        threads.iter_mut().for_each(|thread| thread.cpu_time_ns = None);
        threads.extend((2..6).map(|n| thread(n, 2, Some(92), 9)));
        assert_eq!(known(threads).busiest_together(), BTreeSet::from([0, 2, 3, 4, 5]));
    }

    /// 0.5 s and 2 s of CPU time in 100 s: below and above the hundredth.
    #[test]
    fn a_task_that_mostly_sleeps_gets_no_place() {
        let mut threads = vec![thread(0, 0, None, 0), thread(1, 0, None, 2)];
        threads[0].cpu_time_ns = Some(Nanos::from_millis(500));
        let mut tasks = tasks_to_plan(&[known(threads)], &[], Nanos::ZERO);
        tasks.retain(is_worth_a_place);
        let orders: Vec<u32> = tasks.iter().map(|task| task.id.order).collect();
        assert_eq!(orders, [1]);
        assert!(is_worth_a_place(&Task { busy: None, ..tasks.remove(0) }));
    }

    /// 300 instructions in 200 cycles; what was counted before comes first, and half a count is none.
    #[test]
    fn rates_come_from_counts() {
        let mut threads = vec![thread(0, 0, None, 50)];
        let ipc = |threads: &Vec<ThreadProfile>, seen: &[SeenTask]| {
            tasks_to_plan(&[known(threads.clone())], seen, Nanos::from_secs(1))[0].ipc
        };
        let id = TaskId { job: JobIdx(0), order: 0 };
        let seen = |instructions, cycles| SeenTask {
            instructions,
            cycles,
            ..SeenTask::new(id, "t".into(), Nanos::ZERO)
        };
        assert_eq!(ipc(&threads, &[]), None);
        assert_eq!(ipc(&threads, &[seen(Some(300), Some(200))]), Some(1.5));
        assert_eq!(ipc(&threads, &[seen(Some(300), None)]), None);
        assert_eq!(ipc(&threads, &[seen(Some(300), Some(0))]), None);
        (threads[0].instructions, threads[0].cycles) = (Some(100), Some(50));
        assert_eq!(ipc(&threads, &[seen(Some(300), Some(200))]), Some(2.0));
        assert_eq!(ipc(&threads, &[]), Some(2.0));
    }

    /// `emulate` counts 100 instructions and no cycles; a count of the run now is no count of a whole run.
    #[test]
    fn counts_come_from_the_profile() {
        let mut threads = vec![thread(0, 0, None, 50)];
        threads[0].instructions = Some(100);
        let id = TaskId { job: JobIdx(0), order: 0 };
        let seen =
            SeenTask { instructions: Some(300), ..SeenTask::new(id, "t".into(), Nanos::ZERO) };
        let seen = std::slice::from_ref(&seen);
        for seen in [&[], seen] {
            let tasks = tasks_to_plan(&[known(threads.clone())], seen, Nanos::from_secs(1));
            assert_eq!((tasks[0].instructions, tasks[0].ipc), (Some(100), None));
        }
        assert_eq!(tasks_to_plan(&[], seen, Nanos::from_secs(1))[0].instructions, None);
    }

    #[test]
    fn a_job_without_threads_has_none_to_plan_for() {
        assert!(known(vec![]).busiest_together().is_empty());
        assert!(
            KnownJob { name: "new".into(), profile: None, phases: Vec::new() }
                .busiest_together()
                .is_empty()
        );
    }

    /// 1 s of all-int and 3 s of all-float: a quarter int; the class that was not seen stays unknown.
    #[test]
    fn the_typical_mix_is_weighted_by_cpu_time() {
        let mut threads = vec![thread(0, 0, None, 1), thread(1, 0, None, 3)];
        threads[0].mix = Mix { int: Share::new(1.0), float: Share::new(0.0), ..Mix::default() };
        threads[1].mix = Mix { int: Share::new(0.0), float: Share::new(1.0), ..Mix::default() };
        let typical = known(threads).typical();
        assert_eq!(typical.int.map(Share::get), Some(0.25));
        assert_eq!(typical.float.map(Share::get), Some(0.75));
        assert_eq!(typical.load, None);
    }
}
