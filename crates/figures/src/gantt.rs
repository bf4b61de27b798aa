//! Gantt chart of one run: a row for each PU, time to the right.
//!
//! A run has more changes than a picture has pixels. Each pixel of a row shows the task with most
//! of the pixel's time, so the size of the picture does not depend on the length of the run.

use crate::plot::{Area, label};
use colocate_evidence::{JobIdx, TaskId, TaskSpan};
use colocate_machine::{Machine, Nanos, PuIdx, printable};
use colocate_policy::schedule::phases::JobPhase;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::error::Error;

/// Width of the rows in pixels; the run's time has as many parts.
const COLUMNS: u32 = 1000;
/// Width of the column of PU numbers, in pixels.
const NAMES: i32 = 150;
/// Width of the column of job names, in pixels.
const LEGEND: u32 = 250;
/// Gap before the column of job names, in pixels, for the last label of the axis.
const GAP: i32 = 46;
/// Height of a PU's row in pixels.
const ROW: i32 = 16;
/// Height of the two heading lines, in pixels.
const HEADING: i32 = 56;
/// Height of the axis below, in pixels.
const AXIS: i32 = 44;
/// Least share of a pixel's time for a task to be drawn. Chosen.
const LEAST: f64 = 0.05;
/// Most jobs with a name and phases. Chosen: more colours cannot be told apart.
const MOST_NAMED: usize = 24;
/// Most characters of a job's name beside its phases. Chosen: the width of the column.
const NAME: usize = 20;

/// Input of a chart: one run, simulated or not.
#[derive(Clone, Copy, Debug)]
pub struct GanttInput<'a> {
    /// The two heading lines.
    pub heading: [&'a str; 2],
    /// Machine of the run.
    pub machine: &'a Machine,
    /// Names of the jobs, by `JobIdx`.
    pub jobs: &'a [String],
    /// Intervals of threads on PUs.
    pub spans: &'a [TaskSpan],
    /// Phases of jobs, drawn below the PUs; may be empty.
    pub phases: &'a [PhaseSpan],
    /// Duration of the run.
    pub lasted: Nanos,
    /// Label of the time axis.
    pub axis: &'a str,
}

/// A phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseSpan {
    /// Index of the job in [`GanttInput::jobs`].
    pub job: usize,
    /// Kind of phase: a thin line where serial, a thick one where parallel, nothing where asleep.
    pub phase: JobPhase,
    /// Beginning, since the start of the run.
    pub from: Nanos,
    /// End, since the start of the run.
    pub to: Nanos,
}

/// Draws a run as an SVG document.
///
/// # Errors
/// The message of the drawing library, if drawing fails.
pub fn of_run(run: &GanttInput<'_>) -> Result<String, String> {
    let mut out = String::new();
    draw(run, &mut out).map_err(|error| format!("cannot draw the run: {error}"))?;
    Ok(out)
}

/// Corner of a rectangle: pixel column `column` of the rows, height `y`.
fn corner(column: u32, y: i32) -> (i32, i32) {
    (NAMES + column.cast_signed(), y)
}

fn draw(run: &GanttInput<'_>, out: &mut String) -> Result<(), Box<dyn Error>> {
    let machine = run.machine;
    let named = run.jobs.len().min(MOST_NAMED + 1);
    let phases = phase_rows(run);
    // One more row for the line of text above the phases.
    let below = if phases.is_empty() { 0 } else { phases.len() + 1 };
    // The legend may have more rows than the chart.
    let rows = i32::try_from((machine.pus.len() + below).max(named))?;
    let size =
        (NAMES.unsigned_abs() + COLUMNS + LEGEND, (HEADING + rows * ROW + AXIS).unsigned_abs());
    let root = SVGBackend::with_string(out, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (line, y) in run.heading.iter().zip([16, 40]) {
        root.draw(&label(line, (12, y), HPos::Left, BLACK))?;
    }
    let rows = pixels(machine.pus.len(), run);
    for (place, row) in rows.iter().enumerate() {
        let top = HEADING + i32::try_from(place)? * ROW;
        let text = format!("core {} {}", machine.pus[place].core.idx(), machine.pus[place].os);
        root.draw(&small(&text, (NAMES - 8, top + ROW / 2), HPos::Right))?;
        for stretch in row {
            let corners = [corner(stretch.from, top + 1), corner(stretch.to, top + ROW - 1)];
            root.draw(&Rectangle::new(corners, colour(stretch.task).filled()))?;
        }
    }
    draw_phases(&root, run, &phases)?;
    let bottom = HEADING + i32::try_from(machine.pus.len() + below)? * ROW;
    for (x, text) in ticks(run.lasted) {
        let x = NAMES + x;
        root.draw(&PathElement::new([(x, bottom), (x, bottom + 5)], BLACK))?;
        root.draw(&small(&text, (x, bottom + 14), HPos::Center))?;
    }
    root.draw(&small(run.axis, (NAMES, bottom + 32), HPos::Left))?;
    for (place, job) in run.jobs.iter().enumerate().take(MOST_NAMED) {
        let y = HEADING + i32::try_from(place)? * ROW + ROW / 2;
        let x = NAMES + COLUMNS.cast_signed() + GAP;
        let task = TaskId { job: JobIdx(u32::try_from(place)?), order: 0 };
        root.draw(&Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour(task).filled()))?;
        root.draw(&small(&printable(job), (x + 16, y), HPos::Left))?;
    }
    root.present()?;
    Ok(())
}

/// Top of a row below the PUs, in pixels. Row 0 is the line of text.
fn phase_top(run: &GanttInput<'_>, row: usize) -> Result<i32, Box<dyn Error>> {
    Ok(HEADING + i32::try_from(run.machine.pus.len() + row)? * ROW)
}

/// Draws a row for each job's phases, below a line of explanation.
fn draw_phases(
    root: &Area<'_>,
    run: &GanttInput<'_>,
    phases: &[Vec<TaskBar>],
) -> Result<(), Box<dyn Error>> {
    if phases.is_empty() {
        return Ok(());
    }
    let legend = "phases: thick where the job was parallel, thin where serial, nothing where it slept or waited";
    root.draw(&small(legend, (NAMES, phase_top(run, 0)? + ROW / 2), HPos::Left))?;
    for (job, row) in phases.iter().enumerate() {
        let top = phase_top(run, job + 1)?;
        let name: String = printable(&run.jobs[job]).chars().take(NAME).collect();
        root.draw(&small(&name, (NAMES - 8, top + ROW / 2), HPos::Right))?;
        // For the colour: the task of a stretch only stands for a phase.
        let owner = TaskId { job: JobIdx(u32::try_from(job)?), order: 0 };
        for stretch in row {
            let edge = if stretch.task.order == PARALLEL { 2 } else { ROW / 2 - 1 };
            let corners = [corner(stretch.from, top + edge), corner(stretch.to, top + ROW - edge)];
            root.draw(&Rectangle::new(corners, colour(owner).filled()))?;
        }
    }
    Ok(())
}

/// Thread number of a parallel phase, as phases are drawn like threads; a serial one has 0.
const PARALLEL: u32 = 1;

/// For each named job, the phases with most of a pixel's time; empty if no phases are known.
fn phase_rows(run: &GanttInput<'_>) -> Vec<Vec<TaskBar>> {
    if run.phases.iter().all(|phase| phase.phase == JobPhase::Asleep) {
        return Vec::new();
    }
    let mut by_job: Vec<Vec<TaskSpan>> = vec![Vec::new(); run.jobs.len().min(MOST_NAMED)];
    for phase in run.phases.iter().filter(|phase| phase.to > phase.from) {
        let Some(spans) = by_job.get_mut(phase.job) else { continue };
        let order = match phase.phase {
            JobPhase::Asleep => continue,
            JobPhase::Serial => 0,
            JobPhase::Parallel => PARALLEL,
        };
        // Each job has a row of its own, so the task needs no job number.
        let task = TaskId { job: JobIdx(0), order };
        spans.push(TaskSpan { task, pu: PuIdx::new(0), from: phase.from, to: phase.to });
    }
    by_job.iter_mut().map(|spans| row(spans, run.lasted)).collect()
}

/// A mark of the axis at `time`: pixels from the beginning, and its label.
fn mark(time: Nanos, lasted: Nanos, decimals: usize) -> (i32, String) {
    let share = time.as_secs_f64() / lasted.as_secs_f64();
    #[allow(clippy::cast_possible_truncation)] // at most a thousand
    let x = (f64::from(COLUMNS) * share) as i32;
    (x, format!("{:.decimals$} s", time.as_secs_f64()))
}

/// Marks of the axis: at most ten steps of 1, 2 or 5 times a power of ten nanoseconds.
fn ticks(lasted: Nanos) -> Vec<(i32, String)> {
    let steps =
        (0..19).flat_map(|power| [1, 2, 5].map(|digit| u64::pow(10, power).checked_mul(digit)));
    let step = steps.flatten().find(|step| lasted.0 / step <= 10).unwrap_or(u64::MAX);
    // As many decimals of a second as the step needs.
    let decimals = usize::try_from(9 - step.ilog10().min(9)).unwrap_or(0);
    match lasted {
        // A share of no time would be NaN.
        Nanos::ZERO => vec![(0, "0 s".to_owned())],
        _ => (0..=lasted.0 / step).map(|n| mark(Nanos(n * step), lasted, decimals)).collect(),
    }
}

/// Black text of 12 pixels, vertically centred on `place`.
fn small(text: &str, place: (i32, i32), side: HPos) -> Text<'static, (i32, i32), String> {
    use plotters::style::text_anchor::{Pos, VPos};
    let style = ("sans-serif", 12).into_font().color(&BLACK).pos(Pos::new(side, VPos::Center));
    Text::new(text.to_owned(), place, style)
}

/// Colour of a job, lighter for threads with a higher number.
fn colour(task: TaskId) -> HSLColor {
    /// Fraction of the golden ratio: the hues of consecutive jobs are far apart.
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let hue = (0.58 + f64::from(task.job.0) * GOLDEN).fract();
    let shade = f64::from(task.order % 8) / 8.0;
    HSLColor(hue, 0.65, 0.38 + 0.3 * shade)
}

/// A task over pixel columns `from..to` of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TaskBar {
    task: TaskId,
    from: u32,
    to: u32,
}

/// For each PU, the tasks with most of a pixel's time, at least [`LEAST`] of the pixel.
fn pixels(pus: usize, run: &GanttInput<'_>) -> Vec<Vec<TaskBar>> {
    let mut by_pu: Vec<Vec<TaskSpan>> = vec![Vec::new(); pus];
    for span in run.spans.iter().filter(|span| span.to > span.from) {
        by_pu[span.pu.idx()].push(*span);
    }
    by_pu.iter_mut().map(|spans| row(spans, run.lasted)).collect()
}

/// The task with most time in each pixel column, with equal neighbours joined.
fn row(spans: &mut [TaskSpan], lasted: Nanos) -> Vec<TaskBar> {
    if lasted == Nanos::ZERO {
        return Vec::new();
    }
    spans.sort_by_key(|span| span.from);
    let mut most: Vec<Option<(TaskId, f64)>> = vec![None; COLUMNS as usize];
    let scale = f64::from(COLUMNS) / lasted.as_secs_f64();
    // Time of each task in the current column.
    let mut open: Vec<(TaskId, f64)> = Vec::new();
    let mut column = 0;
    for span in spans {
        let from = span.from.as_secs_f64() * scale;
        let to = span.to.as_secs_f64() * scale;
        // The end of the run would be one column too far.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // cut to the row
        let columns = (from as usize).min(most.len() - 1)..=(to as usize).min(most.len() - 1);
        for at in columns {
            // Spans are sorted, so no later span is in an earlier column.
            if at != column {
                open.clear();
                column = at;
            }
            // The part of the column that the span covers.
            let part = to.min(at as f64 + 1.0) - from.max(at as f64);
            let place = open.iter().position(|(task, _)| *task == span.task);
            let place = place.unwrap_or_else(|| {
                open.push((span.task, 0.0));
                open.len() - 1
            });
            open[place].1 += part;
            if most[at].is_none_or(|(_, best)| open[place].1 > best) {
                most[at] = Some(open[place]);
            }
        }
    }
    let mut stretches: Vec<TaskBar> = Vec::new();
    for (at, task) in (0_u32..).zip(most) {
        let Some((task, part)) = task else { continue };
        match stretches.last_mut() {
            // A column with hardly any run time looks idle rather than busy.
            _ if part < LEAST => {}
            Some(last) if last.task == task && last.to == at => last.to = at + 1,
            _ => stretches.push(TaskBar { task, from: at, to: at + 1 }),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(job: u32, pu: usize, from: u64, to: u64) -> TaskSpan {
        let task = TaskId { job: JobIdx(job), order: 0 };
        TaskSpan { task, pu: PuIdx::new(pu), from: Nanos(from), to: Nanos(to) }
    }

    /// Pixels of a PU's row: a letter for each tenth of the run, `_` where nothing ran.
    fn picture(spans: &mut [TaskSpan], lasted: u64) -> String {
        let stretches = row(spans, Nanos(lasted));
        let at = |tenth: u32| {
            let pixel = tenth * COLUMNS / 10 + COLUMNS / 20;
            stretches.iter().find(|it| (it.from..it.to).contains(&pixel)).map(|it| it.task)
        };
        let letter = |task: Option<TaskId>| {
            task.and_then(|task| char::from_digit(task.job.0 + 10, 36)).unwrap_or('_')
        };
        (0..10).map(at).map(letter).collect()
    }

    #[test]
    fn marks_are_round() {
        let said = |lasted: Nanos| -> Vec<String> {
            ticks(lasted).into_iter().map(|(x, text)| format!("{x}: {text}")).collect()
        };
        assert_eq!(said(Nanos::from_millis(7_600))[..2], ["0: 0 s", "131: 1 s"]);
        assert_eq!(said(Nanos::from_millis(7_600)).len(), 8);
        assert_eq!(said(Nanos::from_secs(15))[1], "133: 2 s");
        assert_eq!(said(Nanos::from_millis(300))[..2], ["0: 0.00 s", "166: 0.05 s"]);
        assert_eq!(said(Nanos::ZERO), ["0: 0 s"]);
        assert_eq!(said(Nanos(3)).len(), 4);
        for lasted in [1, 7, 10, 11, 99, 12_345, 999_999_999, 360_000_000_000_000] {
            let ticks = ticks(Nanos(lasted));
            assert!((2..=11).contains(&ticks.len()), "{lasted}: {ticks:?}");
            assert!(ticks.iter().all(|(x, _)| (0..=1000).contains(x)), "{ticks:?}");
        }
    }

    #[test]
    fn one_after_the_other() {
        let mut spans = [span(1, 0, 400, 700), span(0, 0, 0, 400), span(0, 0, 900, 1_000)];
        assert_eq!(picture(&mut spans, 1_000), "aaaabbb__a");
        assert_eq!(row(&mut spans, Nanos(1_000)).len(), 3);
        assert_eq!(picture(&mut [], 1_000), "__________");
        assert_eq!(picture(&mut [span(0, 0, 0, 5)], 0), "__________");
    }

    /// 100,000 turns, of which `a` has two thirds: each pixel shows it.
    #[test]
    fn the_longest_wins_a_pixel() {
        let turn = |n: u64| [span(0, 0, 30 * n, 30 * n + 20), span(1, 0, 30 * n + 20, 30 * n + 30)];
        let mut spans: Vec<TaskSpan> = (0..100_000).flat_map(turn).collect();
        assert_eq!(picture(&mut spans, 3_000_000), "aaaaaaaaaa");
        assert_eq!(row(&mut spans, Nanos(3_000_000)).len(), 1);
    }

    #[test]
    fn what_hardly_ran_is_idle() {
        let every_pixel = |time: u64| {
            let mut spans: Vec<TaskSpan> =
                (0..10).map(|n| span(0, 0, 100 * n, 100 * n + time)).collect();
            row(&mut spans, Nanos(100_000)).len()
        };
        assert_eq!((every_pixel(6), every_pixel(4)), (1, 0));
    }

    /// A job that is parallel for a tenth of every pixel and serial otherwise is shown as serial; another one is
    /// parallel, asleep, and serial at the end; of a third nothing is known.
    #[test]
    fn the_phase_that_lasts_longest_wins_a_pixel() {
        let (_, text) = colocate_machine::described::MACHINES[1];
        let machine = colocate_machine::described::from_toml(text).unwrap().machine;
        let phase = |job, phase, from: u64, to: u64| PhaseSpan {
            job,
            phase,
            from: Nanos(from),
            to: Nanos(to),
        };
        let mut phases: Vec<PhaseSpan> = (0..1_000)
            .flat_map(|n| {
                let (from, change, to) = (1_000 * n, 1_000 * n + 900, 1_000 * n + 1_000);
                [phase(0, JobPhase::Serial, from, change), phase(0, JobPhase::Parallel, change, to)]
            })
            .collect();
        phases.push(phase(1, JobPhase::Parallel, 0, 500_000));
        phases.push(phase(1, JobPhase::Serial, 900_000, 1_000_000));
        let jobs = ["a", "b", "c"].map(str::to_owned);
        let drawn = GanttInput {
            heading: ["", ""],
            machine: &machine,
            jobs: &jobs,
            spans: &[],
            phases: &phases,
            lasted: Nanos(1_000_000),
            axis: "",
        };
        let found: Vec<Vec<_>> = phase_rows(&drawn)
            .iter()
            .map(|row| row.iter().map(|it| (it.task.order, it.from, it.to)).collect())
            .collect();
        assert_eq!(found, [vec![(0, 0, 1_000)], vec![(1, 0, 500), (0, 900, 1_000)], Vec::new()]);
        let text = of_run(&drawn).unwrap();
        assert!(text.contains("phases: thick"), "{text}");
        // The ground, three stretches, three jobs.
        assert_eq!(text.matches("<rect").count(), 7);
        assert!(!of_run(&GanttInput { phases: &[], ..drawn }).unwrap().contains("phases"));
    }
}
