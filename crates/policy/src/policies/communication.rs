//! `communication`: tasks that communicate much are near each other.
//!
//! # Problem
//! Threads that share data are faster on a shared cache. Communication partners are not known
//! beforehand, and change.
//! # Approach
//! Cruz et al., "Dynamic thread mapping of shared memory applications by exploiting cache coherence
//! protocols", JPDC 2014. In place of cache-coherence counters, communication is measured by
//! wake-ups between tasks, by CPU time at shared memory, or both. Tasks without communication are
//! left to the kernel.
//! # Terms
//! *Partner* of a task: the task with which it communicates most. *Amount*: communication of two
//! tasks as its possible cost in seconds: the cost of a wake-up between caches for each wake-up
//! ([`seen::seconds`]), plus the CPU time at shared memory.
//! # Algorithm
//! Each [`PERIOD`]:
//! 1. Collect the communication since the last decision in a [`Matrix`].
//! 2. Decide by the stages of the paper whether and where tasks move ([`Pipeline`]).
//!
//! `communication-static` maps once, by all communication until then, and again after a PU is lost.
//! # Properties
//! - **Follows phases**: partners that change are moved together. -> test `partners_that_change`
//! - **Stays**: without a change no task is moved. -> test `partners_that_change`
//! - **Static**: partners that change later move no task. -> test `placed_once`
//! - **One unit**: what tasks communicate in either way adds up. -> test `both_sources_add_up`

use crate::communication::filter::Rules;
use crate::communication::matrix::Matrix;
use crate::communication::pipeline::Pipeline;
use crate::communication::seen;
use crate::evidence::Evidence;
use crate::places::UsableMachine;
use crate::plan::{PlaceReason, Plan};
use crate::policy::Policy;
use crate::row::{Knowledge, PolicyRow, PolicySpec, Purpose, Setting, SettingKind};
use colocate_evidence::{Sharing, Source, SourceSet, WakeUps};
use colocate_machine::Nanos;
use colocate_machine::calibrated::PuDistance;

pub static ROW: PolicyRow = PolicyRow {
    name: "communication",
    purpose: Purpose::Recommended,
    summary: "puts tasks that communicate much near each other",
    source: "Cruz et al., JPDC 2014",
    settings: &[SOURCE, PUBLISHED],
    make: |values, known| {
        let rules = if values.is_set("published") { Rules::Published } else { Rules::Ours };
        let made = Communication::new(values, known);
        Box::new(Communication { pipeline: Pipeline::new(rules), ..made })
    },
    ..PolicyRow::ONCE
};

pub static STATIC: PolicyRow = PolicyRow {
    name: "communication-static",
    summary: "as communication, once, by what was communicated at first",
    source: "Cruz et al., JPDC 2014",
    settings: &[Setting::count("after", 1, 2, "seconds after which tasks are placed"), SOURCE],
    make: |values, known| {
        let after = Some(Nanos::from_secs(values.count("after").into()));
        Box::new(Communication { after, ..Communication::new(values, known) })
    },
    ..PolicyRow::ONCE
};

const SOURCE: Setting =
    Setting::word("source", &["wake-ups", "sharing", "both"], "what is taken for communication");
const PUBLISHED: Setting = Setting::new(
    "published",
    SettingKind::Flag,
    None,
    "as published: limit of unevenness for counts, perfect matchings",
);

/// Time between two decisions. Chosen: phases of programs last for seconds.
pub const PERIOD: Nanos = Nanos::from_millis(500);

#[derive(Debug, Default)]
struct Communication {
    /// Time of the single mapping after the first decision; `None`: map whenever the filter passes.
    after: Option<Nanos>,
    begun: Option<Nanos>,
    last: Option<Nanos>,
    sources: SourceSet,
    /// Cost of a wake-up between caches, in seconds.
    wake_up: f64,
    /// Communication until the last decision, in seconds.
    sums: Matrix,
    pipeline: Pipeline,
}

impl Policy for Communication {
    fn needs(&self) -> SourceSet {
        self.sources
    }

    fn period(&self) -> Option<Nanos> {
        Some(PERIOD)
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let places = UsableMachine::new(evidence.now.machine, evidence.now.pus);
        let is_due = self.last.is_none_or(|last| evidence.at >= last + PERIOD);
        if is_due || self.pipeline.seats().values().any(|pu| !places.pus.contains(pu)) {
            self.last = Some(evidence.at);
            // The first decision, not the start of the program.
            let begun = *self.begun.get_or_insert(evidence.at);
            let new = self.since(evidence);
            match self.after {
                Some(after) => self.pipeline.map_once(evidence.at >= begun + after, &new, &places),
                None => {
                    let piece = self.piece(evidence);
                    self.pipeline.follow(&new, piece, &self.sums.tasks(), &places);
                }
            }
        }
        self.plan(evidence)
    }
}

impl Communication {
    fn new(values: &PolicySpec, known: &Knowledge<'_>) -> Self {
        let sources: &[Source] = match values.word("source") {
            Some("sharing") => &[Source::Sharing],
            Some("both") => &[Source::WakeUps, Source::Sharing],
            _ => &[Source::WakeUps],
        };
        let wake_up = known.wake_ups.unwrap_or_default().of(PuDistance::OtherCache);
        Self { sources: SourceSet::of(sources), wake_up, ..Self::default() }
    }

    /// Communication since the last call, in seconds.
    fn since(&mut self, evidence: &Evidence<'_>) -> Matrix {
        let now = seen::seconds(self.wake_ups(evidence), self.wake_up, self.sharing(evidence));
        let new = seen::since(&now, &self.sums);
        self.sums = now;
        new
    }

    /// Wake-ups; empty if not a source.
    fn wake_ups<'a>(&self, evidence: &Evidence<'a>) -> &'a [WakeUps] {
        let known = evidence.reports.wake_ups.as_deref();
        known.filter(|_| self.sources.has(Source::WakeUps)).unwrap_or_default()
    }

    /// Shared memory use; empty if not a source.
    fn sharing<'a>(&self, evidence: &Evidence<'a>) -> &'a [Sharing] {
        let known = evidence.reports.sharing.as_deref();
        known.filter(|_| self.sources.has(Source::Sharing)).unwrap_or_default()
    }

    /// Mean amount of a single observation (a wake-up or a sample), in seconds.
    fn piece(&self, evidence: &Evidence<'_>) -> f64 {
        let wake_ups = self.wake_ups(evidence).iter().filter(|one| one.waker.is_some());
        let samples = self.sharing(evidence).iter().map(|one| one.samples);
        let observations: u64 = wake_ups.map(|one| one.count).chain(samples).sum();
        // Amounts and counts are both since the tasks' creation.
        let all: f64 = self.sums.pairs().map(|(_, amount)| amount).sum();
        // Without observations the amount is 0 as well.
        all / observations.max(1) as f64
    }

    fn plan(&self, evidence: &Evidence<'_>) -> Plan {
        let partners = self.pipeline.matrix().partners();
        evidence.plan_of_some(self.pipeline.seats().iter().map(|(task, pu)| {
            let at = partners.binary_search_by_key(task, |(task, _)| *task);
            let partner = at.map_or(*task, |at| partners[at].1);
            (*task, evidence.on(*pu), PlaceReason::Near { partner })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Quantum;
    use crate::testing::machine;
    use colocate_evidence::{JobIdx, SourceReports, TaskId};
    use colocate_machine::PuIdx;

    fn task(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    fn by(sources: &[Source], after: Option<Nanos>) -> Communication {
        Communication {
            sources: SourceSet::of(sources),
            wake_up: 1e-5,
            after,
            ..Communication::default()
        }
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
                    turns_apart: None,
                    turns_together: None,
                }),
            }
        }
        let machine = machine("pack:2 l3:2 core:2");
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &[] };
        let evidence = Evidence {
            at: Nanos::from_secs(s),
            reports: &SourceReports { wake_ups: Some(sums.to_vec()), ..SourceReports::NONE },
            ..Evidence::of_queue(now)
        };
        let plan = policy.decide(&evidence);
        plan.decisions.iter().filter_map(|decision| Some(decision.place.pu()?.0)).collect()
    }

    /// The producers and consumers of the paper: pairs that share a cache, in two phases. A cache has two PUs here.
    #[test]
    fn partners_that_change() {
        for rules in [Rules::Ours, Rules::Published] {
            let mut sums = Vec::new();
            let mut policy =
                Communication { pipeline: Pipeline::new(rules), ..by(&[Source::WakeUps], None) };
            let (first, second) =
                ([(0, 1), (2, 3), (4, 5), (6, 7)], [(0, 4), (1, 5), (2, 6), (3, 7)]);
            let share = |places: &[u32], pairs: [(u32, u32); 4]| {
                pairs.iter().all(|(a, b)| places[*a as usize] / 2 == places[*b as usize] / 2)
            };
            let begun = places(&mut policy, 1, &mut sums, first);
            assert!(share(&begun, first), "{begun:?}");
            for s in 2..5 {
                assert_eq!(places(&mut policy, s, &mut sums, first), begun);
            }
            // What was communicated before counts nearly as much as what is now, and ages.
            let later: Vec<_> =
                (5..12).map(|s| places(&mut policy, s, &mut sums, second)).collect();
            assert!(share(&later[6], second), "{later:?}");
            let moves = later.windows(2).filter(|two| two[0] != two[1]).count();
            assert!(moves <= 1, "{later:?}");
        }
    }

    /// 1,000 wake-ups of 10 µs, and 2 s at the memory of both; then 3 s more of that.
    #[test]
    fn both_sources_add_up() {
        let woken = WakeUps {
            waker: Some(task(1)),
            wakee: task(0),
            count: 1_000,
            same_pu: None,
            waited: None,
            both_ran: None,
            turns_apart: None,
            turns_together: None,
        };
        let shared = |(order, with): (u32, u32), s| Sharing {
            task: task(order),
            with: task(with),
            time: Nanos::from_secs(s),
            samples: 250 * s,
        };
        let machine = machine("core:2");
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &[] };
        let reports = |amounts: [u64; 2]| {
            let sharing = vec![shared((0, 1), amounts[0]), shared((1, 0), amounts[1])];
            SourceReports {
                wake_ups: Some(vec![woken]),
                sharing: Some(sharing),
                ..SourceReports::NONE
            }
        };
        let known = Evidence { reports: &reports([1, 1]), ..Evidence::of_queue(now) };
        let later = Evidence { reports: &reports([1, 4]), ..Evidence::of_queue(now) };
        let between = |matrix: &Matrix| (1e3 * matrix.between(task(0), task(1))).round();
        let amounts = |sources: &[Source]| between(&by(sources, None).since(&known));
        let (woken, shared_both) = (Source::WakeUps, Source::Sharing);
        assert_eq!(amounts(&[woken]), 10.0);
        assert_eq!(amounts(&[shared_both]), 2_000.0);
        let mut policy = by(&[woken, shared_both], None);
        assert_eq!(between(&policy.since(&known)), 2_010.0);
        assert_eq!(between(&policy.since(&later)), 3_000.0);
    }

    #[test]
    fn placed_once() {
        let after = Some(Nanos::from_secs(3));
        let (mut policy, mut sums) = (by(&[Source::WakeUps], after), Vec::new());
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
