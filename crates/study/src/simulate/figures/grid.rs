//! From the runs of a policy to what may be said of it.

use super::{
    JobFigures, Metric, MetricFigures, PolicyFigures, RESOLUTION, Run, Spread, Unresolved, Usage,
    Verdict,
};
use crate::stats;

/// All runs of one policy: draw by draw, seed by seed.
#[derive(Clone, Copy)]
pub(super) struct Grid<'a> {
    pub runs: &'a [Run],
    pub seeds: usize,
}

impl Grid<'_> {
    pub fn figures(self, policy: &str, jobs: usize, base: Option<Self>) -> PolicyFigures {
        let unfinished = self.runs.iter().filter(|run| run.metrics[0].is_none()).count();
        let usages: Vec<&Usage> = self.runs.iter().filter_map(|run| run.usage.as_ref()).collect();
        let job = |job: usize| JobFigures {
            slowdown: self.spread(|run| run.slowdowns[job]),
            progress: self.spread(|run| run.progress[job]),
        };
        PolicyFigures {
            policy: policy.to_owned(),
            unfinished: u32::try_from(unfinished).unwrap_or(u32::MAX),
            metrics: (0..Metric::ALL.len()).map(|metric| self.metric(metric, base)).collect(),
            jobs: (0..jobs).map(job).collect(),
            usage: Usage::mean(&usages),
        }
    }

    /// Means over the seeds: that of the usual draw, the least and the greatest of any. `None` if a run
    /// has no figure.
    fn spread(self, get: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
        let means = self.runs.chunks(self.seeds).map(|seeds| {
            let values: Option<Vec<f64>> = seeds.iter().map(&get).collect();
            stats::mean(&values?)
        });
        let means = means.collect::<Option<Vec<f64>>>()?;
        Some(Spread::over(&means, 0.0))
    }

    fn metric(self, place: usize, base: Option<Self>) -> MetricFigures {
        let metric = Metric::ALL[place];
        let value = self.spread(|run| run.metrics[place]);
        let Some(base) = base else {
            let verdict = Verdict::Baseline;
            return MetricFigures { metric, value, ratio: None, verdict, unresolved: None };
        };
        let ratio = self.ratio(base, place);
        let judged = ratio.map_or(Err(Unresolved::NotFinished), |ratio| self.judge(metric, ratio));
        let (verdict, unresolved) = match judged {
            Ok(verdict) => (verdict, None),
            Err(reason) => (Verdict::NotResolved, Some(reason)),
        };
        MetricFigures { metric, value, ratio, verdict, unresolved }
    }

    fn ratio(self, base: Self, place: usize) -> Option<Spread> {
        let log = |(run, base): (&Run, &Run)| {
            let ratio = run.metrics[place]? / base.metrics[place]?;
            Some(ratio.ln()).filter(|log| log.is_finite())
        };
        let logs = self.runs.iter().zip(base.runs).map(log).collect::<Option<Vec<f64>>>()?;
        let draws: Vec<&[f64]> = logs.chunks(self.seeds).collect();
        let means = draws.iter().map(|draw| stats::mean(draw)).collect::<Option<Vec<f64>>>()?;
        let Spread { value, low, high } = Spread::over(&means, self.reach(&draws, &means));
        Some(Spread { value: value.exp(), low: low.exp(), high: high.exp() })
    }

    /// Half the width of the 95 % interval of a mean over the seeds, spread pooled over the draws; 0
    /// for one seed.
    #[allow(clippy::cast_precision_loss)] // thousands at most
    fn reach(self, draws: &[&[f64]], means: &[f64]) -> f64 {
        let freedom = (draws.len() * (self.seeds - 1)) as f64;
        let squares = draws
            .iter()
            .zip(means)
            .flat_map(|(draw, mean)| draw.iter().map(move |log| (log - mean).powi(2)));
        let squares = squares.fold(0.0, |sum, each| sum + each);
        let t = stats::t_quantile(0.975, freedom).unwrap_or(0.0);
        if squares == 0.0 { 0.0 } else { t * (squares / freedom / self.seeds as f64).sqrt() }
    }

    fn judge(self, metric: Metric, ratio: Spread) -> Result<Verdict, Unresolved> {
        if self.seeds < 2 {
            return Err(Unresolved::OneSeed);
        }
        if self.runs.len() == self.seeds {
            return Err(Unresolved::OneDraw);
        }
        if (ratio.value - 1.0).abs() < RESOLUTION {
            return Err(Unresolved::BelowResolution);
        }
        if (ratio.low..=ratio.high).contains(&1.0) {
            return Err(Unresolved::SignChanges);
        }
        let less = ratio.high < 1.0;
        Ok(if less == metric.less_is_better() { Verdict::Better } else { Verdict::Worse })
    }
}

impl Spread {
    /// The first of `values`, the least less `reach`, and the greatest and `reach`.
    fn over(values: &[f64], reach: f64) -> Self {
        Self {
            value: values[0],
            low: values.iter().copied().fold(f64::INFINITY, f64::min) - reach,
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max) + reach,
        }
    }
}
