//! Which new threads are reported one by one, where a program creates too many for that.
//!
//! # Problem
//! To follow a thread costs a reader some system calls, and more CPU time than to create one that does nothing. A program
//! that creates threads as fast as it can would make its reader use many times its own CPU time.
//! # Approach
//! Of each given program, with all that it creates, a number of new threads a second is reported at
//! once, and in addition as many as a large pool of threads has. Above that is a *storm*: as long as it lasts, a new
//! thread is only recorded. Those that have lived for a while are reported later, oldest first, at the same rate. Most
//! have ended by then, and cost no more than being recorded. New processes count as well, and are always reported: to
//! create one costs the program more than its reader, as long as the reader is not woken for each.
//! # Properties
//! - **Pools are no storms**: the threads of a pool are all reported at once. -> test `a_pool_is_reported_at_once`
//! - **Bounded**: above the rate nothing is reported. -> test `a_storm_is_not_reported`
//! - **Complete**: what lives on is reported, and a storm that is over leaves no trace. -> test `what_lives_on_comes_later`

use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Threads created at once without a storm. Chosen: pools have one or a few for each PU.
pub const BURST: u64 = 1_000;

/// Lifetime from which a thread of a storm is reported. Chosen: below, placing is not worth it.
const LIVED: Nanos = Nanos::from_millis(100);

/// Time between two reports of a storm's threads: a batch costs readers less. Chosen.
const LATE_EVERY: Nanos = Nanos::from_millis(500);

/// Threads of one given process and its descendants.
#[derive(Debug, Default)]
struct Family {
    /// Theoretical arrival time: the time at which all creations would have happened at the rate.
    even: Nanos,
    /// Next report of hidden threads.
    next_late: Nanos,
    /// Unreported threads with the times of their creation, oldest first.
    hidden: VecDeque<(Tid, Nanos)>,
    /// Whether a storm is in progress, and below the processes whose threads were hidden in it.
    is_on: bool,
    creators: BTreeSet<Pid>,
}

impl Family {
    /// Records a creation at `at` and returns whether it is within the rate and its burst, by a
    /// generic cell rate algorithm. Those beyond count as well, so none is allowed while too many
    /// happen.
    fn allows(&mut self, at: Nanos, every: Nanos) -> bool {
        let most = at + Nanos(every.0.saturating_mul(BURST));
        let next = self.even.max(at) + every;
        // The cap bounds the time from the last creation to the end of the storm.
        self.even = next.min(most + LIVED);
        next <= most
    }

    fn end(&mut self) {
        self.is_on = false;
        self.creators.clear();
    }
}

/// Treatment of a creation event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTreatment {
    /// Reported.
    Report,
    /// Hidden, as earlier threads of its process were.
    Hide,
    /// Hidden, the first of its process in this storm.
    HideFirst,
}

/// Rate limits of reports, and the processes that have exceeded them.
#[derive(Debug)]
pub struct Storms {
    /// Time between two threads at the rate; `None` if all are reported.
    every: Option<Nanos>,
    of: BTreeMap<Pid, Family>,
}

impl Storms {
    /// Reports at most this many new threads a second of each given process; `None` for all.
    pub fn new(most_a_second: Option<u32>) -> Self {
        let every = most_a_second.map(|most| Nanos(1_000_000_000 / u64::from(most.max(1))));
        Self { every, of: BTreeMap::new() }
    }

    /// Reports every thread from now on.
    pub fn report_all(&mut self) {
        self.every = None;
    }

    /// Whether a storm is in progress.
    pub fn is_any(&self) -> bool {
        self.of.values().any(|family| family.is_on)
    }

    /// Decides on a thread of process `pid`, a descendant of `root`.
    pub fn created(&mut self, root: Pid, pid: Pid, tid: Tid, at: Nanos) -> EventTreatment {
        let Some(every) = self.every else { return EventTreatment::Report };
        let family = self.of.entry(root).or_default();
        let may = family.allows(at, every);
        // As long as others wait, they are first.
        if may && family.hidden.is_empty() {
            family.end();
            return EventTreatment::Report;
        }
        family.is_on = true;
        if tid == pid.first_thread() {
            return EventTreatment::Report;
        }
        family.hidden.push_back((tid, at));
        if family.creators.insert(pid) { EventTreatment::HideFirst } else { EventTreatment::Hide }
    }

    /// Hidden threads to be reported at `at`. `lives` is whether a thread has not ended.
    pub fn due(&mut self, at: Nanos, lives: impl Fn(Tid) -> bool) -> Vec<Tid> {
        let mut due = Vec::new();
        for family in self.of.values_mut() {
            let mut room = match self.every {
                None => u64::MAX,
                Some(_) if at < family.next_late => 0,
                Some(every) => LATE_EVERY.0 / every.0.max(1),
            };
            while let Some(&(tid, created)) = family.hidden.front() {
                let lives = lives(tid);
                let has_lived = self.every.is_none() || created + LIVED <= at;
                if lives && !(room > 0 && has_lived) {
                    break;
                }
                family.hidden.pop_front();
                if lives {
                    room -= 1;
                    family.next_late = at + LATE_EVERY;
                    due.push(tid);
                }
            }
            let is_over = self.every.is_none() || family.even <= at;
            if family.hidden.is_empty() && is_over {
                family.end();
            }
        }
        due
    }

    /// Forgets a given process.
    pub fn forget(&mut self, root: Pid) {
        self.of.remove(&root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Pid = Pid(10);

    fn storms() -> Storms {
        Storms::new(Some(1_000))
    }

    fn us(us: u64) -> Nanos {
        Nanos(1_000 * us)
    }

    /// Threads 0, 1, … are created, one each `every_us`, from `from_us` on.
    fn create(storms: &mut Storms, count: i32, from_us: u64, every_us: u64) -> Vec<EventTreatment> {
        let at = |place: i32| us(from_us + every_us * u64::try_from(place).unwrap());
        (0..count).map(|place| storms.created(ROOT, ROOT, Tid(place), at(place))).collect()
    }

    #[test]
    fn a_pool_is_reported_at_once() {
        let mut storms = storms();
        assert_eq!(create(&mut storms, 1_000, 0, 0), [EventTreatment::Report; 1_000]);
        assert!(!storms.is_any());
        // A second later there is room for as many once more.
        assert_eq!(create(&mut storms, 1_000, 1_000_000, 0), [EventTreatment::Report; 1_000]);
    }

    /// 10,000 a second for 2 s: of the first 1,111 each tenth comes at the rate, so these are no storm yet.
    #[test]
    fn a_storm_is_not_reported() {
        let mut storms = storms();
        let verdicts = create(&mut storms, 20_000, 0, 100);
        let reported =
            verdicts.iter().take_while(|verdict| **verdict == EventTreatment::Report).count();
        assert_eq!(reported, 1_111);
        assert_eq!(verdicts[reported], EventTreatment::HideFirst);
        assert!(verdicts[reported + 1..].iter().all(|verdict| *verdict == EventTreatment::Hide));
        assert!(storms.is_any());
        // All have ended, and 1.2 s later nothing is left of it.
        assert_eq!(storms.due(us(2_000_000), |_| false), []);
        assert!(storms.is_any(), "it may go on");
        assert_eq!(storms.due(us(3_200_000), |_| false), []);
        assert!(!storms.is_any());
    }

    /// Slower than the rate nothing is a storm, however long it goes on.
    #[test]
    fn what_comes_at_the_rate_is_reported() {
        let mut storms = storms();
        assert_eq!(create(&mut storms, 5_000, 0, 1_000), [EventTreatment::Report; 5_000]);
    }

    /// 2,200 threads at once live on: 1,200 are reported later, oldest first, from when they have lived for 100 ms: 500
    /// each half second.
    #[test]
    fn what_lives_on_comes_later() {
        let mut storms = storms();
        create(&mut storms, 2_200, 0, 0);
        let lives = |_| true;
        assert_eq!(storms.due(us(99_999), lives), []);
        let due: Vec<Vec<Tid>> = (1..=12).map(|at| storms.due(us(100_000 * at), lives)).collect();
        let lengths: Vec<usize> = due.iter().map(Vec::len).collect();
        assert_eq!(lengths, [500, 0, 0, 0, 0, 500, 0, 0, 0, 0, 200, 0]);
        assert_eq!(due.concat(), (1_000..2_200).map(Tid).collect::<Vec<_>>());
        assert!(!storms.is_any());
    }

    /// New processes are reported, however many there are; threads beside them are not.
    #[test]
    fn processes_are_reported() {
        let mut storms = storms();
        let mut create = |number, tid| storms.created(ROOT, Pid(number), Tid(tid), us(1));
        assert!((20..2_020).all(|number| create(number, number) == EventTreatment::Report));
        assert_eq!(
            [11, 12].map(|tid| create(10, tid)),
            [EventTreatment::HideFirst, EventTreatment::Hide]
        );
        assert!(storms.is_any());
    }

    /// At the end no thread is held back.
    #[test]
    fn at_the_end_all_are_reported() {
        let mut storms = storms();
        create(&mut storms, 1_010, 0, 0);
        storms.report_all();
        let lives = |tid: Tid| tid != Tid(1_005);
        assert_eq!(storms.due(us(1), lives).len(), 9);
        assert_eq!(storms.created(ROOT, ROOT, Tid(7), us(2)), EventTreatment::Report);
    }
}
