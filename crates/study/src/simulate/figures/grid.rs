//! Figures and verdicts of a policy from its runs.

use super::{
    JobFigures, MetricFigures, PolicyFigures, RESOLUTION, RunSummary, SimulatedVerdict, Spread,
    Unresolved, Usage,
};
use crate::metric::Metric;
use colocate_figures::stats;

/// All runs of a policy: draw by draw, seed by seed.
#[derive(Clone, Copy)]
pub(super) struct Grid<'a> {
    pub runs: &'a [RunSummary],
    pub seeds: usize,
}

impl Grid<'_> {
    /// Figures of the policy beside the baseline `base`; `None` for the baseline itself.
    pub fn figures(self, policy: &str, jobs: usize, base: Option<Self>) -> PolicyFigures {
        // A run that did not end has no metric at all.
        let unfinished = self.runs.iter().filter(|run| run.metrics[0].is_none()).count();
        let usages: Vec<&Usage> = self.runs.iter().filter_map(|run| run.usage.as_ref()).collect();
        let jobs = (0..jobs).map(|job| JobFigures {
            slowdown: self.spread(|run| run.slowdowns[job]),
            progress: self.spread(|run| run.progress[job]),
        });
        PolicyFigures {
            policy: policy.to_owned(),
            unfinished: u32::try_from(unfinished).unwrap_or(u32::MAX),
            metrics: (0..Metric::OF_SCENARIOS.len())
                .map(|metric| self.metric(metric, base))
                .collect(),
            jobs: jobs.collect(),
            usage: Usage::mean(&usages),
        }
    }

    fn spread(self, get: impl Fn(&RunSummary) -> Option<f64>) -> Option<Spread> {
        self.column(get).spread()
    }

    fn column(self, get: impl Fn(&RunSummary) -> Option<f64>) -> FigureColumn {
        FigureColumn { figures: self.runs.iter().map(get).collect(), seeds: self.seeds }
    }

    fn metric(self, place: usize, base: Option<Self>) -> MetricFigures {
        let metric = Metric::OF_SCENARIOS[place];
        let own = self.column(|run| run.metrics[place]);
        let base = base.map(|base| base.column(|run| run.metrics[place]));
        let ratio = base.as_ref().and_then(|base| own.ratio(base));
        let (verdict, unresolved) = match base {
            Some(_) => own.judged(metric.less_is_better(), ratio),
            None => (SimulatedVerdict::Baseline, None),
        };
        MetricFigures { metric, value: own.spread(), ratio, verdict, unresolved }
    }
}

/// A figure of all runs of a policy.
#[derive(Clone, Debug)]
pub(crate) struct FigureColumn {
    /// Figures, draw by draw, seed by seed; `None` where a run has none.
    pub figures: Vec<Option<f64>>,
    /// Number of seeds.
    pub seeds: usize,
}

impl FigureColumn {
    /// Means over the seeds: of the default draw, and the smallest and largest of all draws. `None`
    /// if a run has no figure.
    pub fn spread(&self) -> Option<Spread> {
        let means = self.figures.chunks(self.seeds).map(|seeds| {
            let values: Option<Vec<f64>> = seeds.iter().copied().collect();
            stats::mean(&values?)
        });
        let means = means.collect::<Option<Vec<f64>>>()?;
        Some(Spread::over(&means, 0.0))
    }

    /// Ratio to the baseline with its interval; `None` if a run has no figure.
    pub fn ratio(&self, base: &Self) -> Option<Spread> {
        let logs = self.figures.iter().zip(&base.figures).map(|(run, base)| {
            let ratio = (*run)? / (*base)?;
            // A figure of 0 has no logarithm.
            Some(ratio.ln()).filter(|log| log.is_finite())
        });
        let logs = logs.collect::<Option<Vec<f64>>>()?;
        let draws: Vec<&[f64]> = logs.chunks(self.seeds).collect();
        let means = draws.iter().map(|draw| stats::mean(draw)).collect::<Option<Vec<f64>>>()?;
        let Spread { value, low, high } = Spread::over(&means, self.reach(&draws, &means));
        Some(Spread { value: value.exp(), low: low.exp(), high: high.exp() })
    }

    /// Half the width of the 95 % interval of a mean over the seeds, with the spread pooled over
    /// the draws; 0 for one seed.
    fn reach(&self, draws: &[&[f64]], means: &[f64]) -> f64 {
        let freedom = (draws.len() * (self.seeds - 1)) as f64;
        let squares = draws
            .iter()
            .zip(means)
            .flat_map(|(draw, mean)| draw.iter().map(move |log| (log - mean).powi(2)));
        let squares = squares.fold(0.0, |sum, each| sum + each);
        let t = stats::t_quantile(0.975, freedom).unwrap_or(0.0);
        // One seed has no spread and no degree of freedom.
        if squares == 0.0 { 0.0 } else { t * (squares / freedom / self.seeds as f64).sqrt() }
    }

    /// Verdict on a ratio to a baseline, with the reason if it is not resolved.
    pub fn judged(
        &self,
        less_is_better: bool,
        ratio: Option<Spread>,
    ) -> (SimulatedVerdict, Option<Unresolved>) {
        let judged =
            ratio.map_or(Err(Unresolved::NotFinished), |ratio| self.judge(less_is_better, ratio));
        match judged {
            Ok(verdict) => (verdict, None),
            Err(reason) => (SimulatedVerdict::NotResolved, Some(reason)),
        }
    }

    fn judge(&self, less_is_better: bool, ratio: Spread) -> Result<SimulatedVerdict, Unresolved> {
        if self.seeds < 2 {
            return Err(Unresolved::OneSeed);
        }
        if self.figures.len() == self.seeds {
            return Err(Unresolved::OneDraw);
        }
        if (ratio.value - 1.0).abs() < RESOLUTION {
            return Err(Unresolved::BelowResolution);
        }
        if (ratio.low..=ratio.high).contains(&1.0) {
            return Err(Unresolved::SignChanges);
        }
        let less = ratio.high < 1.0;
        Ok(if less == less_is_better { SimulatedVerdict::Better } else { SimulatedVerdict::Worse })
    }
}

impl Spread {
    /// Spread of a figure over sets of assumptions, the default set first; `None` if a figure is
    /// missing.
    pub(crate) fn over_draws(figures: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        FigureColumn { figures: figures.collect(), seeds: 1 }.spread()
    }

    /// The first of `values`, with the range of all, widened at both ends by `reach`.
    pub(crate) fn over(values: &[f64], reach: f64) -> Self {
        Self {
            value: values[0],
            low: values.iter().copied().fold(f64::INFINITY, f64::min) - reach,
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max) + reach,
        }
    }
}
