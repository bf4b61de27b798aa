//! From the results of all pieces to the report.
//!
//! Means over cells are geometric. Ratios, intervals and verdicts come from
//! [`crate::simulate::figures`]. For each pair of schedulers with a published *order*, the report
//! has their ratio with its interval, and whether its sign is the same under all assumptions. No
//! least difference is needed: effects outside the model are missing for both schedulers. A
//! difference below the resolution of the model is marked. One seed or one set of assumptions
//! decides nothing.

use super::definition::{Cells, Detail, FactKind, FactTable};
use super::pace::{DemandKind, ProgramSpeed};
use super::report::{
    Beside, CellFigures, CellRow, Fact, FactFigures, MetricFigures, OrderComparison, PartFigures,
    PolicyMetrics, ProgramFigures, PublishedRatio, SimulatedOrder, StudyReport, VERSION,
};
use super::{
    PolicyRuns, Study, StudyCell, StudyCells, StudyError, TableCells, bound::BOUND, count, detail,
    layout, mixes, ratio as ratio_of, siblings,
};
use crate::metric::Metric;
use crate::published;
use crate::simulate::figures::{FigureColumn, RESOLUTION, Spread};
use colocate_figures::stats;
use colocate_machine::{Machine, Nanos};
use colocate_model::Assumptions;

impl StudyCells<'_> {
    /// The report of all pieces, in their order; `inputs` is a digest of [`Self::inputs`].
    ///
    /// # Errors
    /// [`StudyError`] if a fact or a detail cannot be modelled.
    ///
    /// # Panics
    /// If `done` does not have [`Self::count`] pieces.
    pub fn report(&self, done: &[PolicyRuns], inputs: &str) -> Result<StudyReport, StudyError> {
        assert_eq!(done.len(), self.count(), "every piece");
        let study = &self.study;
        let definition = study.definition;
        let mut rest = done;
        let mut parts = Vec::new();
        let mut notes = definition.notes.clone();
        for table in &self.tables {
            let (own, others) = rest.split_at(table.cells.len() * study.draws.len());
            rest = others;
            let figures = Compared { study, table, done: own }.figures(self)?;
            if !figures.missing.is_empty() {
                let missing = figures.missing.join(", ");
                notes.push(format!("{}: without {missing}, which are not there", figures.name));
            }
            parts.push(figures);
        }
        let round = definition.round.unwrap_or_default();
        let times = [
            ("{length}", definition.length),
            ("{quantum}", definition.quantum),
            // 0 where the summary has no {round}.
            ("{round}", round),
        ];
        let summary = times.into_iter().fold(definition.summary.clone(), |text, (name, time)| {
            text.replace(name, &time.as_secs_f64().to_string())
        });
        Ok(StudyReport {
            version: VERSION,
            simulated: true,
            colocate: env!("CARGO_PKG_VERSION").to_owned(),
            study: definition.name.clone(),
            summary,
            machine: study.machine.name.clone(),
            draws: count(study.draws.len()),
            seeds: definition.seeds,
            seed: study.seed,
            length_s: definition.length.as_secs_f64(),
            quantum_s: definition.quantum.as_secs_f64(),
            round_s: definition.round.map(Nanos::as_secs_f64),
            inputs: inputs.to_owned(),
            resolution: RESOLUTION,
            programs: self.program_figures(),
            facts: definition.facts.iter().map(|it| facts(study, it)).collect::<Result<_, _>>()?,
            parts,
            notes,
        })
    }

    fn program_figures(&self) -> Vec<ProgramFigures> {
        let both = self.programs.iter().zip(&self.alone);
        let figures = both.map(|(program, alone)| ProgramFigures {
            name: program.name.clone(),
            phases: count(program.phases.len()),
            memory: alone.memory,
            first_cache: alone.first_cache.unwrap_or(0.0),
            loss: alone.loss,
        });
        figures.collect()
    }
}

fn facts(study: &Study<'_>, form: &FactTable) -> Result<FactFigures, StudyError> {
    let facts = match form.kind {
        FactKind::SmtBench => siblings::facts(study, &study.definition.kernels)?,
        FactKind::FastCore => {
            let slow = layout::all_slow(study.machine);
            let each = study.draws.iter().map(|draw| fast_core(study, &slow, *draw));
            let each = each.collect::<Result<Vec<_>, _>>()?;
            let value = Spread::over(&each, 0.0);
            vec![Fact { name: "a fast core".to_owned(), value, published: None }]
        }
    };
    Ok(FactFigures { text: form.text.clone(), facts })
}

/// Speed of a typical thread alone on a fast core, relative to a core of the `slow` machine.
fn fast_core(study: &Study<'_>, slow: &Machine, draw: Assumptions) -> Result<f64, StudyError> {
    let fast = ProgramSpeed::new(study.machine, study.performance, draw, DemandKind::Typical)?;
    let slow = ProgramSpeed::new(slow, study.performance, draw, DemandKind::Typical)?;
    Ok(fast.alone() / slow.alone())
}

/// Results of the cells of a part.
#[derive(Clone, Copy)]
struct Compared<'a> {
    study: &'a Study<'a>,
    table: &'a TableCells<'a>,
    done: &'a [PolicyRuns],
}

impl Compared<'_> {
    fn figures(self, work: &StudyCells<'_>) -> Result<PartFigures, StudyError> {
        let part = self.table.part;
        let published = published::rows(&self.study.definition.name);
        let other = published.filter(|row| row.figure == part.name).map(PublishedRatio::from);
        let cells = self.table.reported.iter();
        let cells = cells.map(|(cell, simulated)| self.bounded(work, cell, *simulated));
        let cells = named(cells.collect::<Result<_, _>>()?);
        let all = self.table.reported.len();
        let rows = if part.is_averaged() {
            vec![self.row(None)]
        } else {
            (0..all).map(|cell| self.row(Some(cell))).collect()
        };
        // With fewer mixes than that, the last one.
        let shown = part.detail.map(|Detail { mix, what }| (mix.min(all) - 1, what));
        let detail =
            shown.map(|(mix, what)| detail::of(work, self.table, mix, what)).transpose()?;
        Ok(PartFigures {
            name: part.name.clone(),
            text: part.text.clone(),
            ratios: part.ratios,
            missing: part.missing(),
            baselines: part.baselines.clone(),
            cells,
            rows,
            orders: self.orders(),
            published: other.collect(),
            picture: part.picture.clone(),
            detail,
        })
    }

    /// A cell with the bound on its turnaround under the default assumptions, if the part has it.
    fn bounded(
        self,
        work: &StudyCells<'_>,
        cell: &CellFigures,
        simulated: usize,
    ) -> Result<CellFigures, StudyError> {
        let mut cell = cell.clone();
        if let (StudyCell::Mix(mix), Cells::Mixes(form)) =
            (&self.table.cells[simulated], &self.table.part.cells)
            && form.bound
            && let Some(bound) = mixes::bound(self.study, form, &work.programs, mix)?
        {
            cell.values.insert(BOUND.to_owned(), bound);
        }
        Ok(cell)
    }

    /// Numbers of sets of assumptions and of seeds.
    fn repetitions(self) -> [usize; 2] {
        [self.study.draws.len(), self.study.definition.seeds as usize]
    }

    /// Figures of a policy in one cell, or of the geometric mean over all cells.
    fn column(self, cell: Option<usize>, policy: usize, metric: usize) -> FigureColumn {
        let [draws, seeds] = self.repetitions();
        let runs = (0..draws * seeds).map(|run| [run / seeds, run % seeds]);
        let figures = runs.map(|run| match cell {
            Some(cell) => self.of_run(cell, policy, metric, run),
            None => {
                let cells = 0..self.table.reported.len();
                let each = cells.map(|cell| self.of_run(cell, policy, metric, run));
                stats::geometric_mean(&each.collect::<Option<Vec<f64>>>()?)
            }
        });
        FigureColumn { figures: figures.collect(), seeds }
    }

    /// Figure of a policy in one cell under one set of assumptions and one seed.
    fn of_run(
        self,
        cell: usize,
        policy: usize,
        metric: usize,
        [draw, seed]: [usize; 2],
    ) -> Option<f64> {
        let [draws, _] = self.repetitions();
        let (_, simulated) = &self.table.reported[cell];
        self.done[simulated * draws + draw][policy][seed][metric]
    }

    fn row(self, cell: Option<usize>) -> CellRow {
        let names = self.table.part.names();
        let policies = names.into_iter().enumerate().map(|(place, policy)| PolicyMetrics {
            metrics: (0..self.table.part.metrics.len())
                .map(|metric| self.metric(cell, (place, &policy), metric))
                .collect(),
            policy,
        });
        CellRow { cell: cell.map(count), policies: policies.collect() }
    }

    fn metric(
        self,
        cell: Option<usize>,
        (place, policy): (usize, &str),
        at: usize,
    ) -> MetricFigures {
        let part = self.table.part;
        let metric = part.metrics[at];
        let own = self.column(cell, place, at);
        let bases = part.baselines.iter().filter(|base| *base != policy && metric.is_compared());
        let beside = bases.filter_map(|base| self.beside(cell, place, at, &own, base));
        let mut published = published::rows(&self.study.definition.name);
        let published = published.find(|row| row.case == policy && row.figure == metric.name());
        MetricFigures {
            metric,
            value: own.spread(),
            beside: beside.collect(),
            of_oracle: cell.and_then(|cell| self.of_oracle(cell, place, at)),
            published: published.map(PublishedRatio::from),
        }
    }

    /// Comparison of the policy at `place` with a baseline; `None` if the part does not have it.
    fn beside(
        self,
        cell: Option<usize>,
        place: usize,
        at: usize,
        own: &FigureColumn,
        base: &str,
    ) -> Option<Beside> {
        let part = self.table.part;
        let metric = part.metrics[at];
        let of = part.names().iter().position(|name| name == base)?;
        let base_column = self.column(cell, of, at);
        // The ratio of times is a speed-up, so the baseline is the numerator.
        let (ratio, less) = match metric {
            Metric::Time => (base_column.ratio(own), false),
            _ => (own.ratio(&base_column), metric.less_is_better()),
        };
        let (verdict, unresolved) = own.judged(less, ratio);
        let [draws, _] = self.repetitions();
        let cells = self.table.reported.iter().filter(|_| cell.is_none());
        let by_cell = cells.map(|(_, simulated)| {
            let done = &self.done[simulated * draws..][..draws];
            Spread::over_draws(done.iter().map(|done| ratio_of(done, [place, of], at)))
        });
        let by_cell = by_cell.collect();
        Some(Beside { baseline: base.to_owned(), ratio, verdict, unresolved, by_cell })
    }

    /// The policy's part of the time that the oracle saves. It is taken of means over the seeds, so
    /// that seeds lucky for the first policy get no more weight.
    fn of_oracle(self, cell: usize, policy: usize, metric: usize) -> Option<Spread> {
        let part = self.table.part;
        let oracle = part.names().len() - 1;
        // Neither the first policy, with which others are compared, nor the oracle.
        let is_between = (1..oracle).contains(&policy) && part.has_oracle();
        if !is_between || part.metrics[metric] != Metric::Time {
            return None;
        }
        let [draws, _] = self.repetitions();
        let (_, cell) = self.table.reported[cell];
        Spread::over_draws(self.done[cell * draws..][..draws].iter().map(|done| {
            let os = mean_over_seeds(done, 0, metric)?;
            let own = mean_over_seeds(done, policy, metric)?;
            let best = mean_over_seeds(done, oracle, metric)?;
            // A part of next to nothing would be noise.
            (os / best - 1.0 >= RESOLUTION).then(|| (os - own) / (os - best))
        }))
    }

    /// Published orders between policies of the part, by metrics of the part.
    fn orders(self) -> Vec<OrderComparison> {
        let orders = published::orders(&self.study.definition.name);
        orders.filter_map(|each| self.order(each)).collect()
    }

    fn order(self, published: &published::PublishedOrder) -> Option<OrderComparison> {
        let &published::PublishedOrder { figure, better, than, source, .. } = published;
        let part = self.table.part;
        let at = part.metrics.iter().position(|metric| metric.name() == figure)?;
        let names = part.names();
        let [first, second] = [better, than].map(|name| names.iter().position(|each| each == name));
        let ratio = self.column(None, first?, at).ratio(&self.column(None, second?, at));
        // Chance and assumptions show only in a range over several seeds and sets.
        let [draws, seeds] = self.repetitions();
        let known = ratio.filter(|_| seeds > 1 && draws > 1);
        let found = found(known, part.metrics[at].less_is_better());
        let large = known.is_some_and(|ratio| (ratio.value - 1.0).abs() >= RESOLUTION);
        Some(OrderComparison {
            metric: part.metrics[at],
            better: better.to_owned(),
            than: than.to_owned(),
            ratio,
            found,
            resolved: large && found != SimulatedOrder::Open,
            source: source.to_owned(),
        })
    }
}

/// Mean of a policy's figure over the seeds of a piece; `None` if a run did not end.
fn mean_over_seeds(done: &PolicyRuns, policy: usize, metric: usize) -> Option<f64> {
    let each = done[policy].iter().map(|run| run[metric]);
    stats::mean(&each.collect::<Option<Vec<f64>>>()?)
}

/// Whether the ratio has the published sign under all assumptions.
fn found(ratio: Option<Spread>, less_is_better: bool) -> SimulatedOrder {
    match ratio {
        Some(ratio) if ratio.high < 1.0 && less_is_better => SimulatedOrder::Same,
        Some(ratio) if ratio.low > 1.0 && !less_is_better => SimulatedOrder::Same,
        Some(ratio) if ratio.high < 1.0 || ratio.low > 1.0 => SimulatedOrder::Reversed,
        _ => SimulatedOrder::Open,
    }
}

/// Cells with names made of the labels in which they differ, or of the first label if none differ.
fn named(mut cells: Vec<CellFigures>) -> Vec<CellFigures> {
    let labels = cells.first().map_or(&[][..], |cell| &cell.labels).to_vec();
    let shown = (0..labels.len())
        .filter(|&place| cells.iter().any(|cell| cell.labels[place] != labels[place]));
    let shown: Vec<usize> = shown.collect();
    let shown = if shown.is_empty() { vec![0] } else { shown };
    for cell in &mut cells {
        let name = shown.iter().map(|&place| &*cell.labels[place].1);
        cell.name = name.collect::<Vec<_>>().join(", ");
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::super::definition::PolicyStudyDefinition;
    use super::super::{Kept, Study};
    use super::*;
    use crate::simulate::figures::{SimulatedVerdict, Unresolved};
    use crate::testing::machine;

    /// The first part of a study of which every run has the figures that `run` says, by cell, draw and policy.
    fn part(
        definition: &mut PolicyStudyDefinition,
        [draws, seeds]: [usize; 2],
        run: impl Fn([usize; 3]) -> Vec<Option<f64>>,
    ) -> PartFigures {
        definition.parts.truncate(1);
        definition.parts[0].detail = None;
        definition.facts.clear();
        definition.seeds = count(seeds);
        let (machine, performance) = machine(&definition.machine);
        let all = vec![Assumptions::default(); draws];
        let study = Study {
            definition,
            machine: &machine,
            performance: &performance,
            draws: &all,
            seed: 0,
        };
        let work = StudyCells::new(study).unwrap();
        let piece = |piece: usize| -> PolicyRuns {
            let [policies, ..] = work.shape(piece).unwrap();
            let of =
                |policy| -> Vec<Kept> { vec![run([piece / draws, piece % draws, policy]); seeds] };
            (0..policies).map(of).collect()
        };
        let done: Vec<PolicyRuns> = (0..work.count()).map(piece).collect();
        work.report(&done, "").unwrap().parts.remove(0)
    }

    /// So many mixes, under `os` and `mmas`, with turnarounds by mix, draw and policy.
    fn mixes(
        count: usize,
        repetitions: [usize; 2],
        turnaround: impl Fn([usize; 3]) -> Option<f64>,
    ) -> PartFigures {
        let mut definition = PolicyStudyDefinition::built_in("feliu-1").unwrap();
        definition.programs = 8;
        definition.mixes().for_each(|mixes| (mixes.count, mixes.traffic) = (count, None));
        definition.parts[0].policies = ["os", "mmas"].map(str::to_owned).to_vec();
        part(&mut definition, repetitions, |run| vec![turnaround(run), Some(1.0), Some(1.0)])
    }

    /// Two mixes, one draw, two seeds. Under `os` 4 and 9, so 6 s; under the other one 2 and 9: 3·√2. The ratio is
    /// √½, in the mixes ½ and 1.
    #[test]
    fn geometric_means_over_mixes() {
        let times = [[4.0, 2.0], [9.0, 9.0]];
        let found = mixes(2, [1, 2], |[mix, _, policy]| Some(times[mix][policy]));
        let [os, mmas] = &found.rows[0].policies[..] else { panic!("two") };
        assert!((os.metrics[0].value.unwrap().value - 6.0).abs() < 1e-9);
        assert!(os.metrics[0].beside.is_empty() && mmas.metrics[0].published.is_some());
        let beside = &mmas.metrics[0].beside[0];
        assert!((beside.ratio.unwrap().value - 0.5_f64.sqrt()).abs() < 1e-9);
        let by_cell: Vec<f64> = beside.by_cell.iter().map(|it| it.unwrap().value).collect();
        assert!((by_cell[0] - 0.5).abs() < 1e-12 && (by_cell[1] - 1.0).abs() < 1e-12);
        assert_eq!(beside.unresolved, Some(Unresolved::OneDraw));
    }

    #[test]
    fn the_sign_makes_the_order() {
        let spread = |low, high| Some(Spread { value: f64::midpoint(low, high), low, high });
        assert_eq!(found(spread(0.9, 0.99), true), SimulatedOrder::Same);
        assert_eq!(found(spread(0.9, 0.99), false), SimulatedOrder::Reversed);
        assert_eq!(found(spread(1.01, 1.1), false), SimulatedOrder::Same);
        assert_eq!(found(spread(0.99, 1.1), true), SimulatedOrder::Open);
        assert_eq!(found(None, true), SimulatedOrder::Open);
    }

    /// Under `mmas` half of the time under all assumptions: 2 of 4 and 3 of 6 s. One seed or one set of assumptions
    /// does not say that it is so with others.
    #[test]
    fn one_seed_or_one_set_decides_no_order() {
        let first = |repetitions| {
            let times = [[4.0, 2.0], [6.0, 3.0]];
            let mut found = mixes(1, repetitions, |[_, draw, policy]| Some(times[draw][policy]));
            let order = found.orders.remove(0);
            assert!((order.ratio.unwrap().value - 0.5).abs() < 1e-9, "{order:?}");
            (order.found, order.resolved)
        };
        assert_eq!(first([2, 2]), (SimulatedOrder::Same, true));
        for repetitions in [[1, 1], [1, 2], [2, 1]] {
            assert_eq!(first(repetitions), (SimulatedOrder::Open, false), "{repetitions:?}");
        }
    }

    /// Of a run that did not end nothing is said, and it is no zero.
    #[test]
    fn a_run_without_an_end_has_no_figure() {
        let found = mixes(1, [1, 1], |[_, _, policy]| (policy == 0).then_some(4.0));
        let mmas = &found.rows[0].policies[1].metrics[0];
        assert_eq!((mmas.value, mmas.beside[0].ratio), (None, None));
        assert_eq!(mmas.beside[0].unresolved, Some(Unresolved::NotFinished));
    }

    /// Under `instruction` a pair takes 3 of 4 s and 5 of 4 s, by the set of assumptions; if one run does not end, nothing is
    /// said.
    #[test]
    fn a_pair_has_the_range_of_the_assumptions() {
        let pair = |times: [Option<f64>; 2]| {
            let mut definition = PolicyStudyDefinition::built_in("serpa").unwrap();
            definition.applications.truncate(2);
            let run = |[_, draw, policy]: [usize; 3]| {
                vec![if policy == 2 { times[draw] } else { Some(4.0) }; 3]
            };
            let found = part(&mut definition, [2, 1], run);
            found.rows[0].policies[2].metrics[0].beside[0].by_cell[0]
        };
        let found = pair([Some(3.0), Some(5.0)]).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(found.value, 0.75) && near(found.low, 0.75) && near(found.high, 1.25));
        assert_eq!(pair([Some(3.0), None]), None);
    }

    /// One situation with these seconds under `os`, a scheduler and the oracle, with two draws and two seeds.
    fn phased(seconds: [Option<f64>; 3]) -> (CellFigures, Vec<PolicyMetrics>) {
        let mut definition = PolicyStudyDefinition::built_in("fedorova").unwrap();
        definition.parts[0].policies = ["os", "parallelism-aware"].map(str::to_owned).to_vec();
        if let Cells::Phased(forms) = &mut definition.parts[0].cells {
            forms.truncate(1);
            forms[0].serial = vec![50];
        }
        let run = |[_, _, policy]: [usize; 3]| {
            vec![seconds[policy], Some(20.0), Some(0.0), Some(9.0), Some(1.0)]
        };
        let mut found = part(&mut definition, [2, 2], run);
        (found.cells.remove(0), found.rows.remove(0).policies)
    }

    /// `os` takes 1.0 s, the scheduler 0.8, the oracle 0.75: 25 % faster, four fifths of the quarter of a second.
    #[test]
    fn a_part_of_the_oracles_gain() {
        let (cell, policies) = phased([Some(1.0), Some(0.8), Some(0.75)]);
        let [os, own, oracle] = &policies[..] else { panic!("three") };
        assert!(os.metrics[0].beside.is_empty() && os.metrics[0].of_oracle.is_none());
        let time = &own.metrics[0];
        assert_eq!(time.beside[0].verdict, SimulatedVerdict::Better);
        assert!((time.beside[0].ratio.unwrap().value - 1.25).abs() < 1e-12);
        assert!((time.of_oracle.unwrap().value - 0.8).abs() < 1e-12);
        assert!((own.metrics[1].value.unwrap().value - 20.0).abs() < 1e-12);
        assert!((own.metrics[3].value.unwrap().value - 9.0).abs() < 1e-12);
        assert!((oracle.metrics[0].beside[0].ratio.unwrap().value - 4.0 / 3.0).abs() < 1e-12);
        assert_eq!(oracle.metrics[0].of_oracle, None);
        // 17 parallel phases of half of the two seconds.
        assert_eq!((&*cell.name, cell.values["serial"]), ("50 %", 0.5));
        assert!((cell.values["parallel_s"] - 1.0 / 17.0).abs() < 1e-12);
        assert!((cell.values["serial_s"] - 1.0 / 16.0).abs() < 1e-12);
    }

    /// Where the oracle saves 3 %, no part of it is reported; a slower program is worse; a run without an end has no figure.
    #[test]
    fn what_cannot_be_said() {
        let (_, policies) = phased([Some(1.0), Some(1.25), Some(0.97)]);
        let time = |policy: usize| &policies[policy].metrics[0];
        assert_eq!((time(1).beside[0].verdict, time(1).of_oracle), (SimulatedVerdict::Worse, None));
        assert_eq!(time(2).beside[0].unresolved, Some(Unresolved::BelowResolution));
        let (_, policies) = phased([Some(1.0), None, Some(0.7)]);
        let own = &policies[1].metrics[0];
        assert_eq!((own.value, own.beside[0].ratio, own.of_oracle), (None, None, None));
        assert_eq!(own.beside[0].unresolved, Some(Unresolved::NotFinished));
    }
}
