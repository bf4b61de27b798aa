//! Placement of woken threads by the simulated kernel.
//!
//! # Approach
//! The fast path of `select_task_rq_fair` (kernel/sched/fair.c, 6.12): `wake_affine` chooses the
//! *target*, the waker's PU or the previous one. `select_idle_sibling` then looks for an idle PU
//! under the target's last-level cache.

use crate::kernel::{Wake, WakeAffine};
use crate::load_averages::LoadAverages;
use crate::loads::Loads;
use crate::targets::Targets;
use crate::task::TaskNo;
use crate::wake_history::WakeHistory;
use colocate_machine::{Machine, Nanos, PuIdx};

/// Percent of the previous PU's load with which the waker's is compared: half of what
/// `imbalance_pct` has above 100, of 117, and of 110 between siblings.
const BIAS: i64 = 108;
/// The same between siblings.
const SIBLING_BIAS: i64 = 105;

/// A running thread that wakes another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waker {
    pub task: TaskNo,
    pub pu: PuIdx,
    /// Whether the waker is about to sleep (`WF_SYNC`), as after a message over a pipe or a socket.
    pub is_sync: bool,
}

/// A wake-up, and the facts from which the PU of the woken task follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WakeUp<'p> {
    pub loads: Loads<'p>,
    pub targets: &'p Targets,
    pub averages: &'p LoadAverages,
    pub now: Nanos,
    pub task: TaskNo,
    /// PU of the task's last run.
    pub previous: PuIdx,
    /// `None` for a timer.
    pub waker: Option<Waker>,
}

/// PU of a woken task.
pub(crate) fn wake_pu(wake_up: &WakeUp<'_>, rules: Wake, history: &mut WakeHistory) -> PuIdx {
    let Wake::IdleSibling { idle_cores, recent, affine } = rules else { return wake_up.previous };
    let mut target = wake_up.previous;
    if let Some(waker) = wake_up.waker {
        history.note(waker.task, wake_up.task, wake_up.now);
        if affine.is_some_and(|rules| wake_up.is_affine(rules, waker, history)) {
            target = waker.pu;
        }
    }
    if wake_up.is_idle(target) {
        return target;
    }
    if wake_up.is_idle_near(wake_up.previous, target) {
        return wake_up.previous;
    }
    let before = history.replace_recent(wake_up.task, wake_up.previous).filter(|_| recent);
    before
        .filter(|&pu| wake_up.is_idle_near(pu, target))
        .or_else(|| wake_up.idle_pu_near(target, idle_cores))
        .unwrap_or(target)
}

/// Whether two PUs are the same or under one last-level cache.
pub(crate) fn share_cache(machine: &Machine, a: PuIdx, b: PuIdx) -> bool {
    let cache = machine.last_level_cache(a);
    a == b || (cache.is_some() && cache == machine.last_level_cache(b))
}

impl WakeUp<'_> {
    /// Whether the waker's PU is the target (`wake_affine`).
    fn is_affine(&self, rules: WakeAffine, waker: Waker, history: &WakeHistory) -> bool {
        let pus = self.cache_pus(waker.pu);
        if rules.wide && history.is_wide(waker.task, self.task, pus) {
            return false;
        }
        let may_go = self.loads.pus.has(waker.pu) && self.targets.may_be_on(self.task, waker.pu);
        if waker.pu == self.previous || !may_go || self.is_far(waker.pu, rules.reclaim_distance) {
            return false;
        }
        // The waker has just left its PU.
        if self.loads.is_empty(waker.pu)
            && share_cache(self.loads.pus.machine(), waker.pu, self.previous)
        {
            return !self.loads.is_empty(self.previous);
        }
        let is_sync = rules.sync && waker.is_sync;
        if is_sync && self.loads.queues.load(waker.pu) == 1 {
            return true;
        }
        !self.loads.is_empty(self.previous) && rules.load && self.is_lighter(waker, is_sync)
    }

    /// Whether the waker's PU with the task would have a lower load average than the previous PU
    /// (`wake_affine_weight`).
    fn is_lighter(&self, waker: Waker, is_sync: bool) -> bool {
        let Self { averages, loads: Loads { queues, .. }, now, .. } = *self;
        let own = if is_sync { averages.task(queues, waker.task, now) } else { 0 };
        let task = averages.task(queues, self.task, now);
        let here = averages.pu(queues, waker.pu, now) - own + task;
        let there = averages.pu(queues, self.previous, now) - task;
        let machine = self.loads.pus.machine();
        let siblings = machine.core_of(waker.pu) == machine.core_of(self.previous);
        let bias = if siblings { SIBLING_BIAS } else { BIAS };
        // Of equal loads the waker's PU wins only if the waker is about to sleep.
        100 * here < bias * there + i64::from(is_sync)
    }

    /// Whether no domain up to a distance between nodes has both the previous PU and `pu`.
    fn is_far(&self, pu: PuIdx, reclaim_distance: u32) -> bool {
        let domains = &self.loads.pus.domains;
        let both = domains.over[pu.idx()].iter().map(|&domain| &domains.all[domain]);
        let mut both = both.filter(|domain| domain.pus.contains(&self.previous));
        !both.any(|domain| domain.distance.is_none_or(|far| far <= reclaim_distance))
    }

    /// An idle PU under the target's last-level cache, first of those after it.
    fn idle_pu_near(&self, target: PuIdx, idle_cores: bool) -> Option<PuIdx> {
        let machine = self.loads.pus.machine();
        let near = &machine.caches[machine.last_level_cache(target)?.idx()].pus;
        let from = near.iter().position(|&pu| pu == target).map_or(0, |at| at + 1);
        let (before, after) = near.split_at(from);
        let mut idle = after.iter().chain(before).copied().filter(|&pu| self.is_idle(pu));
        let first = idle.clone().next();
        let core = machine.core_of(self.previous);
        let sibling = idle.clone().find(|&pu| machine.core_of(pu) == core);
        let on_idle_core = idle.find(|&pu| idle_cores && self.loads.core(pu) == 0);
        on_idle_core.or(sibling).or(first)
    }

    /// Whether a PU is idle, and under the target's last-level cache.
    fn is_idle_near(&self, pu: PuIdx, target: PuIdx) -> bool {
        share_cache(self.loads.pus.machine(), pu, target) && self.is_idle(pu)
    }

    /// Whether a PU is allowed for the task, and has only fillers.
    fn is_idle(&self, pu: PuIdx) -> bool {
        let has_none = self.loads.pu(pu) == 0;
        has_none && self.loads.pus.has(pu) && self.targets.may_be_on(self.task, pu)
    }

    /// Number of usable PUs under the last-level cache of a PU.
    fn cache_pus(&self, pu: PuIdx) -> usize {
        let machine = self.loads.pus.machine();
        let Some(cache) = machine.last_level_cache(pu) else { return 1 };
        let pus = machine.caches[cache.idx()].pus.iter();
        pus.filter(|&&pu| self.loads.pus.has(pu)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotplug::UsablePus;
    use crate::queues::Queues;
    use crate::testing::{platform, scenario};
    use colocate_model::Phase;

    const WOKEN: TaskNo = 0;
    const WAKER: TaskNo = 1;
    const DEFAULT: WakeAffine =
        WakeAffine { sync: true, load: true, wide: true, reclaim_distance: 30 };

    /// The woken task, the waker and busy loops on the described EPYC 7301: PUs 0 and 1 are a core,
    /// 0 to 3 have a last-level cache, and from 32 on PUs are of the second socket.
    struct Situation {
        queues: Queues,
        averages: LoadAverages,
        history: WakeHistory,
        previous: PuIdx,
        waker: Option<Waker>,
    }

    impl Situation {
        /// The woken task last ran on `previous`; its waker runs on `waker` and is about to sleep.
        fn new(previous: u32, waker: Option<u32>, loops: &[u32]) -> Self {
            let tasks = 2 + loops.len();
            let mut queues = Queues::new(64, tasks, Nanos::from_millis(3));
            let mut averages = LoadAverages::new(tasks);
            queues.enqueue(WOKEN, PuIdx(previous));
            queues.dequeue(WOKEN);
            averages.begin(WOKEN, Nanos::ZERO);
            let waker = waker.map(PuIdx);
            let running = waker.map(|pu| (WAKER, pu)).into_iter();
            for (task, pu) in running.chain((2..).zip(loops.iter().copied().map(PuIdx))) {
                queues.enqueue(task, pu);
                averages.begin(task, Nanos::ZERO);
            }
            let waker = waker.map(|pu| Waker { task: WAKER, pu, is_sync: true });
            let history = WakeHistory::new(tasks);
            Self { queues, averages, history, previous: PuIdx(previous), waker }
        }

        /// The waker does not say that it is about to sleep.
        fn by_futex(mut self) -> Self {
            self.waker = self.waker.map(|waker| Waker { is_sync: false, ..waker });
            self
        }

        /// The woken task has slept for long.
        fn light(mut self) -> Self {
            self.averages.end(WOKEN);
            self
        }

        fn chosen(&mut self, affine: Option<WakeAffine>) -> u32 {
            let scenario = scenario(Phase::default(), false);
            let pus = UsablePus::new(platform(), &scenario);
            let targets = Targets::new(64);
            let wake_up = WakeUp {
                loads: Loads::new(&pus, &self.queues),
                targets: &targets,
                averages: &self.averages,
                now: Nanos::ZERO,
                task: WOKEN,
                previous: self.previous,
                waker: self.waker,
            };
            let rules = Wake::IdleSibling { idle_cores: true, recent: true, affine };
            wake_pu(&wake_up, rules, &mut self.history).0
        }

        fn goes_to(mut self) -> u32 {
            self.chosen(Some(DEFAULT))
        }
    }

    #[test]
    fn a_thread_without_a_waker_stays_near_its_last_pu() {
        assert_eq!(Situation::new(0, None, &[]).goes_to(), 0);
        assert_eq!(Situation::new(0, None, &[0]).goes_to(), 2, "the other core");
        assert_eq!(Situation::new(0, None, &[0, 2]).goes_to(), 1, "the sibling");
        assert_eq!(Situation::new(0, None, &[0, 1, 2]).goes_to(), 3, "the next");
        assert_eq!(Situation::new(0, None, &[0, 1, 2, 3]).goes_to(), 0, "none is idle");
    }

    #[test]
    fn under_one_cache_an_idle_pu_comes_before_the_wakers() {
        assert_eq!(Situation::new(2, Some(0), &[]).goes_to(), 2, "the previous PU");
        // The search is around the waker's PU, but no core is idle.
        assert_eq!(Situation::new(2, Some(0), &[2]).goes_to(), 3, "the sibling of the previous PU");
        assert_eq!(Situation::new(2, Some(0), &[1, 2, 3]).goes_to(), 0, "the waker is alone");
        assert_eq!(Situation::new(0, Some(0), &[1, 2, 3]).goes_to(), 0, "beside the waker");
        assert_eq!(Situation::new(0, Some(0), &[1]).goes_to(), 2, "an idle core");
    }

    /// With equal loads a busy previous PU stays.
    #[test]
    fn a_wake_up_that_is_not_synchronous_compares_loads() {
        assert_eq!(Situation::new(2, Some(0), &[1, 2, 3]).by_futex().goes_to(), 2);
        assert_eq!(Situation::new(2, Some(0), &[1, 2, 2, 3]).by_futex().goes_to(), 0, "two on it");
        let mut off = Situation::new(2, Some(0), &[1, 2, 2, 3]).by_futex();
        assert_eq!(off.chosen(Some(WakeAffine { load: false, ..DEFAULT })), 2);
    }

    #[test]
    fn beside_a_crowded_waker_loads_are_compared() {
        // 2 on each side but for the bias of 8 %: the loop and the woken task, or the loop.
        let full = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(Situation::new(4, Some(0), &full).goes_to(), 4);
        assert_eq!(Situation::new(4, Some(0), &full).light().goes_to(), 0);
        // The waker counts if it is not about to sleep.
        assert_eq!(Situation::new(4, Some(0), &full).light().by_futex().goes_to(), 4);
        assert_eq!(Situation::new(4, Some(0), &[0, 1, 4, 5, 6, 7]).light().goes_to(), 2, "idle");
    }

    #[test]
    fn the_target_decides_under_which_cache_an_idle_pu_is_searched() {
        assert_eq!(Situation::new(4, Some(0), &[]).goes_to(), 2, "the waker's cache");
        assert_eq!(Situation::new(4, Some(0), &[]).by_futex().goes_to(), 4, "idle");
        assert_eq!(Situation::new(4, Some(0), &[1, 2, 3]).goes_to(), 0, "full, and 4 is idle");
        assert_eq!(Situation::new(4, Some(0), &[4]).by_futex().goes_to(), 6, "equal loads");
        let mut off = Situation::new(4, Some(0), &[]);
        assert_eq!(off.chosen(Some(WakeAffine { sync: false, ..DEFAULT })), 4);
        assert_eq!(Situation::new(4, Some(0), &[]).chosen(None), 4);
        // Without the rule the search is near the previous PU.
        assert_eq!(Situation::new(4, Some(0), &[4]).chosen(None), 6);
    }

    #[test]
    fn a_thread_of_another_socket_stays_there() {
        assert_eq!(Situation::new(32, Some(0), &[]).goes_to(), 32);
        let mut near = Situation::new(32, Some(0), &[]);
        assert_eq!(near.chosen(Some(WakeAffine { reclaim_distance: 32, ..DEFAULT })), 2);
    }

    /// Under caches of four PUs a waker with 16 changes and a wakee with four are wide.
    #[test]
    fn threads_with_many_partners_stay() {
        let flipping = || {
            let mut situation = Situation::new(4, Some(0), &[]);
            (0..16).for_each(|wakee| situation.history.note(WAKER, wakee, Nanos::ZERO));
            (0..4).for_each(|wakee| situation.history.note(WOKEN, wakee, Nanos::ZERO));
            situation
        };
        assert_eq!(flipping().goes_to(), 4);
        assert_eq!(flipping().chosen(Some(WakeAffine { wide: false, ..DEFAULT })), 2);
        assert_eq!(Situation::new(4, Some(0), &[]).goes_to(), 2, "few partners");
    }

    #[test]
    fn a_recent_pu_comes_before_the_search() {
        let mut situation = Situation::new(0, Some(0), &[1, 2]);
        situation.history.replace_recent(WOKEN, PuIdx(3));
        assert_eq!(situation.chosen(Some(DEFAULT)), 3);
        // The PU of the last run is the recent one now.
        assert_eq!(situation.history.replace_recent(WOKEN, PuIdx(3)), Some(PuIdx(0)));
        let mut far = Situation::new(0, Some(0), &[1]);
        far.history.replace_recent(WOKEN, PuIdx(4));
        assert_eq!(far.chosen(Some(DEFAULT)), 2, "another cache");
    }

    /// A wake-up in an interrupt finds the PU idle: only under the same cache, and only if the
    /// previous PU is busy.
    #[test]
    fn an_idle_waker_pu_draws_from_a_busy_one() {
        let idle = |previous, loops: &[u32]| {
            let mut situation = Situation::new(previous, Some(0), loops).by_futex();
            situation.queues.dequeue(WAKER);
            situation.goes_to()
        };
        assert_eq!([idle(2, &[2]), idle(2, &[]), idle(4, &[4])], [0, 2, 6]);
    }
}
