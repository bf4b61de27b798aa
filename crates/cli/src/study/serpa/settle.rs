//! How long the applications have to be: `--find-length`.

use super::super::runner::Runner;
use colocate_machine::Nanos;
use colocate_model::Phase;
use colocate_study::serpa::length::{self, Figures, LAST, Step};
use colocate_study::serpa::pairs::Pairs;
use colocate_study::serpa::{Study, table};

/// Doubles the length until the figures of `os` stay as they are; tells every step.
pub(super) fn find(
    runner: &Runner,
    mut study: Study<'_>,
    applications: &[Phase],
) -> anyhow::Result<String> {
    let pairs = Pairs::new(applications);
    let mut steps: Vec<Step> = Vec::new();
    let mut before: Option<Figures> = None;
    let start = length::start_of(&study);
    study.alone = length::FIRST;
    loop {
        let what = format!("{} s each", study.alone.as_secs_f64());
        let work = |piece| Ok(length::piece(&study, &pairs, piece)?);
        let done = runner.all(&what, length::count(&study, &pairs), None, work)?;
        let figures = Figures::of(&study, &pairs, &done);
        steps.push(figures.after(before.as_ref()));
        let settled = steps.last().is_some_and(|step| length::settled(step, start));
        if settled || study.alone >= LAST {
            return Ok(table::steps(&study, &steps));
        }
        before = Some(figures);
        study.alone = Nanos(study.alone.0 * 2);
    }
}
