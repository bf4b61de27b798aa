//! The comparison as tables.

use super::Comparison;
use super::grouping::{Gains, Policy};

/// Errors that are listed, relative.
pub const FAR_OFF: f64 = 0.10;

/// A reorder buffer that is full for a greater part of the cycles counts as one that limits.
const FULL: f64 = 0.10;

/// Errors of predicted slowdowns, relative.
pub struct Errors(Vec<f64>);

impl Errors {
    pub fn of(found: &[f64], predicted: impl Fn(usize) -> f64) -> Self {
        let one = |(at, found): (usize, &f64)| (predicted(at) / found - 1.0).abs();
        let mut errors: Vec<f64> = found.iter().enumerate().map(one).collect();
        errors.sort_by(f64::total_cmp);
        Self(errors)
    }

    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    fn at(&self, part: f64) -> f64 {
        self.0[(part * (self.0.len() - 1) as f64).round() as usize]
    }

    pub fn row(&self, name: &str) -> String {
        let percent = |part: f64| format!("{:.1}", 100.0 * part);
        let figures = [self.mean(), self.at(0.5), self.at(0.9), self.at(1.0)].map(percent);
        format!("| {name} | {} | {} |", self.0.len(), figures.join(" | "))
    }
}

pub fn report(seed: u64, comparison: &Comparison) -> String {
    let oracle = &comparison.oracle;
    let mut lines = vec![
        format!("`{}`, llvm-mca {}, seed {seed}:\n", oracle.cpu(), oracle.version()),
        "| slowdown | groups | mean error % | median | 90 of 100 below | worst |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(comparison.rows.iter().cloned());
    for (name, gains) in &comparison.gains {
        lines.extend(of_policies(name, gains));
    }
    if let Some(gains) = &comparison.bench {
        lines.extend(of_policies("the paper's kernels on 4 cores of 2", gains));
        lines.extend(of_buffers(comparison));
    }
    lines.join("\n") + "\n"
}

fn of_policies(name: &str, gains: &Gains) -> Vec<String> {
    let workloads = gains.workloads();
    let mut lines = vec![
        format!(
            "\n{name}, {workloads} times: the best way is {:.1} % better than any.\n",
            100.0 * gains.oracle()
        ),
        "| groups by | of the oracle's gain % | regret % | workloads where worse than any | \
         where better than `symbiosis-model` |"
            .to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(Policy::ALL.into_iter().map(|policy| {
        let captured = 100.0 * gains.captured(policy);
        format!(
            "| {} | {captured:.0} | {:.0} | {} | {} |",
            policy.name(),
            100.0 - captured,
            gains.worse(policy),
            gains.beaten(policy)
        )
    }));
    lines
}

/// Whether SMT-Bench's errors are where the reorder buffer is full.
fn of_buffers(comparison: &Comparison) -> Vec<String> {
    let mean = |full: bool| {
        let errors = comparison.full_buffers.iter().filter(|(_, part)| (*part > FULL) == full);
        let errors: Vec<f64> = errors.map(|(error, _)| *error).collect();
        let sum: f64 = errors.iter().sum();
        format!(
            "{} pairs, mean error {:.1} %",
            errors.len(),
            100.0 * sum / errors.len().max(1) as f64
        )
    };
    let none = || "none".to_owned();
    let far_off = &comparison.far_off;
    vec![
        format!(
            "\nSMT-Bench's pairs with a reorder buffer that is full for more than {:.0} % of the cycles: {}; \
             with one that is not: {}.",
            100.0 * FULL,
            mean(true),
            mean(false)
        ),
        format!(
            "Off by more than {:.0} % (in parentheses: cycles with a full buffer): {}.",
            100.0 * FAR_OFF,
            if far_off.is_empty() { none() } else { far_off.join(", ") }
        ),
    ]
}
