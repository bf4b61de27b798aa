//! Losses of programs from others' traffic, level by level, and unfairness of pairs: simulated
//! beside Feliu's figures.
//!
//! # Problem
//! A scheduler against contention gains nothing without contention. Published are a loss of up to
//! 40 % from contention for memory or the first cache, and two pairs of programs with an unfairness
//! of 1.36 and 1.43.
//! # Approach
//! As published: a program beside one to three copies of a [`generator`] that requests lines at a
//! given rate. Copies that load a cache run on PUs that share it, one a core if possible; copies
//! that load the memory run on other cores.
//! # Terms
//! - *Loss*: 1 − the program's speed beside over alone. Its speed is the mean over its phases, by
//!   their time alone.
//! - *Unfairness* of a pair: the greater slowdown over the lesser.
//! - *Interval*: the least and the greatest over the sets of assumptions.
//! # Properties
//! - **More traffic never helps** -> test `losses_rise_with_the_rate`
//! - **Nothing is lost beside nothing** -> the first point of each curve

mod generator;
mod table;

use crate::parts::seat;
use crate::replication::definition::text;
use crate::replication::drawn::SyntheticProgram;
use crate::replication::{StudyError, demand};
use crate::simulate::figures::Spread;
use colocate_figures::stats::{Estimate, median};
use colocate_machine::{CacheKind, Machine, Nanos, Performance, PuIdx};
use colocate_model::phase::Demand;
use colocate_model::{Assumptions, Model, PlacedTask};
use generator::{Gap, LineSource};
use serde::{Deserialize, Serialize};

/// Version of the report.
pub const VERSION: u32 = 1;

/// The study, as read from its TOML file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ContentionDefinition {
    /// Version of the file's form.
    pub version: u32,
    /// Name of the study.
    pub name: String,
    /// Default machine.
    pub machine: String,
    /// Number of sets of assumptions; at least 1.
    pub draws: u32,
    /// Number of drawn programs.
    pub programs: usize,
    /// Time that a recorded program takes alone. Never 0.
    #[serde(deserialize_with = "text")]
    pub length: Nanos,
    /// Most copies of the generator.
    pub copies: usize,
    /// Rates of a copy alone, lines a microsecond.
    pub rates: Vec<f64>,
    /// Rates of accesses to the first cache, a microsecond.
    pub rates_of_first: Vec<f64>,
    /// Published figures.
    pub published: PublishedLosses,
}

/// Published figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PublishedLosses {
    /// Greatest loss, in percent.
    pub loss: f64,
    /// Unfairness of a pair on two cores.
    pub two_cores: f64,
    /// Unfairness of a pair on one core.
    pub one_core: f64,
}

/// Input of the study.
#[derive(Debug)]
pub struct ContentionStudy<'a> {
    /// The definition.
    pub definition: &'a ContentionDefinition,
    /// The machine.
    pub machine: &'a Machine,
    /// Speeds of the machine.
    pub performance: &'a Performance,
    /// Programs: two or more.
    pub programs: &'a [SyntheticProgram],
    /// Sets of assumptions, the default set first; never empty.
    pub draws: &'a [Assumptions],
}

/// Losses beside copies of a rate.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct LossPoint {
    /// Requests of each copy alone, lines a microsecond.
    pub rate: f64,
    /// Requests of all copies together beside a program, lines a microsecond: median over the
    /// programs, default assumptions.
    pub reached: f64,
    /// Median loss of the programs.
    pub median: Estimate,
    /// Largest loss of a program.
    pub greatest: Estimate,
    /// Program with the largest loss under the default assumptions.
    pub of: String,
}

/// A curve of losses over rates.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// Loaded level: `memory` or a cache, as `L3`.
    pub level: String,
    /// Number of copies.
    pub copies: usize,
    /// Whether the copies share the program's core.
    pub siblings: bool,
    /// Points by rate, up to the highest rate of a copy alone.
    pub points: Vec<LossPoint>,
}

/// Unfairness of all pairs in a placement.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct PairUnfairness {
    /// Whether both programs are on the same core.
    pub siblings: bool,
    /// Published unfairness of a pair.
    pub published: f64,
    /// Number of pairs.
    pub pairs: usize,
    /// Median unfairness.
    pub median: Estimate,
    /// Largest unfairness.
    pub greatest: Estimate,
    /// Share of pairs at least as unfair as the published pair.
    pub as_published: Estimate,
    /// The most unfair pair under the default assumptions, the slower program first, with the
    /// memory traffic of each alone, t/µs.
    pub most_unfair: [(String, f64); 2],
}

/// Losses by traffic of co-runners, and unfairness of pairs, simulated.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct ContentionReport {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// Name of the machine.
    pub machine: String,
    /// Number of sets of assumptions.
    pub draws: usize,
    /// Names of the programs.
    pub programs: Vec<String>,
    /// Curves by level and number of copies.
    pub curves: Vec<Curve>,
    /// Pairs on different cores, and on the same.
    pub pairs: Vec<PairUnfairness>,
    /// Published figures.
    #[serde(skip)]
    pub published: PublishedLosses,
}

/// Placement of copies for a curve.
#[derive(Clone, Debug)]
struct CopyPlacement {
    source: LineSource,
    siblings: bool,
    pus: Vec<PuIdx>,
}

/// A program under a set of assumptions: of each phase the demand, the share of the program's time
/// alone, and the speed alone in instructions a second.
type Ready = Vec<(Demand, f64, f64)>;

impl ContentionStudy<'_> {
    /// Makes the study.
    ///
    /// # Errors
    /// [`StudyError`] if the machine or a program cannot be modelled.
    pub fn report(&self) -> Result<ContentionReport, StudyError> {
        let published = self.definition.published;
        let first = &self.machine.cores[0];
        let under = self.draws.iter().map(|draw| Under::new(self, draw));
        let under: Vec<Under<'_>> = under.collect::<Result<_, _>>()?;
        let situations = self.situations();
        let curves = situations.iter().map(|situation| self.curve(&under, situation));
        let curves = curves.collect::<Result<_, _>>()?;
        let apart = self.machine.cores.get(1).map(|other| [first.pus[0], other.pus[0]]);
        let apart = apart.map(|pus| self.pairs(&under, pus, false, published.two_cores));
        let together = first.pus.first_chunk().copied();
        let together = together.map(|pus| self.pairs(&under, pus, true, published.one_core));
        Ok(ContentionReport {
            version: VERSION,
            machine: self.machine.name.clone(),
            draws: self.draws.len(),
            programs: self.programs.iter().map(|program| program.name.clone()).collect(),
            curves,
            pairs: apart.into_iter().chain(together).collect(),
            published,
        })
    }

    /// Situations for memory and each cache level, with one copy and with the most.
    fn situations(&self) -> Vec<CopyPlacement> {
        let cores = &self.machine.cores;
        let others: Vec<PuIdx> = cores.iter().skip(1).map(|core| core.pus[0]).collect();
        let mut all = Vec::new();
        self.add_situations(&mut all, LineSource::Memory, false, &others);
        for cache in self.performance.caches.iter().rev() {
            let apart = others.iter().copied().filter(|pu| self.shares(cache.level, *pu));
            let apart: Vec<PuIdx> = apart.collect();
            // Where no other core shares the cache, siblings do.
            let siblings = apart.is_empty();
            let pus = if siblings { &cores[0].pus[1..] } else { &apart };
            self.add_situations(&mut all, LineSource::Cache(cache.level), siblings, pus);
        }
        all
    }

    /// Adds a situation with one copy and one with the most, on the first of `pus`; none without PUs.
    fn add_situations(
        &self,
        all: &mut Vec<CopyPlacement>,
        source: LineSource,
        siblings: bool,
        pus: &[PuIdx],
    ) {
        let most = pus.len().min(self.definition.copies);
        let counts = if most > 1 { vec![1, most] } else { vec![most] };
        for count in counts.into_iter().filter(|count| *count > 0) {
            all.push(CopyPlacement { source, siblings, pus: pus[..count].to_vec() });
        }
    }

    /// Whether a PU shares the program's cache of a level; true if the level is not described.
    fn shares(&self, level: u8, pu: PuIdx) -> bool {
        let program = self.machine.cores[0].pus[0];
        let over = self.machine.caches.iter().find(|cache| {
            cache.level == level
                && cache.kind != CacheKind::Instruction
                && cache.pus.contains(&program)
        });
        over.is_none_or(|cache| cache.pus.contains(&pu))
    }

    fn curve(&self, under: &[Under<'_>], at: &CopyPlacement) -> Result<Curve, StudyError> {
        let level = match at.source {
            LineSource::Memory => "memory".to_owned(),
            LineSource::Cache(level) => format!("L{level}"),
        };
        let ContentionDefinition { rates, rates_of_first, .. } = self.definition;
        let rates = if at.source == LineSource::Cache(1) { rates_of_first } else { rates };
        let mut points = Vec::new();
        for &rate in rates {
            // The gap is the generator's, so it is the same under all assumptions.
            let (gap, rate) = under[0].gap(at, rate)?;
            // At the highest rate of a copy: further points would repeat this one.
            if points.last().is_some_and(|last: &LossPoint| last.rate >= rate) {
                break;
            }
            let found = under.iter().map(|under| under.losses(at, gap));
            let found: Vec<(Vec<f64>, f64)> = found.collect::<Result<_, _>>()?;
            let medians = found.iter().map(|(each, _)| median(each).unwrap_or(0.0));
            let greatest = found.iter().map(|(each, _)| each.iter().copied().fold(0.0, f64::max));
            let losses = &found[0].0;
            let most = (0..losses.len()).max_by(|&a, &b| losses[a].total_cmp(&losses[b]));
            points.push(LossPoint {
                rate,
                reached: found[0].1,
                median: spread(medians),
                greatest: spread(greatest),
                of: most.map(|at| self.programs[at].name.clone()).unwrap_or_default(),
            });
        }
        Ok(Curve { level, copies: at.pus.len(), siblings: at.siblings, points })
    }

    fn pairs(
        &self,
        under: &[Under<'_>],
        pus: [PuIdx; 2],
        siblings: bool,
        published: f64,
    ) -> PairUnfairness {
        let count = self.programs.len();
        let all: Vec<[usize; 2]> =
            (0..count).flat_map(|a| (a + 1..count).map(move |b| [a, b])).collect();
        let found =
            under.iter().map(|under| all.iter().map(|pair| under.slowdowns(pus, *pair)).collect());
        let found: Vec<Vec<[f64; 2]>> = found.collect();
        let unfair =
            found.iter().map(|each| each.iter().map(|[a, b]| a.max(*b) / a.min(*b)).collect());
        let unfair: Vec<Vec<f64>> = unfair.collect();
        let most = (0..all.len()).max_by(|&a, &b| unfair[0][a].total_cmp(&unfair[0][b]));
        let most = most.map_or([0, 1], |at| {
            let [first, second] = found[0][at];
            let [a, b] = all[at];
            if first >= second { [a, b] } else { [b, a] }
        });
        PairUnfairness {
            siblings,
            published,
            pairs: all.len(),
            median: spread(unfair.iter().map(|each| median(each).unwrap_or(1.0))),
            greatest: spread(unfair.iter().map(|each| each.iter().copied().fold(1.0, f64::max))),
            as_published: spread(unfair.iter().map(|each| share_from(each, published))),
            most_unfair: most.map(|at| (self.programs[at].name.clone(), self.programs[at].traffic)),
        }
    }
}

impl CopyPlacement {
    /// Gap of a size on a logarithmic scale from 0, which is no gap.
    fn gap(&self, size: f64) -> Gap {
        let size = size.exp() - 1.0;
        if self.siblings { Gap::Stalled(size) } else { Gap::Nops(size) }
    }
}

/// Share of values that are at least this.
fn share_from(values: &[f64], least: f64) -> f64 {
    values.iter().filter(|it| **it >= least).count() as f64 / values.len() as f64
}

/// A machine and the programs under a set of assumptions.
struct Under<'a> {
    study: &'a ContentionStudy<'a>,
    model: Model<'a>,
    draw: Assumptions,
    programs: Vec<Ready>,
}

impl<'a> Under<'a> {
    fn new(study: &'a ContentionStudy<'a>, draw: &Assumptions) -> Result<Self, StudyError> {
        // The core of the programs; copies run beside them.
        let kind = &study.performance.kinds[study.machine.cores[0].kind.idx()];
        let model = Model::new(study.machine, study.performance, *draw)?;
        let pu = study.machine.cores[0].pus[0];
        let programs = study.programs.iter().map(|program| -> Result<Ready, StudyError> {
            let mut phases = Vec::new();
            for (place, phase) in (0_u32..).zip(&program.phases) {
                let of = program.course.iter().filter(|(at, _)| *at == place);
                let instructions = of.map(|&(_, ran)| ran as f64).sum::<f64>();
                let demand = demand(phase, kind, draw)?;
                let alone = model.alone(&seat(pu, &demand, 0)).instructions_per_second;
                phases.push((demand, instructions / alone, alone));
            }
            let all: f64 = phases.iter().map(|(_, time, _)| time).sum();
            phases.iter_mut().for_each(|(_, time, _)| *time /= all);
            // Phases that the course never runs.
            phases.retain(|(_, share, _)| *share > 0.0);
            Ok(phases)
        });
        let programs = programs.collect::<Result<_, _>>()?;
        Ok(Self { study, model, draw: *draw, programs })
    }

    fn generator(&self, at: &CopyPlacement, gap: Gap) -> Result<Demand, StudyError> {
        let study = self.study;
        let core = study.machine.core_of(at.pus[0]);
        let kind = &study.performance.kinds[study.machine.cores[core.idx()].kind.idx()];
        let phase = generator::phase(study.machine, study.performance, at.source, gap);
        demand(&phase, kind, &self.draw)
    }

    /// The gap with which a copy has this rate alone, and the rate; the highest possible rate if
    /// that is lower.
    fn gap(&self, at: &CopyPlacement, rate: f64) -> Result<(Gap, f64), StudyError> {
        /// Logarithm of the largest gap: a line in some million cycles.
        const MOST: f64 = 15.0;
        let most = self.reached(at, at.gap(0.0))?;
        if most <= rate {
            return Ok((at.gap(0.0), most));
        }
        let mut low = 0.0_f64;
        let mut high = MOST;
        // No gap has a rate of 0: the largest one stands for it.
        while rate > 0.0 && high - low > 1e-9 {
            let middle = f64::midpoint(low, high);
            if self.reached(at, at.gap(middle))? > rate {
                low = middle;
            } else {
                high = middle;
            }
        }
        // At this end the rate is not exceeded.
        Ok((at.gap(high), rate))
    }

    /// Rate of a copy alone with a gap, lines a microsecond.
    fn reached(&self, at: &CopyPlacement, gap: Gap) -> Result<f64, StudyError> {
        let demand = self.generator(at, gap)?;
        let speed = self.model.alone(&seat(at.pus[0], &demand, 1)).instructions_per_second;
        Ok(lines(speed, gap))
    }

    /// Loss of each program beside copies, and traffic of all copies together, lines a microsecond:
    /// the median over the programs.
    fn losses(&self, at: &CopyPlacement, gap: Gap) -> Result<(Vec<f64>, f64), StudyError> {
        let generator = self.generator(at, gap)?;
        let pu = self.study.machine.cores[0].pus[0];
        let copies = (1..).zip(&at.pus).map(|(space, &pu)| seat(pu, &generator, space));
        let copies: Vec<PlacedTask<'_>> = copies.collect();
        let mut losses = Vec::new();
        let mut reached = Vec::new();
        for program in &self.programs {
            let mut speed = 0.0;
            let mut requested = 0.0;
            for (demand, share, alone) in program {
                let mut seats = vec![seat(pu, demand, 0)];
                seats.extend_from_slice(&copies);
                let found = self.model.predict(&seats);
                speed += share * found.tasks[0].instructions_per_second / alone;
                let all = found.tasks[1..].iter().map(|task| task.instructions_per_second);
                requested += share * all.map(|speed| lines(speed, gap)).sum::<f64>();
            }
            losses.push(1.0 - speed);
            reached.push(requested);
        }
        Ok((losses, median(&reached).unwrap_or(0.0)))
    }

    /// Slowdowns of two programs side by side, with random overlap of their phases.
    fn slowdowns(&self, pus: [PuIdx; 2], pair: [usize; 2]) -> [f64; 2] {
        let [a, b] = pair.map(|at| &self.programs[at]);
        let mut speeds = [0.0; 2];
        for (first, share_a, alone_a) in a {
            for (second, share_b, alone_b) in b {
                let seats = [seat(pus[0], first, 0), seat(pus[1], second, 1)];
                let found = self.model.predict(&seats);
                let both = [(0, alone_a), (1, alone_b)];
                for (at, alone) in both {
                    speeds[at] +=
                        share_a * share_b * found.tasks[at].instructions_per_second / alone;
                }
            }
        }
        // Speeds are relative to alone.
        speeds.map(|speed| 1.0 / speed)
    }
}

/// Lines a microsecond at a speed in instructions a second.
fn lines(speed: f64, gap: Gap) -> f64 {
    speed / gap.instructions() / 1e6
}

/// The first value, with the smallest and largest of all as the interval.
fn spread(values: impl Iterator<Item = f64>) -> Estimate {
    Spread::over(&values.collect::<Vec<_>>(), 0.0).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::drawn::draw;
    use crate::testing::machine;

    fn report(name: &str) -> ContentionReport {
        let (machine, performance) = machine(name);
        let programs = draw(&machine, &performance, 6, 1).unwrap();
        let draws = Assumptions::sample(2, 1);
        let study = ContentionStudy {
            definition: &crate::files::read("contention").unwrap(),
            machine: &machine,
            performance: &performance,
            programs: &programs,
            draws: &draws,
        };
        study.report().unwrap()
    }

    #[test]
    fn losses_rise_with_the_rate() {
        for name in ["xeon-x3320", "xeon-e5645", "power8-10c"] {
            for curve in report(name).curves {
                assert!(curve.points.len() > 1, "{name} {}", curve.level);
                assert!(
                    curve.siblings || curve.points[0].greatest.value < 1e-3,
                    "{name} {curve:?}"
                );
                for pair in curve.points.windows(2) {
                    assert!(
                        pair[0].median.value <= pair[1].median.value + 1e-4,
                        "{name} {curve:?}"
                    );
                }
            }
        }
    }

    /// The X3320 has two cores at each L2, so one copy; its memory three. The E5645's L2 and L1 are
    /// a core's own.
    #[test]
    fn copies_share_what_they_load() {
        let of = |name| -> Vec<(String, usize, bool)> {
            let curves = report(name).curves;
            curves.into_iter().map(|curve| (curve.level, curve.copies, curve.siblings)).collect()
        };
        let expect = |all: &[(&str, usize, bool)]| -> Vec<(String, usize, bool)> {
            all.iter().map(|&(level, copies, siblings)| (level.into(), copies, siblings)).collect()
        };
        assert_eq!(
            of("xeon-x3320"),
            expect(&[("memory", 1, false), ("memory", 3, false), ("L2", 1, false)])
        );
        assert_eq!(
            of("xeon-e5645"),
            expect(&[
                ("memory", 1, false),
                ("memory", 3, false),
                ("L3", 1, false),
                ("L3", 3, false),
                ("L2", 1, true),
                ("L1", 1, true),
            ])
        );
    }

    #[test]
    fn a_pair_is_counted_once() {
        let found = report("xeon-e5645");
        assert_eq!(found.pairs.iter().map(|pairs| pairs.pairs).collect::<Vec<_>>(), [15, 15]);
        assert!(found.pairs.iter().all(|pairs| pairs.median.value >= 1.0));
        // Without siblings only those on different cores.
        assert_eq!(report("xeon-x3320").pairs.len(), 1);
    }
}
