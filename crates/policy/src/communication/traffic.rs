//! Wake-up rates between tasks, wake-up latency and simultaneous run time, from cumulative sums.
//!
//! A pair on a single PU has short waits and never runs at the same time, so observations there do
//! not predict the pair on two PUs.
//!
//! Exponentially weighted means with time constant [`MEMORY`]. Wake-up rates are always updated.
//! Latency and simultaneous run time are updated only while the pair is on two PUs often enough:
//! the kernel, too, puts a pair on a single PU for moments. On a single PU the pair wakes up to ten
//! times as often, so few wake-ups between PUs can be most of the time. Wake-ups that end on the
//! waker's PU count with the cost of such a wake-up: longer waits are for other tasks. A task on a
//! shared PU is no busier than before: there it also waits for its waker.
//!
//! Turns, from a wake-up until the woken task wakes its waker or sleeps, are measured on one PU and
//! on two. Their difference is the true price of a wake-up between PUs, and takes the place of the
//! wait's as soon as both are known ([`TurnLengths`]). The kernel's own placements give some turns
//! of either kind, and trials of a policy the rest. Only wake-ups that the kernel itself does not
//! keep on the waker's PU are counted as saved.

use super::ByTask;
use crate::evidence::QueuedJob;
use colocate_evidence::{TaskId, Turns, WakeUps};
use colocate_machine::Nanos;
use colocate_machine::calibrated::PuDistance;
use colocate_model::communication::{Exchange, WakeUpCosts};

/// Time constant of the means in seconds (weight 1/e). Chosen: a server's load changes within
/// seconds, and a placement should follow within half a second.
const MEMORY: f64 = 0.3;
/// Shortest interval for an update, in seconds. Chosen: most of a quantum of the guard.
const SHORTEST: f64 = 0.04;
/// The same for the first rates. Chosen: pairs that gain much have hundreds of wake-ups in it.
const SHORTEST_FIRST: f64 = 0.02;
/// Loss by wake-ups between PUs that is much, in seconds a second. Chosen: all the time of a pair.
const MUCH: f64 = 1.0;
/// A pair pinned to a single PU counts as apart below this part of wake-ups on the waker's PU.
const APART: f64 = 0.5;
/// A pair placed by the kernel counts as apart below this part of wake-ups on the waker's PU.
/// Chosen: with wake-ups that take ten times as long between PUs, half of the time.
const OFTEN_APART: f64 = 0.9;

/// Time that a wake-up on another PU costs beyond the wait for that PU, in seconds: the waker's
/// system call takes longer, and the woken task's data are in another cache. Counts until there are
/// turns on one PU. Chosen: a third of the least difference that turns of a bare pair showed in all,
/// 5 to 11 µs where the guest polls before it halts a PU and 9 to 54 µs otherwise (a virtual machine
/// with 2 PUs, AMD EPYC, Linux 6.18).
const BEYOND_WAIT: f64 = 2e-6;
/// Least number of turns between two samples for a mean. Chosen: a pair for which less is known has
/// no wake-ups worth a placement.
const FEWEST_TURNS: f64 = 8.0;
/// Least part of a direction's turns between two samples for a mean. Chosen: the few turns that are on
/// other PUs than most are longer, because something has displaced them.
const LEAST_PART: f64 = 0.2;
/// Number of turns on either side from which on nothing but their means counts. Chosen: while a pair
/// is moved, dozens of turns may be many times as long as usual.
const SURE_TURNS: f64 = 400.0;
/// Time after which turns on one PU are forgotten that nothing has shown since, if the policy had put
/// the pair there. Chosen: a trial of some quanta costs a hundredth of it.
const TURNS_LAST: Nanos = Nanos::from_secs(10);
/// The same where the kernel had. Chosen: shorter, because the kernel often does so for moments in
/// which other tasks displace the pair, and its turns are longer.
const KERNELS_TURNS_LAST: Nanos = Nanos::from_millis(500);

/// Place that a policy gives a task of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairPlace {
    /// None: the kernel places it.
    Kernels,
    /// The PU of its partner.
    OnePu,
    /// A part of the machine with its partner: what is measured there says little of other places.
    Near,
}

/// Pair of tasks, the lesser first.
pub type Two = (TaskId, TaskId);

/// Wake-up statistics of pairs, and busy shares of tasks.
#[derive(Clone, Debug, Default)]
pub struct WakeUpTraffic {
    at: Option<Nanos>,
    /// Two samples have been noted.
    has_rates: bool,
    /// Sorted by pair.
    pairs: Vec<PairTraffic>,
    busy: ByTask<f64>,
    /// Memory of the sample before, for the next one.
    spare: Vec<PairTraffic>,
}

/// Pair with its sums at the last sample; `exchange` is `None` until the second sample.
#[derive(Clone, Debug, PartialEq)]
struct PairTraffic {
    two: Two,
    sums: PairSums,
    turns: TurnSums,
    lengths: TurnLengths,
    /// Share of wake-ups between PUs while the kernel places the pair; `None` until seen.
    crossing: Option<f64>,
    exchange: Option<Exchange>,
}

impl PairTraffic {
    fn new(two: Two) -> Self {
        Self {
            two,
            sums: PairSums::default(),
            turns: TurnSums::default(),
            lengths: TurnLengths::default(),
            crossing: None,
            exchange: None,
        }
    }
}

/// Sums of turns, by direction and by place: apart, together.
type TurnSums = [[TurnSum; 2]; 2];

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TurnSum {
    count: f64,
    seconds: f64,
}

impl TurnSum {
    fn of(turns: Option<Turns>) -> Self {
        let turns = turns.unwrap_or_default();
        Self { count: turns.count as f64, seconds: turns.total.as_secs_f64() }
    }

    fn since(self, before: Self) -> Self {
        Self { count: self.count - before.count, seconds: self.seconds - before.seconds }
    }

    fn plus(self, other: Self) -> Self {
        Self { count: self.count + other.count, seconds: self.seconds + other.seconds }
    }

    /// This sum with a weight.
    fn times(self, weight: f64) -> Self {
        Self { count: self.count * weight, seconds: self.seconds * weight }
    }

    /// Whether there are enough of `all` turns for a mean.
    fn is_enough(self, all: f64) -> bool {
        self.count >= FEWEST_TURNS && self.count >= LEAST_PART * all
    }
}

/// Mean length of turns of one direction in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TurnLength {
    /// The turns so far, older ones with less weight. So a few odd turns do not outweigh the many
    /// of the next sample.
    sum: TurnSum,
    /// Last sample with enough turns.
    at: Nanos,
    /// Time at which they are forgotten.
    until: Nanos,
}

impl TurnLength {
    /// Takes in the turns between two samples, which are forgotten after some time.
    fn note(&mut self, at: Nanos, passed: TurnSum, all: f64, last: Nanos) {
        if at > self.until {
            *self = Self::default();
        }
        if passed.is_enough(all) {
            let age = at.saturating_sub(self.at).as_secs_f64();
            self.sum = self.sum.times((-age / MEMORY).exp()).plus(passed);
            self.at = at;
            self.until = self.until.max(at + last);
        }
    }

    /// In seconds; `None` without turns.
    fn mean(self) -> Option<f64> {
        (self.sum.count > 0.0).then(|| self.sum.seconds / self.sum.count)
    }
}

/// Mean lengths of turns, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TurnLengths {
    apart: [TurnLength; 2],
    together: [TurnLength; 2],
}

impl TurnLengths {
    /// Takes in the turns between two samples, unless the policy has the pair near each other.
    fn note(&mut self, at: Nanos, turns: &TurnSums, before: &TurnSums, place: PairPlace) {
        let together_last = match place {
            PairPlace::Kernels => KERNELS_TURNS_LAST,
            PairPlace::OnePu => TURNS_LAST,
            PairPlace::Near => return,
        };
        for direction in 0..2 {
            let [apart, together] =
                [0, 1].map(|place| turns[direction][place].since(before[direction][place]));
            let all = apart.count + together.count;
            self.apart[direction].note(at, apart, all, Nanos(u64::MAX));
            self.together[direction].note(at, together, all, together_last);
        }
    }

    fn are_known_apart(&self) -> bool {
        self.apart.iter().any(|length| length.mean().is_some())
    }

    /// Mean time by which a turn is shorter on one PU, over the directions for which both are known,
    /// and the least number of turns behind it. On one PU a task that is preempted by its partner
    /// need not sleep for the answer: then one direction has no turns there.
    fn saved(&self) -> Option<(f64, f64)> {
        let (mut least, mut sum, mut known) = (f64::INFINITY, 0.0, 0.0);
        for (apart, together) in self.apart.iter().zip(&self.together) {
            let (Some(there), Some(here)) = (apart.mean(), together.mean()) else { continue };
            sum += there - here;
            known += 1.0;
            least = least.min(apart.sum.count).min(together.sum.count);
        }
        (known > 0.0).then(|| (sum / known, least))
    }
}

/// Sums over both directions; `waited` and `both_ran` in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct PairSums {
    count: f64,
    same_pu: f64,
    waited: f64,
    both_ran: f64,
}

impl PairSums {
    fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            same_pu: self.same_pu + other.same_pu,
            waited: self.waited + other.waited,
            both_ran: self.both_ran + other.both_ran,
        }
    }

    fn over(self, seconds: f64) -> Self {
        Self {
            count: self.count / seconds,
            same_pu: self.same_pu / seconds,
            waited: self.waited / seconds,
            both_ran: self.both_ran / seconds,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            count: self.count - before.count,
            same_pu: self.same_pu - before.same_pu,
            waited: self.waited - before.waited,
            both_ran: self.both_ran - before.both_ran,
        }
    }
}

impl WakeUpTraffic {
    /// Adds a sample of the sums and of the threads' busy shares. `place` is that which the policy
    /// gives a task with its partners. False for the first sample, and for a sample too soon after
    /// the last, which is dropped.
    pub fn note(
        &mut self,
        at: Nanos,
        wake_ups: &[WakeUps],
        queue: &[QueuedJob],
        place: impl Fn(TaskId) -> PairPlace,
        costs: &WakeUpCosts,
    ) -> bool {
        let Some(before) = self.at else {
            let mut pairs = pairs(wake_ups, Vec::new());
            // Sums of turns begin at 0, and their means need no interval.
            for pair in &mut pairs {
                pair.lengths.note(at, &pair.turns, &TurnSums::default(), place(pair.two.0));
            }
            self.at = Some(at);
            self.pairs = pairs;
            return false;
        };
        let seconds = at.saturating_sub(before).as_secs_f64();
        let shortest = if self.has_rates { SHORTEST } else { SHORTEST_FIRST };
        if seconds < shortest {
            return false;
        }
        let mut pairs = pairs(wake_ups, std::mem::take(&mut self.spare));
        // Weight of an interval of any length; the first sample counts fully.
        let weight = if self.busy.is_empty() { 1.0 } else { 1.0 - (-seconds / MEMORY).exp() };
        let mut before = self.pairs.iter().peekable();
        for pair in &mut pairs {
            // Both lists are sorted by pair: a merge in one pass.
            while before.next_if(|old| old.two < pair.two).is_some() {}
            let old = before.next_if(|old| old.two == pair.two);
            let passed = pair.sums.since(old.map(|old| old.sums).unwrap_or_default());
            let known = old.and_then(|old| old.exchange);
            let mut exchange = known.unwrap_or_default();
            let place = place(pair.two.0);
            // A new pair has no past to average with.
            let weight = if known.is_some() { weight } else { 1.0 };
            take(&mut exchange, passed.over(seconds), weight, place, costs);
            exchange.counted_for += seconds;
            pair.lengths = old.map(|old| old.lengths).unwrap_or_default();
            let turns_before = old.map(|old| old.turns).unwrap_or_default();
            pair.lengths.note(at, &pair.turns, &turns_before, place);
            pair.crossing = old.and_then(|old| old.crossing);
            if place == PairPlace::Kernels && passed.count > 0.0 {
                let now = 1.0 - passed.same_pu / passed.count;
                let before = pair.crossing.unwrap_or(now);
                pair.crossing = Some(before + weight * (now - before));
            }
            let crossing = pair.crossing.unwrap_or(1.0);
            // The mean wait counts wake-ups on the waker's PU already.
            let wait = exchange.wait.min(costs.most());
            let expected = wait - costs.of(PuDistance::SamePu) + BEYOND_WAIT * crossing;
            exchange.saved = match pair.lengths.saved() {
                Some((saved, turns)) => {
                    let sure = (turns / SURE_TURNS).min(1.0);
                    Some(sure * saved * crossing + (1.0 - sure) * expected.max(0.0))
                }
                None => pair.lengths.are_known_apart().then_some(expected),
            };
            pair.exchange = Some(exchange);
        }
        self.note_busy(queue, weight, |task| place(task) == PairPlace::OnePu);
        self.at = Some(at);
        self.spare = std::mem::replace(&mut self.pairs, pairs);
        self.has_rates = true;
        true
    }

    fn note_busy(&mut self, queue: &[QueuedJob], weight: f64, shares: impl Fn(TaskId) -> bool) {
        let threads = queue.iter().flat_map(|job| &job.threads);
        let now: ByTask<f64> =
            threads.filter_map(|thread| Some((thread.id, thread.runnable?))).collect();
        for (task, busy) in &mut self.busy {
            // A task that is not seen now is idle or has ended.
            let new = *busy + weight * (now.get(task).copied().unwrap_or(0.0) - *busy);
            // On a shared PU the runnable time includes the wait for the waker.
            *busy = if shares(*task) { new.min(*busy) } else { new };
        }
        // Ended tasks decay to nothing and are dropped.
        self.busy.retain(|task, busy| *busy > 1e-3 || now.contains_key(task));
        for (task, busy) in now {
            self.busy.entry(task).or_insert(busy);
        }
    }

    /// True until rates are known.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        !self.has_rates
    }

    /// Gain of tasks by sharing a PU, in seconds a second.
    pub fn gain(&self, tasks: &[TaskId], costs: &WakeUpCosts) -> f64 {
        self.pairs_of(tasks).map(|pair| pair.gain_together(costs)).sum()
    }

    /// Share of the time in which tasks on one PU wait for each other: that in which pairs were seen
    /// to run both on two PUs, or more, if several tasks work independently of each other.
    pub fn overlap(&self, tasks: &[TaskId]) -> f64 {
        let both_run = self.pairs_of(tasks).map(|pair| pair.both_run).sum::<f64>();
        if tasks.len() <= 2 {
            return both_run;
        }
        let busy: f64 = tasks.iter().map(|task| self.busy(*task)).sum();
        let none_busy: f64 = tasks.iter().map(|task| 1.0 - self.busy(*task)).product();
        both_run.max(busy - (1.0 - none_busy))
    }

    /// Pairs among some tasks.
    fn pairs_of(&self, tasks: &[TaskId]) -> impl Iterator<Item = &Exchange> {
        let is_of = |(a, b): &Two| tasks.contains(a) && tasks.contains(b);
        self.pairs().filter(move |(two, _)| is_of(two)).map(|(_, exchange)| exchange)
    }

    /// Whether the kernel keeps a pair on one PU most of the time that would lose much on two. It may
    /// cease to at any moment. `share` is true for two tasks that the policy has on one PU.
    pub fn depends_on_kernel(&self, costs: &WakeUpCosts, share: impl Fn(Two) -> bool) -> bool {
        let each = costs.most() - costs.of(PuDistance::SamePu);
        let mut kept = self.pairs.iter().filter(|pair| {
            pair.crossing.is_some_and(|part| part < APART)
                && pair.exchange.is_some_and(|it| it.per_second * each >= MUCH)
        });
        kept.any(|pair| !share(pair.two))
    }

    /// Whether turns of two tasks that share a PU are known on two PUs alone, so that the price of
    /// their wake-ups is an expectation.
    pub fn expects(&self, share: impl Fn(Two) -> bool) -> bool {
        let mut expected = self
            .pairs
            .iter()
            .filter(|pair| pair.lengths.are_known_apart() && pair.lengths.saved().is_none());
        expected.any(|pair| share(pair.two))
    }

    /// Fixed statistics, for tests.
    #[cfg(test)]
    pub(crate) fn of(
        pairs: impl Iterator<Item = (Two, Exchange)>,
        busy: impl Iterator<Item = (TaskId, f64)>,
    ) -> Self {
        let pairs = pairs.map(|(two, exchange)| PairTraffic {
            exchange: Some(exchange),
            ..PairTraffic::new(two)
        });
        Self { pairs: pairs.collect(), busy: busy.collect(), ..Self::default() }
    }

    /// Pairs with their exchange.
    pub fn pairs(&self) -> impl Iterator<Item = (Two, &Exchange)> {
        self.pairs.iter().filter_map(|pair| Some((pair.two, pair.exchange.as_ref()?)))
    }

    /// Busy share of a task: on a PU or waiting for a PU; `None`: not seen.
    #[must_use]
    pub fn known_busy(&self, task: TaskId) -> Option<f64> {
        self.busy.get(&task).copied()
    }

    /// Busy share of a task; 0 if not seen.
    #[must_use]
    pub fn busy(&self, task: TaskId) -> f64 {
        self.known_busy(task).unwrap_or(0.0)
    }
}

/// The two tasks of a wake-up; `None` if the waker is unknown or wakes itself.
fn pair_of(one: &WakeUps) -> Option<Two> {
    let waker = one.waker.filter(|waker| *waker != one.wakee)?;
    Some((waker.min(one.wakee), waker.max(one.wakee)))
}

/// Sort key in the order of pairs.
fn key((a, b): Two) -> u128 {
    let [a, b] = [a, b].map(|task| u128::from(task.job.0) << 32 | u128::from(task.order));
    a << 64 | b
}

/// Merges both directions of a pair; sorted by pair, in the memory of `pairs`.
fn pairs(wake_ups: &[WakeUps], mut pairs: Vec<PairTraffic>) -> Vec<PairTraffic> {
    // Integers sort faster than pairs: smaller, and compared in one step.
    let mut order: Vec<(u128, usize)> =
        wake_ups.iter().zip(0..).filter_map(|(one, at)| Some((key(pair_of(one)?), at))).collect();
    order.sort_unstable();
    pairs.clear();
    pairs.reserve(order.len());
    for one in order.into_iter().map(|(_, at)| &wake_ups[at]) {
        let Some(two) = pair_of(one) else { continue };
        let sums = PairSums {
            count: one.count as f64,
            same_pu: one.same_pu.unwrap_or(0) as f64,
            waited: one.waited.unwrap_or_default().as_secs_f64(),
            both_ran: one.both_ran.unwrap_or_default().as_secs_f64(),
        };
        if pairs.last().is_none_or(|last| last.two != two) {
            pairs.push(PairTraffic::new(two));
        }
        let Some(pair) = pairs.last_mut() else { continue };
        pair.sums = pair.sums.plus(sums);
        let direction = usize::from(one.wakee == two.0);
        pair.turns[direction] = [one.turns_apart, one.turns_together].map(TurnSum::of);
    }
    pairs
}

/// Updates the means by rates per second. Times are updated only of a pair that counts as apart.
fn take(pair: &mut Exchange, passed: PairSums, weight: f64, place: PairPlace, costs: &WakeUpCosts) {
    pair.per_second += weight * (passed.count - pair.per_second);
    let apart = match place {
        PairPlace::Kernels => OFTEN_APART,
        PairPlace::OnePu => APART,
        PairPlace::Near => return,
    };
    if passed.count > 0.0 && passed.same_pu < apart * passed.count {
        let here = costs.of(PuDistance::SamePu);
        let there = passed.count - passed.same_pu;
        // A longer wait is for a PU that another task has, not for the wake-up.
        let each = ((passed.waited - passed.same_pu * here) / there).clamp(here, costs.most());
        let wait = here + (each - here) * there / passed.count;
        pair.wait += weight * (wait - pair.wait);
        pair.both_run += weight * (passed.both_ran.min(1.0) - pair.both_run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_evidence::JobIdx;

    fn task(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    fn wakes(count: u64, same_pu: u64, waited_us: u64, both_ran_us: u64) -> [WakeUps; 1] {
        [WakeUps {
            waker: Some(task(1)),
            wakee: task(0),
            count,
            same_pu: Some(same_pu),
            waited: Some(Nanos(waited_us * 1_000)),
            both_ran: Some(Nanos(both_ran_us * 1_000)),
            turns_apart: None,
            turns_together: None,
        }]
    }

    fn turns(count: u64, us: u64) -> Turns {
        Turns { count, total: Nanos(count * us * 1_000) }
    }

    fn turn_sum(count: u64, us: u64) -> TurnSum {
        TurnSum::of(Some(turns(count, us)))
    }

    /// Mean length in whole µs after one sample with turns of 2 µs.
    fn mean_of(count: u64, all: f64) -> Option<f64> {
        let mut length = TurnLength::default();
        length.note(Nanos::from_millis(100), turn_sum(count, 2), all, TURNS_LAST);
        length.mean().map(|seconds| (seconds * 1e6).round())
    }

    fn noted(traffic: &mut WakeUpTraffic, at: Nanos, wake_ups: &[WakeUps]) -> bool {
        traffic.note(at, wake_ups, &[], |_| PairPlace::Kernels, &WakeUpCosts::default())
    }

    fn only(traffic: &WakeUpTraffic) -> Exchange {
        *traffic.pairs().next().unwrap().1
    }

    /// 1,000 wake-ups of 50 µs in 0.1 s, 10 ms of which both ran; then on one PU, faster.
    #[test]
    fn what_is_seen_on_one_pu_says_nothing_of_two() {
        let mut traffic = WakeUpTraffic::default();
        assert!(!noted(&mut traffic, Nanos::ZERO, &wakes(0, 0, 0, 0)));
        assert!(!noted(&mut traffic, Nanos::from_millis(10), &wakes(100, 0, 5_000, 1_000)));
        assert!(noted(&mut traffic, Nanos::from_millis(100), &wakes(1_000, 0, 50_000, 10_000)));
        let apart = only(&traffic);
        assert!((apart.per_second - 10_000.0).abs() < 1e-6);
        assert!((apart.wait - 50e-6).abs() < 1e-9 && (apart.both_run - 0.1).abs() < 1e-9);
        assert!(noted(
            &mut traffic,
            Nanos::from_millis(600),
            &wakes(26_000, 25_000, 100_000, 10_000)
        ));
        let together = only(&traffic);
        assert!(together.per_second > 40_000.0, "{together:?}");
        assert_eq!((together.wait, together.both_run), (apart.wait, apart.both_run));
        assert!((together.counted_for - 0.6).abs() < 1e-9);
    }

    /// 40 turns on one PU are ten times as long as on two, and count for a tenth. Of 140 wake-ups 100 wait for 24 instead of 4 µs:
    /// 0.9 · (14.3 + 1.4) - 0.1 · 128.6 µs are saved.
    #[test]
    fn few_turns_count_for_little() {
        let mut traffic = WakeUpTraffic::default();
        noted(&mut traffic, Nanos::ZERO, &wakes(0, 0, 0, 0));
        let [one] = wakes(140, 40, 2_560, 0);
        let seen = WakeUps {
            turns_apart: Some(turns(100, 20)),
            turns_together: Some(turns(40, 200)),
            ..one
        };
        noted(&mut traffic, Nanos::from_millis(100), &[seen]);
        let saved = only(&traffic).saved.unwrap();
        assert!((1.28e-6..1.29e-6).contains(&saved), "{saved}");
    }

    /// Ten turns of a hundred are too few for a mean, and seven of seven.
    #[test]
    fn a_mean_is_of_many_turns() {
        let means = [mean_of(10, 100.0), mean_of(7, 7.0), mean_of(20, 100.0)];
        assert_eq!(means, [None, None, Some(2.0)]);
    }

    /// 40 turns of 200 µs, as one that was displaced for 8 ms gives, then 1,300 of 2 µs 0.2 s later.
    #[test]
    fn few_odd_turns_are_outweighed() {
        let mut length = TurnLength::default();
        length.note(Nanos::from_millis(600), turn_sum(40, 200), 89.0, TURNS_LAST);
        length.note(Nanos::from_millis(800), turn_sum(1_300, 2), 3_500.0, TURNS_LAST);
        let mean = length.mean().unwrap();
        let expected =
            ((-2.0_f64 / 3.0).exp() * 8e-3 + 2.6e-3) / ((-2.0_f64 / 3.0).exp() * 40.0 + 1_300.0);
        assert!((mean - expected).abs() < 1e-12 && mean < 6e-6, "{mean}");
    }

    /// 100,000 wake-ups a second on one PU would be more than all the time on two; 1,000 would not.
    #[test]
    fn what_depends_on_the_kernel() {
        let costs = WakeUpCosts::default();
        let mut seen = Vec::new();
        for (count, same_pu) in [(10_000, 9_000), (10_000, 1_000), (100, 100)] {
            let mut traffic = WakeUpTraffic::default();
            noted(&mut traffic, Nanos::ZERO, &wakes(0, 0, 0, 0));
            noted(&mut traffic, Nanos::from_millis(100), &wakes(count, same_pu, 0, 0));
            seen.push(traffic.depends_on_kernel(&costs, |_| false));
            assert!(!traffic.depends_on_kernel(&costs, |_| true));
        }
        assert_eq!(seen, [true, false, false]);
    }

    /// 10,000 wake-ups a second, 9,000 of which the kernel keeps on the waker's PU: the others
    /// would save 15 µs each.
    #[test]
    fn what_the_kernel_does_itself_is_no_gain() {
        let mut traffic = WakeUpTraffic::default();
        noted(&mut traffic, Nanos::ZERO, &wakes(0, 0, 0, 0));
        for (ms, all, together) in [(100, 1_000, 500), (200, 2_000, 1_400), (3_000, 30_000, 26_600)]
        {
            let [one] = wakes(all, together, 0, 0);
            let turns_apart = Some(turns(all - together, 20));
            let turns_together = Some(turns(together, 5));
            let seen = [WakeUps { turns_apart, turns_together, ..one }];
            noted(&mut traffic, Nanos::from_millis(ms), &seen);
        }
        let saved = only(&traffic).saved.unwrap();
        assert!((saved - 1.5e-6).abs() < 1e-8, "{saved}");
    }

    /// Nothing but the rate is news of a pair that the policy has near each other.
    #[test]
    fn near_each_other_little_is_learned() {
        let costs = WakeUpCosts::default();
        let mut traffic = WakeUpTraffic::default();
        noted(&mut traffic, Nanos::ZERO, &wakes(0, 0, 0, 0));
        noted(&mut traffic, Nanos::from_millis(100), &wakes(1_000, 0, 50_000, 0));
        let before = only(&traffic);
        let near = wakes(1_100, 0, 51_000, 90);
        traffic.note(Nanos::from_millis(200), &near, &[], |_| PairPlace::Near, &costs);
        let after = only(&traffic);
        assert!(after.per_second < before.per_second, "{after:?}");
        assert_eq!((after.wait, after.both_run), (before.wait, before.both_run));
    }

    /// Turns of 20 µs apart and of 5 µs together by the policy, one direction only; the other has none together. Without turns
    /// on one PU for longer than they are kept, the wait shows what is saved.
    #[test]
    fn turns_tell_what_is_saved() {
        let sums = |apart, together| {
            let [there] = wakes(apart + together, together, apart * 4, 0);
            let back = WakeUps { waker: Some(task(0)), wakee: task(1), ..there };
            let there = WakeUps {
                turns_apart: Some(turns(apart, 20)),
                turns_together: Some(turns(together, 5)),
                ..there
            };
            [there, WakeUps { turns_apart: Some(turns(apart, 30)), ..back }]
        };
        let mut traffic = WakeUpTraffic::default();
        noted(&mut traffic, Nanos::ZERO, &sums(0, 0));
        let mut saves = |ms, apart, together, expected: f64| {
            let sums = sums(apart, together);
            let place = if together > 0 { PairPlace::OnePu } else { PairPlace::Kernels };
            let costs = WakeUpCosts::default();
            traffic.note(Nanos::from_millis(ms), &sums, &[], |_| place, &costs);
            let saved = only(&traffic).saved;
            assert!(saved.is_some_and(|saved| (saved - expected).abs() < 1e-9), "{ms} {saved:?}");
        };
        saves(100, 1_000, 0, BEYOND_WAIT);
        saves(200, 1_000, 1_000, 15e-6);
        saves(10_000, 9_000, 1_000, 15e-6);
        saves(11_000, 10_000, 1_000, BEYOND_WAIT);
    }

    /// Until the first sample the kernel has the pair on one PU, with turns of 2 µs. As it ceases to, 400 turns of 140 µs end, which
    /// alone would show that one PU is worse.
    #[test]
    fn the_kernels_moments_on_one_pu_are_soon_forgotten() {
        let sums = |apart, together, odd| {
            let [one] = wakes(apart + together + odd, together + odd, apart * 20, 0);
            let mut turns_together = turns(together, 2);
            turns_together.count += odd;
            turns_together.total += turns(odd, 140).total;
            let turns_apart = Some(turns(apart, 30));
            [WakeUps { turns_apart, turns_together: Some(turns_together), ..one }]
        };
        for (at_first, saved) in [(3_000, true), (0, false)] {
            let mut traffic = WakeUpTraffic::default();
            noted(&mut traffic, Nanos::ZERO, &sums(0, at_first, 0));
            noted(&mut traffic, Nanos::from_millis(100), &sums(600, at_first, 400));
            let exchange = only(&traffic);
            assert_eq!(exchange.saved.is_some_and(|each| each > 0.0), saved, "{exchange:?}");
            noted(&mut traffic, Nanos::from_millis(700), &sums(1_200, at_first, 400));
            let exchange = only(&traffic);
            assert!(exchange.saved.is_some_and(|each| each > 0.0), "{exchange:?}");
        }
    }

    /// 7,000 of 10,000 wake-ups a second end on the waker's PU, at 4 µs: the others take 24. They lose 3,000 × 20 µs, also if these wait
    /// for a PU that others have.
    #[test]
    fn moments_on_one_pu_leave_what_is_lost_between_two() {
        let costs = WakeUpCosts::default();
        for (waited, lost) in [(10_000, 0.06), (90_000, 3_000.0 * 46e-6)] {
            let mut traffic = WakeUpTraffic::default();
            noted(&mut traffic, Nanos::ZERO, &wakes(0, 0, 0, 0));
            let seen = wakes(1_000, 700, waited, 0);
            assert!(noted(&mut traffic, Nanos::from_millis(100), &seen));
            assert!((only(&traffic).gain_together(&costs) - lost).abs() < 1e-9, "{traffic:?}");
        }
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let mut traffic = WakeUpTraffic::default();
        noted(&mut traffic, Nanos::ZERO, &wakes(0, 0, 0, 0));
        noted(&mut traffic, Nanos::from_millis(100), &wakes(1_000, 0, 50_000, 0));
        noted(&mut traffic, Nanos::from_secs(3), &wakes(1_000, 0, 50_000, 0));
        assert!(only(&traffic).per_second < 10.0);
        noted(&mut traffic, Nanos::from_secs(4), &[]);
        assert_eq!(traffic.pairs().count(), 0);
    }
}
