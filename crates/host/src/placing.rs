//! When a task goes to its PU: at its creation, when its program has settled, when a plan changes, or
//! never. docs/reference/run.md has the rules in a table.

use crate::LinuxHost;
use crate::preparing::MOST_A_SECOND;
use crate::runtime::Runtime;
use crate::sched_ext::ExtScheduler;
use crate::task::Task;
use crate::task_table::Creation;
use colocate_act::affinity::{self, Pinned};
use colocate_act::journal::Mark;
use colocate_act::mask_owner::MaskOwner;
use colocate_evidence::{JobIdx, PlacementStatus, TaskId};
use colocate_files::kernel;
use colocate_linux::clock::now;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::proc::Proc;
use colocate_linux::proc::stat::Stat;
use colocate_linux::run_time::RunTime;
use colocate_linux::{Pid, Tid};
use colocate_machine::{Nanos, PuNr, PuSet, Shared};
use colocate_policy::{Decision, DefaultPlacement, Place, Plan};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;
use std::slice::Iter;
use std::sync::Arc;

/// Why a new thread of a Go program is not placed.
const GO_MONITOR: &str = "the Go runtime counts PUs on it";
/// Why a new thread of a Java program is not placed.
const JAVA_MAIN: &str = "Java code counts PUs on it";
/// What is said of the other threads of a Java program.
const JAVA_WORKERS: &str = "availableProcessors() answers";
/// The option that sets the number of PUs that a Java program counts.
const JAVA_COUNT: &str = "-XX:ActiveProcessorCount";
/// Why a thread that creates processes is not placed on one PU.
const STARTS_PROGRAMS: &str = "it starts programs, which would count only its PU";
/// Why a thread that has created a process is not placed on one PU for a while.
const CREATES_PROCESSES: &str = "it has just created a process, which would have only its PU";
/// A thread is not placed for so many times as long as a program is left alone, and for a second at least, from when it has created a
/// process. Chosen: ten seconds by default, and servers that save their memory do so once a minute.
const FORKED: u64 = 50;
/// Why the threads of a process are not placed that creates very many.
const STORMS: &str = "its process creates threads faster than they are followed";

/// Why a thread of a process is not placed whose creator had ended before it was seen, so that nothing but the record of its
/// creation says that it belongs to what is attached to.
const ORPHANED: &str = "its creator had ended before it was seen";
/// A scheduler in the kernel's stead gets no masks of one PU, and no smaller part of the machine has several.
const EXT_SCHEDULER: &str = "a sched_ext scheduler is loaded, so threads go to a core or cache, and here each of these has all PUs or one";
/// Why a thread is not placed that has set its mask itself.
pub(crate) const WIDENED: &str = "its program has set all PUs again";

/// What is said of a program that was executed on one PU.
const SEES_ONE: &str = "it saw one";
/// So long after it was executed no program has counted PUs. Chosen: the dynamic linker takes longer.
const COUNTS_AFTER: Nanos = Nanos(200_000);

/// To check whether all tasks are where the plan puts them takes at most one part in this many of a PU. Chosen: a twentieth of
/// what watching may take.
const FOLLOW_SHARE: u64 = 1_000;

/// How a process belongs to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kinship {
    /// Its creator is of the job, or colocate has adopted it.
    Child,
    /// The kernel has recorded that a thread of the job created it, and its creator has ended.
    Orphan,
    /// It is not the process that was created: its number is in use again.
    Stranger,
}

/// Whether, and how long, a task has to wait before it may be put on a PU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delay {
    No,
    Until(Nanos),
    Forever(&'static str),
}

/// A program that wants a PU has begun when it has had one for this part of the time for which it is left alone. Chosen: 20 ms by
/// default, and runtimes count PUs in their first milliseconds.
const BEGINS: u64 = 10;
/// So often that time is put off, by half of itself. Chosen: two seconds by default, for a machine with a load of ten.
const MOST_PUT_OFF: u32 = 20;

/// What is placed, and when.
#[derive(Debug)]
pub(crate) struct Placing {
    /// The plan in force.
    pub plan: Option<Plan>,
    /// How long a process is left alone after its program has begun.
    settle: Nanos,
    /// First threads of processes, with the time from which they may be put on a PU.
    pub settling: BinaryHeap<Reverse<(Nanos, TaskId)>>,
    /// When all tasks are compared with the plan next.
    next_follow: Nanos,
    /// A scheduler in the kernel's stead.
    pub ext_scheduler: ExtScheduler,
}

impl Placing {
    pub const fn new(settle: Nanos) -> Self {
        Self {
            plan: None,
            settle,
            settling: BinaryHeap::new(),
            next_follow: Nanos::ZERO,
            ext_scheduler: ExtScheduler::Absent,
        }
    }

    /// How long a process is left alone after its program has begun.
    pub const fn settle(&self) -> Nanos {
        self.settle
    }
}

impl LinuxHost {
    pub(crate) fn created(&mut self, creation: Creation) {
        let Some(id) = self.tasks.created(creation) else { return };
        self.counts.created += 1;
        if !self.hold_process(id, creation) {
            return self.ended(creation.at, creation.tid);
        }
        if creation.pid != creation.parent_pid {
            self.creates_process(creation);
            self.created_by_orphan(creation);
        }
        let is_first = creation.tid == creation.pid.first_thread();
        if is_first {
            self.begin_program(creation.pid, creation.at);
            self.stop_new(id, creation.pid);
        }
        self.inherit_class(id);
        if let Some(new) = self.new_task(id) {
            self.sources.created(&new);
        }
        let Some(plan) = &self.placing.plan else {
            if self.is_over() || self.quantum.launched.is_some() {
                // Its creator's mask may have been restored in the middle of this creation.
                self.start(id, Delay::No);
            }
            return;
        };
        let target = self.tasks.target_of(plan, id);
        self.tasks.set_target(id, target);
        let waiting = self.waiting(creation.pid, creation.at, is_first);
        let put = self.start(id, waiting);
        let is_put = target.pu().is_some() && self.mark_at(target).is_put();
        if put == Some(Pinned::Done) && waiting == Delay::No && is_put {
            self.counts.waited.add(now().saturating_sub(creation.at));
        }
    }

    /// Opens the process of a new task, unless it is open. False if its number is in use again, by a process of no job.
    fn hold_process(&mut self, id: TaskId, creation: Creation) -> bool {
        let pid = creation.pid;
        if let Some(process) = self.tasks.handle(pid).filter(|process| process.exists()) {
            let process = process.clone();
            self.tasks.hold(id, Some(process));
            return true;
        }
        let opened = ProcessHandle::open(&self.actuators.proc, pid);
        let proc = Proc::at(&self.actuators.proc);
        let (process, trouble) = match opened {
            Ok(process) => (Some(process), Ok(())),
            Err(why) if proc.has_ended(&why, pid, pid.first_thread()) => (None, Ok(())),
            Err(why) => (None, Err(why)),
        };
        self.report_failure(id.job, "place or stop a process of", trouble);
        let parent = process.as_ref().and_then(ProcessHandle::parent);
        let Some((process, parent)) = process.zip(parent) else {
            self.tasks.hold(id, None);
            return true;
        };
        let kinship = self.kinship(&process, parent, creation);
        if kinship == Kinship::Stranger {
            return false;
        }
        self.tasks.hold(id, Some(Arc::new(process)));
        if let Some(process) = self.tasks.process(pid).filter(|_| kinship == Kinship::Orphan) {
            process.is_orphan = true;
        }
        true
    }

    /// Whether a process, opened by its number, is the one that was created. One of a job is a child of another one that lives, or, if
    /// its creator has ended, of ours. What descends from processes that are attached to becomes a child of init instead: it is
    /// believed if the kernel has recorded its creation and it is not younger than that.
    fn kinship(&mut self, process: &ProcessHandle, parent: Pid, creation: Creation) -> Kinship {
        if parent == Pid(std::process::id().cast_signed()) {
            return Kinship::Child;
        }
        if let Some(parent) = self.tasks.process(parent)
            && parent.handle.as_ref().is_some_and(|handle| handle.exists())
        {
            return if parent.is_orphan { Kinship::Orphan } else { Kinship::Child };
        }
        let is_recorded = self.runs.is_attached && !creation.lost;
        if is_recorded && process.started_by(creation.at) {
            Kinship::Orphan
        } else {
            Kinship::Stranger
        }
    }

    /// A process begins a program: it has not counted PUs yet.
    fn begin_program(&mut self, pid: Pid, at: Nanos) {
        let settled_at = at + self.placing.settle;
        if let Some(process) = self.tasks.process(pid) {
            (process.settled_at, process.further, process.storms) = (settled_at, 0, false);
            process.put_off = 0;
        }
    }

    /// How long a new thread has to wait before it may be put on a PU.
    fn waiting(&mut self, pid: Pid, at: Nanos, is_first: bool) -> Delay {
        let Some(process) = self.tasks.process(pid) else { return Delay::No };
        let settled = process.settled_at <= at;
        if process.storms {
            return Delay::Forever(STORMS);
        }
        if process.is_orphan {
            return Delay::Forever(ORPHANED);
        }
        match process.runtime {
            _ if settled && is_first => Delay::No,
            Runtime::Go if !is_first && process.further == 1 => Delay::Forever(GO_MONITOR),
            Runtime::Jvm if !is_first && process.further == 1 => Delay::Forever(JAVA_MAIN),
            _ if is_first => Delay::Until(process.settled_at),
            _ => Delay::No,
        }
    }

    /// Puts a task where it is aimed at, or has it wait.
    pub(crate) fn start(&mut self, id: TaskId, waiting: Delay) -> Option<Pinned> {
        let target = self.tasks.task(id).map(|task| task.placement.target)?;
        let mark = self.mark_at(target);
        let has_place = target.named_pu().is_some();
        let is_left_to_ext = self.placing.ext_scheduler != ExtScheduler::Absent;
        let is_planned = self.has_planned_place(id);
        let task = self.tasks.task(id)?;
        if let Delay::Forever(why) = waiting {
            task.placement.exempt = Some(why);
        }
        let waiting = match task.placement.exempt {
            Some(why) if target.shared().is_none() || !may_share(why) => Delay::Forever(why),
            Some(_) => Delay::No,
            None => waiting,
        };
        let (to, then) = match (waiting, mark) {
            (_, Mark::Original) if has_place && is_left_to_ext => {
                (Mark::Original, PlacementStatus::Exempt(EXT_SCHEDULER))
            }
            (Delay::Forever(why), Mark::Original) if is_planned => {
                (Mark::Original, PlacementStatus::Exempt(why))
            }
            (_, Mark::Original) => (Mark::Original, PlacementStatus::LeftToKernel),
            (Delay::Forever(why), _) => (Mark::Original, PlacementStatus::Exempt(why)),
            (Delay::Until(at), _) => {
                self.placing.settling.push(Reverse((at, id)));
                (Mark::Original, PlacementStatus::Settling)
            }
            (Delay::No, mark) => (mark, PlacementStatus::Placed),
        };
        let (pid, tid) = (task.thread.pid, task.thread.tid);
        let asks = to == Mark::Original && task.thread.is_first();
        let before = asks.then(|| colocate_linux::affinity::of(tid).ok()).flatten();
        let pinned = self.actuators.pin(&mut task.thread, to);
        task.placement.note(&pinned, then);
        let widened = before.is_some_and(|before| {
            affinity::single(&before).is_some() && affinity::single(&task.thread.allowed).is_none()
        });
        if let Some(process) = self.tasks.process(pid).filter(|_| widened) {
            process.narrow_until = now();
        }
        if pinned == Pinned::Done && to.is_put() && tid != pid.first_thread() {
            self.note_java(pid, id.job, to);
        }
        // What is not on a PU by our doing must not keep others from it, unless it comes back soon.
        let is_away = matches!(waiting, Delay::Forever(why) if why != CREATES_PROCESSES);
        if pinned == Pinned::ByProgram || is_away {
            self.tasks.set_target(id, Place::LeftToKernel);
        }
        self.tasks.note_placed(id, now());
        Some(pinned)
    }

    /// Whether the plan has PUs for a task.
    fn has_planned_place(&self, id: TaskId) -> bool {
        let plan = self.placing.plan.as_ref();
        plan.is_some_and(|plan| self.tasks.target_of(plan, id).named_pu().is_some())
    }

    /// What a thread is given at a place. PUs that share something and were not together at the start are the kernel's.
    fn mark_at(&self, place: Place) -> Mark {
        // On one PU nothing is gained, and the kernel does not show there whether a mask was set.
        if self.usable.len() < 2 {
            return Mark::Original;
        }
        match (place, self.placing.ext_scheduler) {
            (Place::LeftToKernel | Place::Waiting, _) | (_, ExtScheduler::Since) => Mark::Original,
            (Place::Pu(pu), ExtScheduler::Absent) => Mark::On(pu),
            (Place::Pu(pu), ExtScheduler::Before) => {
                let parts = Shared::ALL.into_iter().map(|shared| self.sharing_with(shared, pu));
                let several = parts.into_iter().find(|part| part.len() > 1);
                several.map_or(Mark::Original, |part| self.actuators.mark_of(&part))
            }
            (Place::Sharing(shared, pu), _) => {
                self.actuators.mark_of(&self.sharing_with(shared, pu))
            }
        }
    }

    /// The PUs that share a part with one, as far as threads could use them at the start.
    fn sharing_with(&self, shared: Shared, pu: PuNr) -> PuSet {
        self.machine.sharing_with(shared, pu).intersection(&self.actuators.original)
    }

    /// A thread that creates processes hands its mask down. It is not kept on one PU for a while, and for good if what it has created
    /// executes a program, which counts PUs by that mask. What was found late may have done so already.
    fn creates_process(&mut self, creation: Creation) {
        let creator = creation.parent_tid;
        if creation.lost && !self.is_of_same_program(creation) {
            return self.starts_programs(creator);
        }
        if let Some(process) = self.tasks.process(creation.pid) {
            process.creator = Some(creator);
        }
        let until = Nanos(self.placing.settle.0 * FORKED).max(Nanos::from_secs(1)) + creation.at;
        let Some(id) = self.tasks.living(creator) else { return };
        let Some(task) = self.tasks.task(id) else { return };
        task.placement.forked_until = until;
        if task.placement.exempt.is_none()
            && task.placement.status != PlacementStatus::PinnedByProgram
        {
            self.start(id, Delay::Forever(CREATES_PROCESSES));
            self.placing.settling.push(Reverse((until, id)));
        }
    }

    /// Whether a process executes what its creator does.
    fn is_of_same_program(&self, creation: Creation) -> bool {
        let proc = Proc::at(&self.actuators.proc);
        let program = |pid| kernel::link(&proc.executable_link(pid)).ok();
        program(creation.pid).is_some_and(|its| program(creation.parent_pid) == Some(its))
    }

    /// What a thread has created executes a program.
    fn starts_programs(&mut self, tid: Tid) {
        let Some(id) = self.tasks.living(tid) else { return };
        let Some(task) = self.tasks.task(id) else { return };
        let placement = &mut task.placement;
        if placement.exempt == Some(CREATES_PROCESSES) {
            placement.exempt = Some(STARTS_PROGRAMS);
            if placement.status == PlacementStatus::Exempt(CREATES_PROCESSES) {
                placement.status = PlacementStatus::Exempt(STARTS_PROGRAMS);
            }
            self.tasks.set_target(id, Place::LeftToKernel);
        } else if placement.exempt.is_none() && placement.status != PlacementStatus::PinnedByProgram
        {
            self.start(id, Delay::Forever(STARTS_PROGRAMS));
        }
    }

    /// A thread may be placed again that was not as it had created a process; later if it has created another one since.
    fn has_forked(&mut self, id: TaskId) {
        let Some(task) = self.tasks.task(id) else { return };
        let until = task.placement.forked_until;
        if until > now() {
            self.placing.settling.push(Reverse((until, id)));
            return;
        }
        task.placement.exempt = None;
        let Some(plan) = &self.placing.plan else { return };
        let target = self.tasks.target_of(plan, id);
        self.tasks.set_target(id, target);
        self.start(id, Delay::No);
    }

    /// A process creates threads faster than they can be followed. They have the masks of those that create them, and most
    /// end unseen; so that none of them is kept on one PU, none of their process is.
    pub(crate) fn storms(&mut self, pid: Pid) {
        let Some(process) = self.tasks.process(pid) else { return };
        let (job, is_new) = (process.job, !std::mem::replace(&mut process.storms, true));
        if !is_new {
            return;
        }
        for id in self.tasks.living_in(pid) {
            let Some(task) = self.tasks.task(id) else { continue };
            if task.placement.status != PlacementStatus::PinnedByProgram {
                self.start(id, Delay::Forever(STORMS));
            }
        }
        if self.notes.is_first(job, STORMS) {
            self.note_on(
                job,
                &format!(
                    "creates more than {MOST_A_SECOND} threads a second: they are not followed one by one, and process {pid} is \
                     left to the kernel; threads that live on are followed later"
                ),
            );
        }
    }

    pub(crate) fn named(&mut self, at: Nanos, pid: Pid, tid: Tid, name: String, exec: bool) {
        let Some(id) = self.tasks.living(tid) else { return };
        self.tasks.rename(id, &name);
        if exec {
            self.executes(at, pid, id);
        }
    }

    /// A process executes another program: its thread is free again until that has settled.
    fn executes(&mut self, at: Nanos, pid: Pid, id: TaskId) {
        if self.tasks.begins_run(id) {
            self.pausing.exec_pending[id.job.0 as usize] = None;
        }
        let executable = self.actuators.proc.join(format!("{pid}/exe"));
        let runtime = self.runs.runtimes.of(&executable);
        self.begin_program(pid, at);
        let Some(process) = self.tasks.process(pid) else { return };
        process.runtime = runtime;
        let (settled_at, creator) = (process.settled_at, process.creator.take());
        let is_orphan = process.is_orphan;
        creator.into_iter().for_each(|creator| self.starts_programs(creator));
        if is_orphan {
            self.start(id, Delay::Forever(ORPHANED));
            return;
        }
        let Some(plan) = &self.placing.plan else { return };
        let Some(task) = self.tasks.task(id) else { return };
        if task.placement.exempt.take().is_some() {
            let target = self.tasks.target_of(plan, id);
            self.tasks.set_target(id, target);
        }
        self.start(id, if settled_at > at { Delay::Until(settled_at) } else { Delay::No });
        self.note_narrow_start(at, pid, id.job);
    }

    /// Says of a job, once, that one of its programs may have counted fewer PUs than it was given.
    fn note_narrow_start(&mut self, at: Nanos, pid: Pid, job: JobIdx) {
        let Some(process) = self.tasks.process(pid) else { return };
        let narrow = process.narrow_until.saturating_sub(at);
        if narrow > COUNTS_AFTER && self.notes.is_first(job, SEES_ONE) {
            self.note_on(
                job,
                &format!(
                    "had one PU of {} for the first {narrow} of process {pid}: if its program counted PUs by then, {SEES_ONE}",
                    self.usable.len()
                ),
            );
        }
    }

    /// Says of a job, once, that Java code counts the PUs of placed threads: it counts on any thread, and at any time.
    fn note_java(&mut self, pid: Pid, job: JobIdx, mark: Mark) {
        let is_java = self.tasks.process(pid).is_some_and(|it| it.runtime == Runtime::Jvm);
        if !is_java || !self.notes.is_first(job, JAVA_WORKERS) {
            return;
        }
        let words = Proc::at(&self.actuators.proc).command_line(pid);
        if words.iter().any(|word| word.to_string_lossy().starts_with(JAVA_COUNT)) {
            return;
        }
        let (few, all) = (self.actuators.mask(mark).len(), self.usable.len());
        self.note_on(
            job,
            &format!(
                "is a Java program, and its threads in process {pid} are placed: {JAVA_WORKERS} {few} there, not {all}; \
                 {JAVA_COUNT}={all} has it count {all}"
            ),
        );
    }

    /// Places the tasks whose programs have settled.
    pub(crate) fn place_settled(&mut self) {
        while let Some(&Reverse((at, id))) = self.placing.settling.peek() {
            if at > now() {
                return;
            }
            self.placing.settling.pop();
            let Some(task) = self.tasks.task(id).filter(|task| task.ended.is_none()) else {
                continue;
            };
            if task.placement.exempt == Some(CREATES_PROCESSES) {
                self.has_forked(id);
                continue;
            }
            if task.placement.status != PlacementStatus::Settling {
                continue;
            }
            let pid = task.thread.pid;
            let Some(settled_at) = self.tasks.process(pid).map(|process| process.settled_at) else {
                continue;
            };
            // It has executed a program since then, or another thread of it was put off.
            let later = Some(settled_at).filter(|later| *later > at);
            let later = later.or_else(|| self.put_off(id, pid));
            self.start(id, later.map_or(Delay::No, Delay::Until));
        }
    }

    /// Whether new tasks are put on a PU, or stopped, as soon as they are created.
    pub(crate) fn places_new_tasks(&self) -> bool {
        let plan = self.placing.plan.as_ref();
        self.pausing.pauser.is_some()
            || plan.is_none_or(|plan| plan.default_placement != DefaultPlacement::LeaveToKernel)
    }

    /// Until when a program is left alone for longer, as it has hardly had a PU yet and waits for one: on a busy machine it may not
    /// have counted PUs.
    fn put_off(&mut self, id: TaskId, pid: Pid) -> Option<Nanos> {
        let (settle, proc) = (self.placing.settle, &self.actuators.proc);
        let tid = self.tasks.task(id)?.thread.tid;
        let ran = RunTime::open(proc, pid, tid).ok()?.read()?;
        if ran >= Nanos(settle.0 / BEGINS) || !Stat::read(proc, pid, tid)?.could_run() {
            return None;
        }
        let process = self.tasks.process(pid).filter(|process| process.put_off < MOST_PUT_OFF)?;
        process.put_off += 1;
        process.settled_at = now() + Nanos(settle.0 / 2);
        Some(process.settled_at)
    }

    /// Takes over a plan: named tasks go where it says, others by default placement. When the scheduling has
    /// ended, no plan is followed.
    ///
    /// Where little has changed since the plan before, only that is done, and everything seldom: most threads of large
    /// programs sleep.
    pub(crate) fn adopt(&mut self, plan: &Plan) {
        if self.is_over() {
            return;
        }
        let before = self
            .placing
            .plan
            .as_ref()
            .filter(|before| before.default_placement == plan.default_placement);
        let differing = before.map(|before| differing(before, plan));
        let begun = now();
        let mut ids = match differing {
            Some(differing) if differing.is_empty() => return,
            Some(differing)
                if self.quantum.launched.is_some() && begun < self.placing.next_follow =>
            {
                self.with_those_of(differing)
            }
            _ => Vec::new(),
        };
        let everything = ids.is_empty();
        if everything {
            ids = self.movable_tasks();
        }
        ids.retain(|&id| self.tasks.task(id).is_some_and(|task| is_movable(task)));
        self.placing.plan = Some(plan.clone());
        self.tasks.is_planned();
        let places = ids.into_iter().map(|id| (id, self.place_of(id, plan)));
        // Named ones first, so that the others find the room that is left.
        let (named, others): (Vec<_>, Vec<_>) = places.partition(|(_, place)| place.is_some());
        for &(id, place) in &named {
            self.tasks.set_target(id, place.unwrap_or_default());
        }
        for &(id, _) in &others {
            let before = self.tasks.task(id).and_then(|task| task.placement.target.pu());
            self.tasks.set_target(id, Place::LeftToKernel);
            let kept = kept(before, &plan.default_placement).map(Place::Pu);
            let target = kept.unwrap_or_else(|| self.tasks.default_target(&plan.default_placement));
            self.tasks.set_target(id, target);
        }
        // A stopped task stays where it is: it runs nowhere.
        for (id, place) in named.into_iter().chain(others) {
            if place != Some(Place::Waiting) || self.fills(id.job) {
                self.follow(id);
            }
        }
        if everything {
            let took = now().saturating_sub(begun);
            self.placing.next_follow = now() + Nanos(took.0.saturating_mul(FOLLOW_SHARE));
        }
    }

    /// Where a plan puts a task, or by default placement if that is `None`. One that must not be on one PU is on none by a plan.
    fn place_of(&mut self, id: TaskId, plan: &Plan) -> Option<Place> {
        let place = plan.place_of(id);
        let exempt = self.tasks.task(id).and_then(|task| task.placement.exempt);
        let is_exempt = exempt.is_some_and(|why| why != CREATES_PROCESSES);
        let is_wide = matches!(place, Some(Place::Sharing(..) | Place::Waiting));
        if is_exempt && !is_wide { Some(Place::LeftToKernel) } else { place }
    }

    /// The tasks that differ, and of jobs that have waited and continue all that are on a PU: which of them a plan names may
    /// have changed meanwhile.
    fn with_those_of(&mut self, differing: Differing) -> Vec<TaskId> {
        let mut tasks = differing.tasks;
        for job in differing.goes_on {
            let placed = |task: &&mut Task| task.thread.mark != Mark::Original;
            tasks.extend(self.tasks.living_of(job).filter(placed).map(|task| task.id));
        }
        tasks.sort_unstable();
        tasks.dedup();
        tasks
    }

    /// Puts every task where it is aimed at, as what that means has changed.
    pub(crate) fn follow_all(&mut self) {
        for id in self.movable_tasks() {
            self.follow(id);
        }
    }

    /// Says once that no mask can be set here.
    pub(crate) fn note_filter(&mut self) {
        if colocate_linux::affinity::is_filtered() {
            self.notes.push(format!("no thread can be placed: {}", affinity::FILTERED));
        }
    }

    /// Leaves every task to the kernel, for good: all masks are restored.
    pub(crate) fn leave_to_kernel(&mut self) {
        self.placing.plan = None;
        for id in self.movable_tasks() {
            self.tasks.set_target(id, Place::LeftToKernel);
            self.follow(id);
        }
    }

    /// The living tasks that may be put elsewhere, in the order of their IDs.
    fn movable_tasks(&mut self) -> Vec<TaskId> {
        let living = self.tasks.living_mut();
        living.filter_map(|task| is_movable(task).then_some(task.id)).collect()
    }

    /// Puts a living task where it is aimed at now.
    fn follow(&mut self, id: TaskId) {
        let at = now();
        let Some(target) = self.tasks.task(id).map(|task| task.placement.target) else { return };
        let wanted = self.mark_at(target);
        let Some(task) = self.tasks.task(id) else { return };
        let (pid, is_first, status) =
            (task.thread.pid, task.thread.is_first(), task.placement.status.clone());
        let there = task.thread.mark == wanted && status == PlacementStatus::Placed;
        let untouched = wanted == Mark::Original && task.thread.mark == wanted;
        let says_why = match status {
            PlacementStatus::LeftToKernel => task.placement.exempt.is_none(),
            PlacementStatus::Exempt(_) => true,
            _ => false,
        };
        if untouched
            && says_why
            && self.actuators.mask_owner(&mut task.thread) == MaskOwner::Original
        {
            return;
        }
        if there && wanted.is_put() && task.thread.allowed == self.actuators.mask(wanted) {
            return;
        }
        let settled_at = self.tasks.process(pid).map(|process| process.settled_at);
        let waiting = match settled_at {
            Some(until) if until > at && is_first => Delay::Until(until),
            // Before the launch nothing has begun, and what has not begun has not settled.
            _ if self.quantum.launched.is_none() && self.placing.settle > Nanos::ZERO => {
                Delay::Until(at + self.placing.settle)
            }
            _ => Delay::No,
        };
        self.start(id, waiting);
    }
}

/// Whether a task is living and may be put elsewhere.
fn is_movable(task: &Task) -> bool {
    let stays = match task.placement.status {
        PlacementStatus::Exempt(why) => !may_share(why) && why != EXT_SCHEDULER,
        PlacementStatus::PinnedByProgram | PlacementStatus::Missed => true,
        _ => false,
    };
    task.ended.is_none() && !stays
}

/// Whether a thread that must not be on one PU for this reason may be on the PUs of a part of the machine: what it creates has its
/// mask until that is seen, and is given all PUs then.
fn may_share(why: &'static str) -> bool {
    why == STARTS_PROGRAMS || why == CREATES_PROCESSES
}

/// In what two plans differ.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differing {
    /// The tasks that they do not put in the same place.
    tasks: Vec<TaskId>,
    /// The jobs that waited and do not wait any more.
    goes_on: Vec<JobIdx>,
}

impl Differing {
    fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

fn differing(before: &Plan, now: &Plan) -> Differing {
    let (mut before, mut now) =
        (before.decisions.iter().peekable(), now.decisions.iter().peekable());
    let mut differing = Differing::default();
    loop {
        let first = before.peek().into_iter().chain(now.peek()).map(|it| it.task).min();
        let Some(task) = first else { return differing };
        let place_in = |plan: &mut Peekable<Iter<'_, Decision>>| {
            plan.next_if(|decision| decision.task == task).map(|decision| decision.place)
        };
        let (there, here) = (place_in(&mut before), place_in(&mut now));
        if there != here {
            differing.tasks.push(task);
        }
        let goes_on = there == Some(Place::Waiting) && here != there;
        if goes_on && differing.goes_on.last() != Some(&task.job) {
            differing.goes_on.push(task.job);
        }
    }
}

/// The PU that a task has already, if default placement could have given it.
fn kept(pu: Option<PuNr>, rule: &DefaultPlacement) -> Option<PuNr> {
    match rule {
        DefaultPlacement::LeaveToKernel => None,
        DefaultPlacement::FillInOrder { pus } => pu.filter(|pu| pus.contains(pu)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_policy::Why;

    fn plan(places: &[(u32, Place)]) -> Plan {
        let decision = |&(order, place): &(u32, Place)| Decision {
            task: TaskId { job: JobIdx(0), order },
            name: "t".into(),
            place,
            why: Why::LeftToKernel,
        };
        Plan {
            version: 1,
            machine: "m".into(),
            pus: Vec::new(),
            policy: "p".into(),
            decisions: places.iter().map(decision).collect(),
            default_placement: DefaultPlacement::LeaveToKernel,
            ..Plan::default()
        }
    }

    /// 1 goes elsewhere, 2 is not named any more, 4 is new; 0 and 3 stay.
    #[test]
    fn only_what_differs() {
        let on = |pu| Place::from(Some(PuNr(pu)));
        let before = plan(&[(0, on(0)), (1, on(1)), (2, on(2)), (3, on(3))]);
        let now = plan(&[(0, on(0)), (1, on(3)), (3, on(3)), (4, Place::LeftToKernel)]);
        let found = differing(&before, &now);
        let orders: Vec<u32> = found.tasks.iter().map(|task| task.order).collect();
        assert_eq!((orders, found.goes_on), (vec![1, 2, 4], vec![]));
        assert!(differing(&now, &now).is_empty());
    }

    /// A job that waits is named by one of its tasks. When it continues, others of it may have to be left to the kernel.
    #[test]
    fn a_job_that_goes_on_differs() {
        let (waits, runs) =
            (plan(&[(0, Place::Waiting)]), plan(&[(3, Place::from(Some(PuNr(1))))]));
        assert_eq!(differing(&waits, &runs).goes_on, [JobIdx(0)]);
        assert_eq!(differing(&runs, &waits).goes_on, []);
    }
}
