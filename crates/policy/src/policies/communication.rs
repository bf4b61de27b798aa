//! `communication`: tasks that communicate much are near each other.
//!
//! # Problem
//! Threads that share data are faster where they share a cache. Who communicates with whom is not known beforehand, and changes.
//! # Approach
//! Cruz et al., "Dynamic thread mapping of shared memory applications by exploiting cache coherence protocols", JPDC 2014.
//! What they read from counters of cache coherence is here how often tasks wake each other. Tasks that communicate with none
//! are left to the kernel.
//! # Terms
//! *Partner* of a task: the one that it communicates with most.
//! # Algorithm
//! Each [`PERIOD`]:
//! 1. What was communicated since the last time is a [`Matrix`].
//! 2. The stages of the paper say whether tasks move, and where to ([`Pipeline`]).
//!
//! `communication-static` maps once, by all that was communicated until then, and again where a PU is lost.
//! # Properties
//! - **Follows phases**: partners that change are moved together. -> test `partners_that_change`
//! - **Stays**: without a change no task is moved. -> test `partners_that_change`
//! - **Static**: partners that change later move no task. -> test `placed_once`

use crate::communication::matrix::Matrix;
use crate::communication::pipeline::Pipeline;
use crate::communication::traffic::Two;
use crate::evidence::Evidence;
use crate::places::Places;
use crate::plan::{Plan, TaskId, Why};
use crate::policy::Policy;
use crate::row::{Kind, Preset, Row, Setting};
use crate::source::{Source, SourceSet, WakeUps};
use colocate_machine::{Nanos, PuIdx};

/// Its row in the table of policies.
pub static ROW: Row = Row {
    name: "communication",
    summary: "puts tasks that wake each other often near each other",
    source: "Cruz et al., JPDC 2014, by wake-ups",
    make: |_, _| Box::<Communication>::default(),
    ..Row::ONCE
};

/// The row of the policy that maps once.
pub static STATIC: Row = Row {
    name: "communication-static",
    summary: "as communication, once, by what was communicated at first",
    source: "Cruz et al., JPDC 2014, by wake-ups",
    settings: &[Setting {
        name: "after",
        kind: Kind::Count(1),
        default: Preset::Count(2),
        meaning: "seconds after which tasks are placed",
    }],
    make: |values, _| {
        let after = Some(Nanos::from_secs(values.count("after").into()));
        Box::new(Communication { after, ..Communication::default() })
    },
    ..Row::ONCE
};

/// Time between two decisions. Chosen: phases of programs last for seconds.
pub const PERIOD: Nanos = Nanos::from_millis(500);

#[derive(Debug, Default)]
struct Communication {
    /// So long after the first decision tasks are placed, once; `None`: whenever that gains.
    after: Option<Nanos>,
    begun: Option<Nanos>,
    last: Option<Nanos>,
    /// How often tasks had woken each other then: waker and woken task, in order.
    sums: Vec<(Two, u64)>,
    pipeline: Pipeline,
}

impl Policy for Communication {
    fn needs(&self) -> SourceSet {
        SourceSet::of(&[Source::WakeUps])
    }

    fn period(&self) -> Option<Nanos> {
        Some(PERIOD)
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let places = Places::new(evidence.now.machine, evidence.now.pus);
        let known = evidence.wake_ups.unwrap_or_default();
        let is_due = self.last.is_none_or(|last| evidence.at >= last + PERIOD);
        let is_gone = |pu: &PuIdx| !places.pus.contains(pu);
        if is_due || self.pipeline.seats().values().any(is_gone) {
            self.last = Some(evidence.at);
            let begun = *self.begun.get_or_insert(evidence.at);
            match self.after {
                Some(after) => {
                    let new = self.since(known);
                    self.pipeline.map_once(evidence.at >= begun + after, &new, &places);
                }
                None => self.map(known, &places),
            }
        }
        self.plan(evidence)
    }
}

impl Communication {
    /// What has been communicated since the last call.
    #[allow(clippy::cast_precision_loss)] // counts of wake-ups
    fn since(&mut self, known: &[WakeUps]) -> Matrix {
        let by_tasks = known.iter().filter_map(|one| Some(((one.waker?, one.wakee), one.count)));
        let mut sums: Vec<(Two, u64)> = by_tasks.collect();
        sums.sort_unstable();
        let before = std::mem::replace(&mut self.sums, sums);
        let mut before = before.into_iter().peekable();
        Matrix::of(self.sums.iter().map(|((waker, wakee), count)| {
            while before.next_if(|(two, _)| *two < (*waker, *wakee)).is_some() {}
            let was = before.next_if(|(two, _)| *two == (*waker, *wakee));
            (*waker, *wakee, count.saturating_sub(was.map_or(0, |(_, was)| was)) as f64)
        }))
    }

    fn map(&mut self, known: &[WakeUps], places: &Places<'_>) {
        let new = self.since(known);
        let mut live: Vec<TaskId> = self.sums.iter().flat_map(|((a, b), _)| [*a, *b]).collect();
        live.sort_unstable();
        live.dedup();
        self.pipeline.follow(&new, &live, places);
    }

    fn plan(&self, evidence: &Evidence<'_>) -> Plan {
        let partners = self.pipeline.matrix().partners();
        let partner = |task: &TaskId| {
            let at = partners.binary_search_by_key(task, |(task, _)| *task);
            at.map_or(*task, |at| partners[at].1)
        };
        let why = |task| Why::Near { partner: partner(task) };
        let seats = self.pipeline.seats().iter();
        evidence.plan_of_some(seats.map(|(task, pu)| (*task, evidence.on(*pu), why(task))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobIdx;
    use crate::evidence::Quantum;
    use crate::testing::machine;

    fn task(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    /// The PUs of eight tasks at `s` seconds, where these pairs have woken each other a thousand times more than before.
    fn places(
        policy: &mut Communication,
        s: u64,
        sums: &mut Vec<WakeUps>,
        pairs: [(u32, u32); 4],
    ) -> Vec<u32> {
        for (waker, wakee) in pairs.map(|(a, b)| (task(a), task(b))) {
            let same = |one: &&mut WakeUps| one.waker == Some(waker) && one.wakee == wakee;
            match sums.iter_mut().find(same) {
                Some(one) => one.count += 1_000,
                None => sums.push(WakeUps {
                    waker: Some(waker),
                    wakee,
                    count: 1_000,
                    same_pu: None,
                    waited: None,
                    both_ran: None,
                }),
            }
        }
        let machine = machine("pack:2 l3:2 core:2");
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &[] };
        let evidence =
            Evidence { at: Nanos::from_secs(s), wake_ups: Some(sums), ..Evidence::of_queue(now) };
        let plan = policy.decide(&evidence);
        plan.decisions.iter().filter_map(|decision| Some(decision.place.pu()?.0)).collect()
    }

    /// The producers and consumers of the paper: pairs that share a cache, in two phases. A cache has two PUs here.
    #[test]
    fn partners_that_change() {
        let (mut policy, mut sums) = (Communication::default(), Vec::new());
        let (first, second) = ([(0, 1), (2, 3), (4, 5), (6, 7)], [(0, 4), (1, 5), (2, 6), (3, 7)]);
        let share = |places: &[u32], pairs: [(u32, u32); 4]| {
            pairs.iter().all(|(a, b)| places[*a as usize] / 2 == places[*b as usize] / 2)
        };
        let begun = places(&mut policy, 1, &mut sums, first);
        assert!(share(&begun, first), "{begun:?}");
        for s in 2..5 {
            assert_eq!(places(&mut policy, s, &mut sums, first), begun);
        }
        // What was communicated before counts nearly as much as what is now, and ages.
        let later: Vec<_> = (5..12).map(|s| places(&mut policy, s, &mut sums, second)).collect();
        assert!(share(&later[6], second), "{later:?}");
        let moves = later.windows(2).filter(|two| two[0] != two[1]).count();
        assert!(moves <= 1, "{later:?}");
    }
    #[test]
    fn placed_once() {
        let after = Some(Nanos::from_secs(3));
        let (mut policy, mut sums) =
            (Communication { after, ..Communication::default() }, Vec::new());
        let (first, second) = ([(0, 1), (2, 3), (4, 5), (6, 7)], [(0, 4), (1, 5), (2, 6), (3, 7)]);
        let before: Vec<_> = (1..4).map(|s| places(&mut policy, s, &mut sums, first)).collect();
        assert!(before.iter().all(Vec::is_empty), "{before:?}");
        let placed = places(&mut policy, 4, &mut sums, first);
        assert!(first.iter().all(|(a, b)| placed[*a as usize] / 2 == placed[*b as usize] / 2));
        for s in 5..12 {
            assert_eq!(places(&mut policy, s, &mut sums, second), placed);
        }
    }
}
