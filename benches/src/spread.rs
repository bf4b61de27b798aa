//! Where threads were, as `workloads/scheduler/spread.c` notes it on a real kernel, and the same of the
//! simulated one.
//!
//! # Terms
//! - *log*: for each thread the PUs that it was on, in order, and the CPU time it had.
//! - *late*: the second half of a scenario, when what had to be balanced is balanced.

use anyhow::{Context, bail, ensure};
use colocate_evidence::{JobIdx, TaskId, TaskSpan};
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Machine, Nanos, Performance, PuIdx, PuNr};
use colocate_model::phase::{Known, PortWork};
use colocate_model::{Assumptions, MissCurve, Phase};
use colocate_policy::{Decision, DefaultPlacement, PlaceReason, Plan};
use colocate_sim::{
    JobSpec, KernelScheduler, Method, Outcome, Pages, PhaseIdx, PhaseSegment, PhaseSpec, Platform,
    Scenario, SimHost, ThreadSpec, TotalWork,
};
use std::collections::BTreeSet;

/// A scenario of `spread.c`: kind, threads and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doing {
    /// Name of the scenario in a log.
    pub words: String,
    /// How many threads.
    pub threads: usize,
    /// How long.
    pub time: Nanos,
    /// Kind of scenario.
    pub kind: Kind,
}

/// Kinds of scenarios; times as in `spread.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All at once.
    Together,
    /// Threads are created one after the other, with this time between two.
    Apart(Nanos),
    /// All threads are pinned to one PU until this time.
    Freed(Nanos),
    /// Every second thread ends after this CPU time.
    Half(Nanos),
    /// Each thread sleeps for the second time whenever it has had the first as CPU time.
    Naps(Nanos, Nanos),
}

/// Log of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Changes of PU: time, new PU, and whether the thread came there by waking up.
    pub places: Vec<(Nanos, PuIdx, bool)>,
    /// CPU time of the thread, and the time of the sample.
    pub had: Vec<(Nanos, Nanos)>,
    /// Number of sleeps.
    pub naps: u64,
    /// End of the thread.
    pub end: Nanos,
}

/// Log of one scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The scenario.
    pub doing: Doing,
    /// Time at which pinned threads were unpinned.
    pub freed: Option<Nanos>,
    /// CPU time of other programs meanwhile; `None` if it was not logged.
    pub others: Option<Nanos>,
    /// By thread.
    pub lives: Vec<Life>,
}

/// Logs of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logs {
    /// Lines of the head without their `#`: machine, time and method.
    pub head: Vec<String>,
    /// The kernel's release.
    pub kernel: String,
    /// By scenario.
    pub logs: Vec<Log>,
}

impl Logs {
    /// The value after `key: ` in the head.
    #[must_use]
    pub fn said(&self, key: &str) -> Option<&str> {
        self.head.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
    }
}

impl Doing {
    /// Reads `KIND:THREADS:MS...`.
    ///
    /// # Errors
    /// If `words` is not of this form.
    pub fn parse(words: &str) -> anyhow::Result<Self> {
        let wrong = || format!("expected KIND:THREADS:MS..., found {words}");
        let mut parts = words.split(':');
        let kind = parts.next().unwrap_or_default();
        let numbers: Vec<u64> =
            parts.map(str::parse).collect::<Result<_, _>>().with_context(wrong)?;
        let (kind, threads, time) = match (kind, &numbers[..]) {
            ("together", &[n, time]) => (Kind::Together, n, time),
            ("apart", &[n, time, gap]) => (Kind::Apart(Nanos::from_millis(gap)), n, time),
            ("freed", &[n, time, at]) => (Kind::Freed(Nanos::from_millis(at)), n, time),
            ("half", &[n, time, cpu]) => (Kind::Half(Nanos::from_millis(cpu)), n, time),
            ("naps", &[n, time, cpu, sleep]) => {
                (Kind::Naps(Nanos::from_millis(cpu), Nanos::from_millis(sleep)), n, time)
            }
            _ => bail!(wrong()),
        };
        let threads = usize::try_from(threads)?;
        ensure!(threads > 0, wrong());
        Ok(Self { words: words.to_owned(), threads, time: Nanos::from_millis(time), kind })
    }
}

/// Reads the output of `spread.c` after a head of lines that begin with `#`.
///
/// # Errors
/// If a line is not of `spread.c`, or a place is no PU of `machine`.
pub fn parse(text: &str, machine: &Machine) -> anyhow::Result<Logs> {
    let mut logs = Logs { head: Vec::new(), kernel: String::new(), logs: Vec::new() };
    for line in text.lines() {
        if let Some(said) = line.strip_prefix('#') {
            logs.head.push(said.trim().to_owned());
            continue;
        }
        read_line(&mut logs, line, machine).with_context(|| format!("in the line {line:?}"))?;
    }
    Ok(logs)
}

fn read_line(logs: &mut Logs, line: &str, machine: &Machine) -> anyhow::Result<()> {
    let columns: Vec<&str> = line.split('\t').collect();
    match columns[..] {
        ["kernel", release, ..] => logs.kernel = release.to_owned(),
        ["scenario", words] => {
            let doing = Doing::parse(words)?;
            let lives = vec![Life::default(); doing.threads];
            logs.logs.push(Log { doing, freed: None, others: None, lives });
        }
        [what, thread, ref rest @ ..] => {
            let log = logs.logs.last_mut().context("expected a scenario first")?;
            let numbers: Vec<u64> = rest.iter().map(|n| n.parse()).collect::<Result<_, _>>()?;
            match (what, &numbers[..]) {
                ("free", &[at]) => {
                    log.freed = Some(Nanos(at));
                    return Ok(());
                }
                ("others", &[time]) => {
                    log.others = Some(Nanos(time));
                    return Ok(());
                }
                _ => {}
            }
            let life = log.lives.get_mut(thread.parse::<usize>()?).context("no such thread")?;
            match (what, &numbers[..]) {
                ("on" | "woke", &[at, pu]) => {
                    let pu = PuIdx::new(usize::try_from(pu)?);
                    ensure!(pu.idx() < machine.pus.len(), "no such PU on {}", machine.name);
                    life.places.push((Nanos(at), pu, what == "woke"));
                }
                ("cpu", &[at, cpu]) => life.had.push((Nanos(at), Nanos(cpu))),
                ("naps", &[naps]) => life.naps = naps,
                ("end", &[at]) => life.end = Nanos(at),
                _ => bail!("expected on, woke, cpu, naps or end"),
            }
        }
        _ => bail!("expected columns between tabs"),
    }
    Ok(())
}

/// Figures that real and simulated kernels are compared by.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Number of cores on which 0, 1, 2 or more threads were created; without threads pinned to one
    /// PU.
    pub created_on_cores: Option<[f64; 4]>,
    /// Fewest and most threads created on a node, or on a last-level cache if there is one node.
    pub created_on_parts: Option<(f64, f64)>,
    /// Late: mean number of PUs with 0, 1, 2 or more threads. `None` where threads sleep.
    pub pus: Option<[f64; 4]>,
    /// The same of cores.
    pub cores: Option<[f64; 4]>,
    /// Late: threads on the part with fewest and with most, on average over time.
    pub parts: Option<(f64, f64)>,
    /// When first as many PUs were busy as can be, since the threads were free, or else since the last was created.
    pub filled: Option<Nanos>,
    /// Late: moves of a thread a second, without moves at wake-ups.
    pub moves: f64,
    /// Late: least and most CPU time of a thread that lived to the end, in parts of the time.
    pub shares: (f64, f64),
    /// Share of the sleeps after which a thread woke up elsewhere; `None` if none slept.
    pub woke_elsewhere: Option<f64>,
}

/// Number of groups of PUs with 0, 1, 2 or more threads.
fn histogram(groups: &[Vec<PuIdx>], load: &[u32]) -> [f64; 4] {
    let mut found = [0.0; 4];
    for group in groups {
        let threads: u32 = group.iter().map(|pu| load[pu.idx()]).sum();
        found[threads.min(3) as usize] += 1.0;
    }
    found
}

fn extremes(groups: &[Vec<PuIdx>], load: &[u32]) -> (f64, f64) {
    let sums = groups.iter().map(|group| group.iter().map(|pu| load[pu.idx()]).sum::<u32>());
    (f64::from(sums.clone().min().unwrap_or(0)), f64::from(sums.max().unwrap_or(0)))
}

/// Nodes; on a machine with one node or none, last-level caches.
fn parts(machine: &Machine) -> Vec<Vec<PuIdx>> {
    if machine.nodes.len() > 1 {
        let nodes = (0..machine.nodes.len()).map(colocate_machine::NodeIdx::new);
        return nodes.map(|node| machine.home_pus(node).collect()).collect();
    }
    let caches: BTreeSet<_> =
        machine.all_pus().filter_map(|pu| machine.last_level_cache(pu)).collect();
    caches.into_iter().map(|cache| machine.caches[cache.idx()].pus.clone()).collect()
}

impl Log {
    /// Threads on each PU at the time `at`. A waiting thread counts where it ran last.
    fn load(&self, at: Nanos, pus: usize) -> Vec<u32> {
        let mut load = vec![0; pus];
        for life in self.lives.iter().filter(|life| life.end > at) {
            let here = life.places.iter().take_while(|place| place.0 <= at).last();
            if let Some((_, pu, _)) = here {
                load[pu.idx()] += 1;
            }
        }
        load
    }

    /// Times of changes between two times, with both ends.
    fn changes(&self, from: Nanos, to: Nanos) -> Vec<Nanos> {
        let places = self.lives.iter().flat_map(|life| life.places.iter().map(|place| place.0));
        let ends = self.lives.iter().map(|life| life.end);
        let within = places.chain(ends).filter(|at| from < *at && *at < to);
        let all: BTreeSet<Nanos> = within.chain([from, to]).collect();
        all.into_iter().collect()
    }

    /// Figures for the comparison.
    #[must_use]
    pub fn figures(&self, machine: &Machine) -> Figures {
        let cores: Vec<_> = machine.cores.iter().map(|core| core.pus.clone()).collect();
        let pus: Vec<_> = machine.all_pus().map(|pu| vec![pu]).collect();
        let parts = parts(machine);
        let half = Nanos(self.doing.time.0 / 2);
        let end = self.doing.time;
        let naps = matches!(self.doing.kind, Kind::Naps(..));
        let created = (!matches!(self.doing.kind, Kind::Freed(_))).then(|| {
            let mut load = vec![0; machine.pus.len()];
            self.lives.iter().filter_map(|l| l.places.first()).for_each(|p| load[p.1.idx()] += 1);
            load
        });
        let mean = |of: &dyn Fn(&[u32]) -> Vec<f64>| self.mean(half, end, machine.pus.len(), of);
        let four = |groups: &[Vec<PuIdx>]| {
            let mean = mean(&|load| histogram(groups, load).to_vec());
            (!naps).then(|| [mean[0], mean[1], mean[2], mean[3]])
        };
        let range = mean(&|load| [extremes(&parts, load)].map(|(a, b)| vec![a, b]).concat());
        let lived = self.lives.iter().filter(|life| life.end > half);
        let moved = lived.clone().flat_map(|life| life.places.iter().skip(1));
        let moves = moved.filter(|(at, _, woke)| *at >= half && *at < end && !woke).count();
        let seconds: f64 =
            lived.map(|life| (life.end.min(end).saturating_sub(half)).as_secs_f64()).sum();
        let all_naps: u64 = self.lives.iter().map(|life| life.naps).sum();
        let woke = self.lives.iter().flat_map(|l| &l.places).filter(|place| place.2).count();
        Figures {
            created_on_cores: created.as_ref().map(|load| histogram(&cores, load)),
            created_on_parts: created.as_ref().map(|load| extremes(&parts, load)),
            pus: four(&pus),
            cores: four(&cores),
            parts: (!naps).then_some((range[0], range[1])),
            filled: self.filled(machine.pus.len()),
            moves: moves as f64 / seconds,
            shares: self.shares(),
            woke_elsewhere: (all_naps > 0).then(|| woke as f64 / all_naps as f64),
        }
    }

    fn mean(
        &self,
        from: Nanos,
        to: Nanos,
        pus: usize,
        of: &dyn Fn(&[u32]) -> Vec<f64>,
    ) -> Vec<f64> {
        let changes = self.changes(from, to);
        let mut sum = Vec::new();
        for step in changes.windows(2) {
            let share = (step[1] - step[0]).as_secs_f64() / (to - from).as_secs_f64();
            let found = of(&self.load(step[0], pus));
            sum.resize(found.len(), 0.0);
            sum.iter_mut().zip(found).for_each(|(sum, found)| *sum += share * found);
        }
        sum
    }

    fn filled(&self, pus: usize) -> Option<Nanos> {
        if matches!(self.doing.kind, Kind::Naps(..) | Kind::Half(_)) {
            return None;
        }
        let last_created =
            self.lives.iter().filter_map(|l| l.places.first()).map(|place| place.0).max();
        let since = self.freed.or(last_created)?;
        let most = self.doing.threads.min(pus);
        let busy = |at: &Nanos| self.load(*at, pus).iter().filter(|&&load| load > 0).count();
        let changes = self.changes(since, self.doing.time);
        let first = changes.into_iter().find(|at| *at < self.doing.time && busy(at) == most)?;
        Some(first - since)
    }

    fn shares(&self) -> (f64, f64) {
        let lived = self.lives.iter().filter(|life| life.end >= self.doing.time);
        let shares = lived.filter_map(|life| {
            let [(from, before), (to, after)] = life.had[..] else { return None };
            Some((after.saturating_sub(before)).as_secs_f64() / (to - from).as_secs_f64())
        });
        let mut least = f64::INFINITY;
        let mut most = 0.0_f64;
        for share in shares {
            least = least.min(share);
            most = most.max(share);
        }
        (least, most)
    }
}

/// A chain of dependent additions, one a cycle: siblings do not slow each other.
pub(crate) fn adding() -> PhaseSpec {
    let source = "made up: a chain of additions";
    PhaseSpec::of(Phase {
        slots: Known::new(1.0, source),
        work: Known::new(PortWork::Kinds(vec![(WorkKind::Int, 1.0)]), source),
        dependent_cycles: Known::new(1.0, source),
        dependent_cycles_divided: Known::new(1.0, source),
        misses: Known::new(MissCurve::new([(Bytes(64), 0.0)]).expect("it falls"), source),
        stall_cycles: Known::new(0.0, source),
        branch_misses: Known::new(0.0, source),
        parallel_misses: Known::new(1.0, source),
        written_back: Known::new(0.0, source),
        shared_lines: Known::new(0.0, source),
        ..Phase::default()
    })
}

/// Simulates the same threads under the simulated kernel.
///
/// # Errors
/// If the machine cannot be simulated.
pub fn simulate(
    doing: &Doing,
    (machine, performance): (&Machine, &Performance),
    kernel: KernelScheduler,
    seed: u64,
) -> anyhow::Result<Log> {
    let platform = Platform::new(machine, performance, Assumptions::default())?;
    let scenario = scenario(doing, performance.kinds[0].clock.0, kernel, seed);
    let mut host = SimHost::new(&platform, &scenario)?;
    host.record(usize::MAX);
    let mut freed = None;
    if let Kind::Freed(at) = doing.kind {
        let pu = usize::try_from(seed)? % machine.pus.len();
        host.go_on(&plan(doing.threads, Some(machine.pus[pu].os)), at)?;
        freed = Some(at);
    }
    host.go_on(&plan(doing.threads, None), doing.time)?;
    Ok(Log { doing: doing.clone(), freed, others: None, lives: lives(doing, &host.outcome()) })
}

fn scenario(doing: &Doing, clock: u64, kernel: KernelScheduler, seed: u64) -> Scenario {
    let endless = TotalWork::Instructions(u64::MAX >> 12);
    let threads = (0..doing.threads).map(|order| {
        let mut born = Nanos::ZERO;
        let mut work = endless;
        let mut instructions = u64::MAX >> 12;
        let mut sleep = Nanos::ZERO;
        match doing.kind {
            Kind::Together | Kind::Freed(_) => {}
            Kind::Apart(gap) => born = Nanos(gap.0 * order as u64),
            Kind::Half(cpu) if order % 2 == 1 => work = TotalWork::AloneFor(cpu),
            Kind::Half(_) => {}
            Kind::Naps(cpu, time) => {
                instructions = clock / 1_000_000 * (cpu.0 / 1_000);
                sleep = time;
            }
        }
        let course = vec![PhaseSegment { phase: PhaseIdx(0), instructions, sleep, barrier: false }];
        let pages = Pages::FirstTouch;
        let resident = Bytes::mib(1);
        ThreadSpec { name: order.to_string(), born, course, work, pages, resident }
    });
    let threads = threads.collect();
    Scenario {
        name: doing.words.clone(),
        seed,
        phases: vec![adding()],
        jobs: vec![JobSpec {
            memory: Vec::new(),
            name: "spread".to_owned(),
            arrives: Nanos::ZERO,
            threads,
            barrier: None,
        }],
        method: Method::Leave,
        quantum: doing.time,
        grain: Nanos::ZERO,
        horizon: doing.time,
        usable: None,
        events: Vec::new(),
        kernel,
    }
}

/// All threads on one PU, or unpinned.
fn plan(threads: usize, pu: Option<PuNr>) -> Plan {
    let decisions = (0..threads).map(|order| Decision {
        task: TaskId { job: JobIdx(0), order: u32::try_from(order).unwrap_or(u32::MAX) },
        name: "".into(),
        place: pu.into(),
        why: PlaceReason::LeftToKernel,
    });
    Plan {
        version: colocate_policy::plan::VERSION,
        machine: String::new(),
        pus: Vec::new(),
        policy: String::new(),
        decisions: decisions.collect(),
        default_placement: DefaultPlacement::LeaveToKernel,
        ..Plan::default()
    }
}

/// Logs as the threads themselves would have written them.
fn lives(doing: &Doing, outcome: &Outcome) -> Vec<Life> {
    let mut lives = vec![Life::default(); doing.threads];
    for (life, task) in lives.iter_mut().zip(&outcome.tasks) {
        life.end = if task.ended < outcome.lasted { task.ended } else { Nanos(u64::MAX) };
        let mut spans: Vec<&TaskSpan> =
            outcome.spans.iter().filter(|s| s.task == task.id).collect();
        spans.sort_by_key(|span| span.from);
        let ran = |until: Nanos| {
            let span = |span: &&TaskSpan| span.to.min(until).saturating_sub(span.from);
            spans.iter().map(span).fold(Nanos::ZERO, |sum, time| sum + time)
        };
        let mut sum = Nanos::ZERO;
        for span in &spans {
            let woke = match doing.kind {
                // It sleeps when it has had a multiple of that; rates are exact to the nanosecond.
                Kind::Naps(cpu, _) => sum.0 > 0 && (sum.0 + cpu.0 / 100) % cpu.0 < cpu.0 / 50,
                _ => false,
            };
            life.naps += u64::from(woke);
            sum += span.to - span.from;
            if life.places.last().is_none_or(|last| last.1 != span.pu) {
                life.places.push((span.from, span.pu, woke));
            }
        }
        let half = Nanos(doing.time.0 / 2);
        life.had = [half, doing.time].map(|at| (at, ran(at))).to_vec();
    }
    lives
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::described;
    use colocate_sim::PeriodicBalance;

    /// Measurements of real kernels with their machine, by `workloads/scheduler/measure`.
    const TWO_PUS: (&str, &str) = (
        include_str!("../../data/measured/scheduler/two-pus-linux-7.2.tsv"),
        include_str!("../../workloads/scheduler/two-pus.toml"),
    );
    const TWO_NODES: (&str, &str) = (
        include_str!("../../data/measured/scheduler/two-nodes-linux-6.12.tsv"),
        include_str!("../../workloads/scheduler/two-nodes.toml"),
    );
    const EPYC: (&str, &str) = (
        include_str!("../../data/measured/scheduler/epyc-7301-linux-6.12.tsv"),
        include_str!("../../machines/epyc-7301.toml"),
    );

    /// What a real kernel and the simulated one did in a scenario.
    fn both(of: (&str, &str), words: &str, kernel: KernelScheduler, seed: u64) -> [Figures; 2] {
        let machine = described::from_toml(of.1).unwrap().machine;
        let performance = described::performance(of.1).unwrap().unwrap();
        let logs = parse(of.0, &machine).unwrap();
        let real = logs.logs.iter().find(|log| log.doing.words == words).unwrap();
        let simulated = simulate(&real.doing, (&machine, &performance), kernel, seed).unwrap();
        [real.figures(&machine), simulated.figures(&machine)]
    }

    /// The greatest difference of where threads were late: PUs and cores by their threads, parts by theirs.
    fn off(both: &[Figures; 2]) -> f64 {
        let all = |figures: &Figures| {
            let (least, most) = figures.parts.unwrap();
            [&figures.pus.unwrap()[..], &figures.cores.unwrap(), &[least, most]].concat()
        };
        let real = all(&both[0]);
        let simulated = all(&both[1]);
        real.iter().zip(simulated).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }

    fn as_real(of: (&str, &str), scenarios: &[&str]) {
        for words in scenarios {
            for seed in 0..3 {
                let both = both(of, words, KernelScheduler::default(), seed);
                assert!(off(&both) <= 0.5, "{words}, seed {seed}: {both:#?}");
            }
        }
    }

    #[test]
    fn threads_are_where_linux_has_them_on_two_pus() {
        as_real(
            TWO_PUS,
            &[
                "together:1:4000",
                "together:2:4000",
                "together:3:6000",
                "together:4:6000",
                "together:5:6000",
                "together:6:6000",
                "apart:4:4000:500",
                "freed:2:4000:500",
                "freed:5:4000:500",
                "half:4:4000:1000",
                "half:6:4000:500",
            ],
        );
    }

    #[test]
    fn threads_are_where_linux_has_them_on_two_nodes() {
        as_real(
            TWO_NODES,
            &[
                "together:2:6000",
                "together:4:6000",
                "together:8:6000",
                "together:10:6000",
                "together:16:6000",
                "together:17:6000",
                "apart:4:6000:100",
                "apart:8:6000:100",
                "freed:8:6000:500",
                "half:16:6000:1000",
            ],
        );
    }

    /// All eight stay on one of the two sockets: forks do not leave it, and with one busy PU under each last-level
    /// cache the idle ones are not woken.
    #[test]
    fn few_threads_stay_on_a_socket_of_eight_nodes() {
        as_real(EPYC, &["together:8:10000"]);
    }

    /// The comparison can fail: a kernel that does not balance leaves threads where they were set free.
    #[test]
    fn a_kernel_without_balancing_is_found_out() {
        let still = KernelScheduler {
            idle_balance: false,
            periodic_balance: None,
            ..KernelScheduler::default()
        };
        assert!(off(&both(TWO_NODES, "freed:8:6000:500", still, 0)) > 5.0);
        let slow = PeriodicBalance { patience: u32::MAX, ..PeriodicBalance::default() };
        let slow = KernelScheduler { periodic_balance: Some(slow), ..KernelScheduler::default() };
        assert!(off(&both(TWO_NODES, "half:16:6000:1000", slow, 0)) > 0.5);
    }

    /// Turns give each thread its share: as a real kernel's to 3 % of a PU.
    #[test]
    fn slices_are_as_fair_as_linux() {
        for words in ["together:4:6000", "together:6:6000", "together:3:6000"] {
            let [real, simulated] = both(TWO_PUS, words, KernelScheduler::default(), 0);
            assert!((real.shares.0 - simulated.shares.0).abs() < 0.03, "{words}");
            assert!((real.shares.1 - simulated.shares.1).abs() < 0.03, "{words}");
        }
    }

    #[test]
    fn what_is_no_log_is_refused() {
        let machine = described::from_toml(TWO_PUS.1).unwrap().machine;
        let refused = |text: &str| format!("{:#}", parse(text, &machine).unwrap_err());
        assert!(refused("scenario\ttogether:2").contains("KIND:THREADS:MS"));
        assert!(refused("on\t0\t5\t1").contains("a scenario first"));
        assert!(refused("scenario\ttogether:1:9\non\t0\t5\t2").contains("no such PU"));
        assert!(refused("scenario\ttogether:1:9\non\t1\t5\t1").contains("no such thread"));
        assert!(refused("nonsense").contains("columns"));
    }
}
