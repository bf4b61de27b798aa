//! What stretches of code ask of a core.

use super::{Stretch, Weight};
use crate::mca::{Figures, Mca, McaError, Target};
use colocate_machine::performance::WorkKind;
use colocate_model::mix::Class;
use colocate_model::phase::{Known, Phase, Work};
use std::collections::BTreeMap;

/// What `llvm-mca` says of stretches of code.
#[derive(Clone, Debug)]
pub struct Analysis<'a> {
    stretches: &'a [Stretch],
    /// A place in `figures` for each stretch, if it could be simulated.
    of: Vec<Option<usize>>,
    figures: Vec<Figures>,
    target: Target,
    version: u32,
    complaint: Option<String>,
}

/// A stretch with its figures.
#[derive(Clone, Copy, Debug)]
pub struct Simulated<'a> {
    /// The stretch.
    pub stretch: &'a Stretch,
    /// What is said of it, each a line of its text on average.
    pub figures: &'a Figures,
    /// Lines of text for each of its instructions: some are said in two.
    pub lines: f64,
    /// Instructions that it represents; where time is all that is known, in a unit of its own.
    pub instructions: f64,
}

impl<'a> Analysis<'a> {
    /// Has `mca` simulate each different one of `stretches` on the processor `target`.
    ///
    /// # Errors
    /// As [`Mca::analyse`]; a stretch that is refused alone is left out.
    pub fn of(mca: &Mca, target: &Target, stretches: &'a [Stretch]) -> Result<Self, McaError> {
        let mut place_of: BTreeMap<&str, usize> = BTreeMap::new();
        let mut texts: Vec<&str> = Vec::new();
        let place = |stretch: &'a Stretch| {
            *place_of.entry(&stretch.text).or_insert_with(|| {
                texts.push(&stretch.text);
                texts.len() - 1
            })
        };
        let places: Vec<usize> = stretches.iter().map(place).collect();
        let (mut complaint, mut figures) = (None, Vec::new());
        let mut kept = Vec::new();
        for found in mca.analyse(target, &texts)? {
            kept.push(found.as_ref().ok().map(|_| figures.len()));
            match found {
                Ok(found) => figures.push(found),
                Err(error) => complaint = complaint.or(Some(error.to_string())),
            }
        }
        let of = places.into_iter().map(|place| kept.get(place).copied().flatten()).collect();
        let (target, version) = (target.clone(), mca.version());
        Ok(Self { stretches, of, figures, target, version, complaint })
    }

    /// Each stretch that could be simulated, with its figures.
    pub fn simulated(&self) -> impl Iterator<Item = Simulated<'_>> {
        let pairs = self.stretches.iter().zip(&self.of);
        pairs.filter_map(|(stretch, place)| {
            let figures = self.figures.get((*place)?)?;
            #[allow(clippy::cast_precision_loss)] // hundreds
            let lines = figures.instructions.len() as f64 / stretch.instructions as f64;
            let instructions = match stretch.weight {
                Weight::Instructions(count) => count,
                Weight::Time(time) => time / (lines * figures.cycles).max(f64::MIN_POSITIVE),
            };
            Some(Simulated { stretch, figures, lines, instructions })
        })
    }

    /// Part of the instructions (or of the time) that could be simulated; `None` without any.
    #[must_use]
    pub fn covered(&self) -> Option<f64> {
        let weight = |stretch: &Stretch| match stretch.weight {
            Weight::Instructions(weight) | Weight::Time(weight) => weight,
        };
        let sum = |sum: f64, stretch| sum + weight(stretch);
        let all = self.stretches.iter().fold(0.0, sum);
        let simulated = self.simulated().map(|one| one.stretch).fold(0.0, sum);
        (all > 0.0).then(|| simulated / all)
    }

    /// Why something could not be simulated: the first complaint.
    #[must_use]
    pub fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }

    /// The demand of `thread`, or of all threads together, an instruction on average; what machine code
    /// alone does not show is unknown. `None` if nothing of it could be simulated.
    #[must_use]
    pub fn phase(&self, name: &str, thread: Option<u32>) -> Option<Phase> {
        let of_it = |one: &Simulated<'_>| thread.is_none() || one.stretch.thread == thread;
        let mut sums = Sums::default();
        self.simulated().filter(of_it).for_each(|one| sums.add(&one));
        (sums.weight > 0.0).then(|| sums.phase(name, &self.target.cpu, &self.source()))
    }

    /// Where its figures come from.
    #[must_use]
    pub fn source(&self) -> String {
        format!("llvm-mca {}, {}", self.version, self.target.cpu)
    }
}

/// The work of `thread`, or of all threads together, by kind, an instruction on average: all that can be
/// said for a core that LLVM has no table of. `None` without stretches.
#[must_use]
pub fn by_kind(stretches: &[Stretch], thread: Option<u32>) -> Option<Phase> {
    let mut kinds = WorkKind::ALL.map(|kind| (kind, 0.0));
    let mut whole = 0.0;
    for stretch in stretches.iter().filter(|s| thread.is_none() || s.thread == thread) {
        let (Weight::Instructions(weight) | Weight::Time(weight)) = stretch.weight;
        #[allow(clippy::cast_precision_loss)] // hundreds
        let each = weight / stretch.instructions as f64;
        for ((_, sum), count) in kinds.iter_mut().zip(stretch.kinds) {
            *sum += each * f64::from(count);
        }
        whole += weight;
    }
    let used = kinds.into_iter().filter(|(_, sum)| *sum > 0.0);
    let work = Work::Kinds(used.map(|(kind, sum)| (kind, sum / whole)).collect());
    let work = Known::new(work, "machine code, decoded");
    (whole > 0.0).then(|| Phase { work, ..Phase::default() })
}

/// Kinds of each class of work, the first of which is what else the class has.
const KINDS: [(Class, &[WorkKind]); 5] = [
    (Class::Branch, &[WorkKind::Branch]),
    (Class::Float, &[WorkKind::FloatAdd, WorkKind::FloatMul, WorkKind::FloatDiv]),
    (Class::Int, &[WorkKind::Int, WorkKind::IntMul, WorkKind::IntDiv]),
    (Class::Load, &[WorkKind::Load]),
    (Class::Store, &[WorkKind::Store]),
];

/// Work of `thread` that was counted by class, as work by kind: each class is divided as in the thread's stretches. Other work
/// stays as it is.
#[must_use]
pub fn in_kinds(counted: Known<Work>, stretches: &[Stretch], thread: u32) -> Known<Work> {
    let (Some(Work::Classes(mix)), Some(source)) = (counted.get(), counted.source()) else {
        return counted;
    };
    let found = by_kind(stretches, Some(thread));
    let seen = |kind: WorkKind| match found.as_ref().and_then(|phase| phase.work.get()) {
        Some(Work::Kinds(kinds)) => kinds.iter().find(|(of, _)| *of == kind).map_or(0.0, |of| of.1),
        _ => 0.0,
    };
    let mut all = Vec::new();
    for (class, kinds) in KINDS {
        let Some(share) = mix.get(class) else { return counted };
        let whole: f64 = kinds.iter().map(|kind| seen(*kind)).sum();
        let of = |(place, &kind): (usize, &WorkKind)| match (whole > 0.0, place) {
            (true, _) => (kind, share.get() * seen(kind) / whole),
            (false, 0) => (kind, share.get()),
            (false, _) => (kind, 0.0),
        };
        all.extend(kinds.iter().enumerate().map(of).filter(|(_, share)| *share > 0.0));
    }
    Known::new(Work::Kinds(all), format!("{source}; parts of classes by machine code, decoded"))
}

/// Kinds of work whose units some of LLVM's tables lack: those of Golden Cove begin a division in every
/// cycle.
const DIVISIONS: [WorkKind; 2] = [WorkKind::IntDiv, WorkKind::FloatDiv];

/// Where fetching goes on is known when the jump before it has been followed, so taken jumps depend on each
/// other as instructions do, and `llvm-mca` does not know them. Front ends follow one a cycle at best: by
/// Chips and Cheese's measurements ("Popping the Hood on Golden Cove", 2021) Haswell, Sunny Cove, Golden
/// Cove and Zen 3 do, for some 100 to 1,000 jumps; with more they need 2 cycles and 3, which is left out, as
/// are loops of some dozen instructions that some hold ready, and cores that follow two.
const CYCLES_A_JUMP: f64 = 1.0;

/// Figures times weights.
#[derive(Default)]
struct Sums {
    weight: f64,
    slots: f64,
    ports: BTreeMap<Vec<String>, f64>,
    /// Of each kind in the order of [`WorkKind::ALL`].
    kinds: [f64; WorkKind::ALL.len()],
    dependent: f64,
    /// `None` once it is unknown of one stretch.
    divided: Option<f64>,
}

impl Sums {
    fn add(&mut self, one: &Simulated<'_>) {
        let Simulated { stretch, figures, lines, instructions } = one;
        let weight = lines * instructions;
        #[allow(clippy::cast_precision_loss)] // hundreds
        let each = instructions / stretch.instructions as f64;
        let jumps = f64::from(stretch.taken) * CYCLES_A_JUMP * each;
        let divided = figures.dependent_cycles_divided.map(|cycles| (cycles * weight).max(jumps));
        self.divided = match (self.weight > 0.0, self.divided, divided) {
            (false, _, divided) => divided,
            (true, Some(sum), Some(more)) => Some(sum + more),
            (true, ..) => None,
        };
        self.weight += instructions;
        self.slots += weight * figures.slots;
        self.dependent += (weight * figures.dependent_cycles).max(jumps);
        for (sum, count) in self.kinds.iter_mut().zip(stretch.kinds) {
            *sum += each * f64::from(count);
        }
        for (ports, cycles) in &figures.ports {
            *self.ports.entry(ports.clone()).or_default() += weight * cycles;
        }
    }

    fn phase(self, name: &str, cpu: &str, source: &str) -> Phase {
        // Nothing here is known to more digits, and the file is meant to be readable.
        let per_instruction = |sum: f64| (sum / self.weight * 1e6).round() / 1e6;
        let mean = |sum: f64| Known::new(per_instruction(sum), source);
        let groups = self.ports.iter().map(|(ports, sum)| (ports.clone(), per_instruction(*sum)));
        let groups = groups.filter(|(_, cycles)| *cycles > 0.0);
        let kinds = DIVISIONS.map(|kind| (kind, per_instruction(self.kinds[kind as usize])));
        let work = Work::Ports {
            llvm_cpu: cpu.to_owned(),
            groups: groups.collect(),
            kinds: kinds.into_iter().filter(|(_, count)| *count > 0.0).collect(),
        };
        Phase {
            name: name.to_owned(),
            slots: mean(self.slots),
            work: Known::new(work, source),
            dependent_cycles: mean(self.dependent),
            dependent_cycles_divided: self.divided.map_or_else(Known::default, mean),
            ..Phase::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_isa::Isa;
    use colocate_model::Mix;

    /// Four instructions, two of them jumps back: two cycles, half of one for each, where dependencies ask
    /// for a tenth. Of a stretch that jumps nowhere dependencies are all there is. Both together: 0.3.
    #[test]
    fn jumps_that_are_taken_depend_on_each_other() {
        let figures = Figures {
            instructions: Vec::new(),
            slots: 1.0,
            ports: Vec::new(),
            cycles: 0.2,
            dependent_cycles: 0.1,
            dependent_cycles_divided: None,
            width: 6,
        };
        let jump = [vec![0xeb, 0xfc], vec![0x90]];
        let stretch = |times: usize| {
            let blocks = std::iter::repeat_n((0, &jump[..]), times);
            Stretch::of(Isa::X86_64, None, Weight::Instructions(1.0), blocks).unwrap()
        };
        let (jumps, straight) = (Stretch { instructions: 4, ..stretch(3) }, stretch(1));
        let mut sums = Sums::default();
        for stretch in [&jumps, &straight] {
            let one = Simulated { stretch, figures: &figures, lines: 1.0, instructions: 1.0 };
            sums.add(&one);
        }
        let found = sums.phase("", "", "test").dependent_cycles;
        assert!((found.get().unwrap() - 0.3).abs() < 1e-12, "{found:?}");
    }

    /// Two stretches of thread 0, 300 instructions of additions and 100 of divisions.
    #[test]
    fn work_by_kind_is_weighted() {
        let stretch = |thread, weight, bytes: &[u8]| {
            let block = [bytes.to_vec()];
            Stretch::of(Isa::X86_64, Some(thread), Weight::Instructions(weight), [(0, &block[..])])
        };
        let all = [
            stretch(0, 300.0, &[0x01, 0xd8]).unwrap(),
            stretch(0, 100.0, &[0xf7, 0xf3]).unwrap(),
            stretch(1, 600.0, &[0x8b, 0x07]).unwrap(),
        ];
        let kinds = |thread| match by_kind(&all, thread).unwrap().work.get() {
            Some(Work::Kinds(kinds)) => kinds.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(kinds(Some(0)), [(WorkKind::Int, 0.75), (WorkKind::IntDiv, 0.25)]);
        assert_eq!(kinds(None)[2], (WorkKind::Load, 0.6));
        assert_eq!(by_kind(&all, Some(7)), None);
        // Of 400 counted instructions 200 compute with integers; the stretches say how many of these divide.
        let counted = Mix::from_counts(400, [100, 10, 200, 90, 0]);
        let work = in_kinds(Known::new(Work::Classes(counted), "test"), &all, 0);
        let expected = [
            (WorkKind::Branch, 0.25),
            (WorkKind::FloatAdd, 0.025),
            (WorkKind::Int, 0.375),
            (WorkKind::IntDiv, 0.125),
            (WorkKind::Load, 0.225),
        ];
        assert_eq!(work.get(), Some(&Work::Kinds(expected.to_vec())));
    }
}
