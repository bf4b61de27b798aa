//! Countable events of this machine, determined by trials.

use super::events::{EventCode, Reading};
use super::extras::{self, ExtraEvents};
use super::open::{OpenGroup, Spec, Start};
use super::plan::{EventGroup, EventKind, Grouping, PmuEvent, Role};
use super::scale::{ThreadTotals, over_pmus, totals};
use super::specs::{INSTRUCTIONS, busy, generic, spec, specs};
use super::stack::{Formula, StackPlan, StackTable};
use super::sysfs::{CorePmu, core_pmus};
use super::trial::{CountedGrouping, try_out};

pub use super::trial::CounterSet;
use colocate_linux::{SysError, Tid};
use colocate_model::Class;
use colocate_model::stack::StackParts;
use perf_event_open_sys::bindings as c;
use std::path::Path;
use thiserror::Error;

/// Reason why threads cannot be counted, with the kernel's error. `colocate doctor` has the remedy.
#[derive(Debug, Error)]
pub enum PmuError {
    /// No counters of the cores in this folder of sysfs.
    #[error("expected hardware counters, found none in {0}: {1}")]
    None(String, #[source] SysError),
    /// Counters of this PMU, refused to this user by the kernel.
    #[error("expected to count instructions with {0}, found {1}")]
    Refused(String, #[source] SysError),
    /// Counters of this PMU, held by other programs.
    #[error("expected free counters, found that other programs hold those of {0}: {1}")]
    Taken(String, #[source] SysError),
}

impl PmuError {
    /// The kernel's error.
    #[must_use]
    pub fn cause(&self) -> &SysError {
        let (Self::None(_, cause) | Self::Refused(_, cause) | Self::Taken(_, cause)) = self;
        cause
    }
}

/// Groups of a PMU, ready to be opened on any thread.
#[derive(Clone, Debug)]
pub struct PmuGroups {
    /// Name in sysfs.
    pub name: String,
    /// Groups of events.
    pub groups: Vec<EventGroup>,
    /// The same groups in perf's form.
    pub specs: Vec<Vec<Spec>>,
    /// Conversion of the groups' counts to a CPI stack; `None` if they do not give one.
    pub stack: Option<StackPlan>,
}

/// Counters of this machine.
#[derive(Clone, Debug)]
pub struct Counters {
    /// PMUs of the cores; several on a machine with several kinds of cores.
    pub pmus: Vec<PmuGroups>,
    /// Notes for readers of the figures, one sentence each.
    pub notes: Vec<String>,
    /// Reason why requested CPI stacks are missing; `None` if they are not.
    pub no_stacks: Option<String>,
    /// Whether no other PMU of cores exists, used or not; if false, threads may run uncounted.
    pub(super) alone: bool,
}

/// Open counters of a thread, by PMU and group.
#[derive(Debug)]
pub struct OpenCounters(pub(super) Vec<Vec<OpenGroup>>);

impl Counters {
    /// Determines by trial which of the counters listed under `proc` and `sys` (usually `/proc` and
    /// `/sys`) count together. Counts the calling process for some microseconds.
    ///
    /// # Errors
    /// [`PmuError`] if not even instructions can be counted.
    pub fn find(proc: &Path, sys: &Path, set: CounterSet) -> Result<Self, PmuError> {
        let pmus = core_pmus(proc, sys);
        let Some(first) = pmus.first() else {
            let generic = Spec { kind: c::PERF_TYPE_HARDWARE, config: INSTRUCTIONS };
            return match try_alone(generic) {
                // A kernel without sysfs entries whose counters work.
                Ok(()) => {
                    let (name, kind) = ("cpu".to_owned(), c::PERF_TYPE_RAW);
                    Self::planned(&[CorePmu { name, kind, ..CorePmu::default() }], set)
                }
                Err(source) => {
                    let devices = sys.join("bus/event_source/devices").display().to_string();
                    Err(PmuError::None(devices, source))
                }
            };
        };
        let alone = pmus.len() == 1;
        try_alone(generic(first, alone, INSTRUCTIONS))
            .map_err(|source| PmuError::Refused(first.name.clone(), source))?;
        Self::planned(&pmus, set)
    }

    fn planned(pmus: &[CorePmu], set: CounterSet) -> Result<Self, PmuError> {
        let alone = pmus.len() == 1;
        let mut found = Self { pmus: Vec::new(), notes: Vec::new(), no_stacks: None, alone };
        let mut no_stacks = Vec::new();
        for pmu in pmus {
            let CountedGrouping { grouping: plan, stack, no_stack } =
                on_its_cores(pmu, alone, || try_out(pmu, alone, set));
            found.notes.extend(notes(pmu, &plan));
            no_stacks.extend(no_stack.filter(|_| !plan.groups.is_empty()));
            let specs = plan.groups.iter().map(|group| specs(&group.events, pmu, alone)).collect();
            found.pmus.push(PmuGroups {
                name: pmu.name.clone(),
                groups: plan.groups,
                specs,
                stack,
            });
        }
        let first = found.pmus.first().map(|pmu| pmu.name.clone());
        // A PMU without a group counts nothing, so it is not opened on threads.
        found.pmus.retain(|pmu| !pmu.groups.is_empty());
        found.no_stacks = match found.stack_parts() {
            None if set == CounterSet::Stacks && no_stacks.is_empty() => {
                Some("the kinds of cores report different parts".to_owned())
            }
            None if set == CounterSet::Stacks => Some(no_stacks.join("; ")),
            _ => None,
        };
        match first {
            // The kernel accepts an event with a taken counter; only a trial shows that.
            Some(pmu) if found.pmus.is_empty() => Err(PmuError::Taken(pmu, busy())),
            _ => Ok(found),
        }
    }

    /// Counters for `events` in one group, on any machine: software events that replace hardware
    /// events in tests and on machines without counters.
    #[must_use]
    pub fn of_software(events: &[(Role, u64)]) -> Self {
        let events = events.iter().map(|&(role, number)| PmuEvent {
            role,
            base: Role::Instructions,
            source: EventKind::Software(number),
        });
        let group = EventGroup { events: events.collect() };
        let specs = group.events.iter().map(|event| spec(event.source, None, true)).collect();
        let name = "software".to_owned();
        let planned = PmuGroups { name, groups: vec![group], specs: vec![specs], stack: None };
        Self { pmus: vec![planned], notes: Vec::new(), no_stacks: None, alone: true }
    }

    /// Counters without a processor's: page faults as instructions, nanoseconds of CPU time as
    /// cycles. Each page fault stands for 20 µs of the part `faults`, longer than it takes; the
    /// rest is the part `others`. For tests of readers of CPI stacks.
    #[must_use]
    pub fn pretended() -> Self {
        const TASK_CLOCK: u64 = c::PERF_COUNT_SW_TASK_CLOCK as u64;
        const PAGE_FAULTS: u64 = c::PERF_COUNT_SW_PAGE_FAULTS as u64;
        // Tables are `'static`; this one is leaked below.
        let table = StackTable {
            name: "pretended".to_owned(),
            parts: &["faults", "others"],
            events: vec![EventCode { name: "page-faults", config: PAGE_FAULTS }],
            alive: Vec::new(),
            formula: Formula::OfWidthAndRest(1.0 / 20_000.0),
            source: "none".to_owned(),
        };
        let mut counters = Self::of_software(&[
            (Role::Instructions, PAGE_FAULTS),
            (Role::Cycles, TASK_CLOCK),
            (Role::Stack(0), PAGE_FAULTS),
        ]);
        let plan = StackPlan { table: Box::leak(Box::new(table)), width: 0.0 };
        counters.pmus.iter_mut().for_each(|pmu| pmu.stack = Some(plan));
        counters
    }

    /// Parts of the CPI stacks; `None` without stacks, or if kinds of cores have different parts.
    #[must_use]
    pub fn stack_parts(&self) -> Option<StackParts> {
        let mut parts = self.pmus.iter().map(|pmu| pmu.stack.map(|plan| plan.table.parts));
        let first = parts.next()??;
        parts.all(|other| other == Some(first)).then_some(first)
    }

    /// Events of the components of a demand vector beside the classes.
    #[must_use]
    pub fn events(&self) -> ExtraEvents {
        extras::events(self.pmus.iter().flat_map(|pmu| &pmu.groups))
    }

    /// File descriptors per thread.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.pmus.iter().flat_map(|pmu| &pmu.specs).map(Vec::len).sum()
    }

    /// Opens the counters on thread `tid`.
    ///
    /// # Errors
    /// As [`OpenGroup::open`].
    pub fn open(&self, tid: Tid, start: Start) -> Result<OpenCounters, SysError> {
        let pmus = self.pmus.iter();
        let opened = pmus
            .map(|pmu| pmu.specs.iter().map(|specs| OpenGroup::open(specs, tid, start)).collect());
        opened.collect::<Result<_, _>>().map(OpenCounters)
    }

    /// Totals of a thread, and its CPU time since opening, in ns.
    ///
    /// # Errors
    /// If a group cannot be read.
    pub fn read(&self, open: &OpenCounters) -> Result<(ThreadTotals, u64), SysError> {
        let readings: Vec<Vec<Reading>> = open
            .0
            .iter()
            .map(|groups| groups.iter().map(OpenGroup::read).collect())
            .collect::<Result<_, _>>()?;
        let on_cpu_ns = readings.iter().flatten().map(|reading| reading.enabled_ns).max();
        Ok((self.totals(&readings), on_cpu_ns.unwrap_or(0)))
    }

    /// Totals of a thread, from the readings of each PMU.
    fn totals(&self, readings: &[Vec<Reading>]) -> ThreadTotals {
        let pairs = self.pmus.iter().zip(readings);
        let parts: Vec<ThreadTotals> =
            pairs.map(|(pmu, readings)| totals(&pmu.groups, readings, self.alone)).collect();
        over_pmus(&parts)
    }
}

/// Opens and closes a counter alone on the calling thread.
fn try_alone(spec: Spec) -> Result<(), SysError> {
    OpenGroup::open(&[spec], Tid(0), Start::Now).map(drop)
}
/// Runs `work` on a core of `pmu`: with several kinds of cores, in a new thread bound to it.
fn on_its_cores(
    pmu: &CorePmu,
    alone: bool,
    work: impl FnOnce() -> CountedGrouping + Send,
) -> CountedGrouping {
    let Some(cpus) = pmu.cpus.as_ref().filter(|_| !alone) else {
        return work();
    };
    std::thread::scope(|scope| {
        let trial = scope.spawn(|| {
            let moved = colocate_linux::affinity::move_this_thread(cpus);
            // Cores outside the affinity mask cannot be tried; their counters are not used.
            if moved { work() } else { CountedGrouping::default() }
        });
        trial.join().unwrap_or_default()
    })
}

/// Notes on a PMU's figures.
fn notes(pmu: &CorePmu, plan: &Grouping) -> Vec<String> {
    let mut notes = Vec::new();
    let name = &pmu.name;
    if plan.groups.is_empty() {
        let why = if plan.refused.is_empty() {
            "none of its cores is in the affinity mask"
        } else {
            "other programs hold its counters"
        };
        notes.push(format!("{name}: not used, {why}"));
        return notes;
    }
    match pmu.family {
        None => notes.push(format!(
            "{name}: {} is not in the table of events, so only perf's generic events are counted",
            pmu.cpu
        )),
        Some(family) if !family.caveat.is_empty() => {
            notes.push(format!("{name}: on {} {}", family.name, family.caveat));
        }
        Some(_) => {}
    }
    let counted: Vec<Class> =
        plan.groups.iter().flat_map(|group| group.classes().map(|(class, _)| class)).collect();
    let missing = Class::ALL.into_iter().filter(|class| !counted.contains(class));
    let missing: Vec<&str> = missing.map(Class::name).collect();
    if !missing.is_empty() {
        notes.push(format!("{name}: no counter for {}", missing.join(", ")));
    }
    if plan.groups.len() > 1 {
        let groups = plan.groups.len();
        notes.push(format!("{name}: too few counters for all events, {groups} groups take turns"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::cpu::Cpu;
    use crate::pmu::plan::{grouping, wanted};
    use crate::pmu::specs::counts;
    use crate::pmu::table::{self, EventCode};
    use expect_test::expect;

    fn pmu(cpu: Cpu, name: &str, kind: u32) -> CorePmu {
        let family = table::family(cpu, name);
        CorePmu { name: name.to_owned(), kind, cpu, family, ..CorePmu::default() }
    }

    const P_CORE: Cpu = Cpu::Intel { family: 6, model: 151 };
    const A72: Cpu = Cpu::Arm { implementer: 0x41, part: 0xd08 };

    #[test]
    fn generic_events_name_their_pmu_only_beside_others() {
        let of = |cpu, name, kind, alone| {
            let spec = generic(&pmu(cpu, name, kind), alone, INSTRUCTIONS);
            (spec.kind, spec.config)
        };
        assert_eq!(of(P_CORE, "cpu", 4, true), (0, 1));
        assert_eq!(of(P_CORE, "cpu_core", 4, false), (0, 0x4_0000_0001));
        assert_eq!(of(P_CORE, "cpu_atom", 10, false), (0, 0xa_0000_0001));
        assert_eq!(of(A72, "armv8_cortex_a72", 9, false), (9, 0x08));
    }

    #[test]
    fn raw_codes_go_to_their_pmu() {
        let branches =
            EventKind::Raw(EventCode { name: "BR_INST_RETIRED:ALL_BRANCHES", config: 0xc4 });
        let spec = spec(branches, Some(&pmu(P_CORE, "cpu_atom", 10)), false);
        assert_eq!(spec, Spec { kind: 10, config: 0xc4 });
    }

    #[test]
    fn notes_say_what_is_unknown_and_why() {
        let said = |pmu: &CorePmu, counters: usize| {
            let raw = |e: &&PmuEvent| matches!(e.source, EventKind::Raw(_));
            let fits = |events: &[PmuEvent]| events.iter().filter(raw).count() <= counters;
            let plan = grouping(&wanted(pmu.family, |code| pmu.has(code)), fits);
            notes(pmu, &plan).join("\n")
        };
        expect![[r"
            cpu: on Intel Skylake, Cascade Lake or Cooper Lake server float counts SSE and AVX arithmetic, a fused multiply-add as two, and neither x87 nor conversions nor comparisons
            cpu: no counter for int
            cpu: too few counters for all events, 2 groups take turns"]]
        .assert_eq(&said(&pmu(Cpu::Intel { family: 6, model: 85 }, "cpu", 4), 3));
        expect![[r"
            cpu: Intel family 6 model 9999 is not in the table of events, so only perf's generic events are counted
            cpu: no counter for float, int, load, store"]]
        .assert_eq(&said(&pmu(Cpu::Intel { family: 6, model: 9999 }, "cpu", 4), 4));
        let refused = notes(&pmu(A72, "armv8_cortex_a72", 9), &Grouping::default());
        expect!["armv8_cortex_a72: not used, none of its cores is in the affinity mask"]
            .assert_eq(&refused.join("\n"));
        let taken = Grouping { refused: vec![Role::Cycles], ..Grouping::default() };
        expect!["armv8_cortex_a72: not used, other programs hold its counters"]
            .assert_eq(&notes(&pmu(A72, "armv8_cortex_a72", 9), &taken).join("\n"));
    }

    /// Of 100 ns on CPUs 40 were on this kind of cores; the other kind is there, but its PMU is not used.
    #[test]
    fn a_kind_that_is_not_counted_is_not_made_up() {
        let clock = u64::from(c::PERF_COUNT_SW_TASK_CLOCK);
        let mut counters = Counters::of_software(&[(Role::Instructions, clock)]);
        let readings = [vec![Reading { enabled_ns: 100, running_ns: 40, counts: vec![80] }]];
        counters.alone = false;
        let totals = counters.totals(&readings);
        assert_eq!((totals.instructions, totals.scaled), (Some(80), None));
        // The only PMU counted for less than it was due: others held it.
        counters.alone = true;
        assert_eq!(counters.totals(&readings).instructions, Some(200));
    }

    #[test]
    fn finding_counters_gives_some_or_a_reason() {
        match Counters::find(Path::new("/proc"), Path::new("/sys"), CounterSet::Demand) {
            Ok(found) => assert!(found.descriptors() >= 2, "{found:?}"),
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.starts_with("expected ") && text.contains("perf_event_open"),
                    "{text}"
                );
                assert!(error.cause().errno().is_some());
            }
        }
    }

    #[test]
    fn software_events_run_and_nonsense_does_not() {
        let software = |number: u64| Spec { kind: c::PERF_TYPE_SOFTWARE, config: number };
        assert!(counts(&[software(u64::from(c::PERF_COUNT_SW_TASK_CLOCK))]).is_ok());
        assert!(counts(&[software(9_999)]).is_err());
    }
}
