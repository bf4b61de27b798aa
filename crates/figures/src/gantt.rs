//! Which task ran where and when in one run: a row for each PU, time to the right.
//!
//! A run has more changes than a picture has pixels, so each pixel of a row shows the task that had
//! most of its time, and the picture stays small however long the run was.

use crate::plot::{Area, label};
use colocate_evidence::{JobIdx, TaskId, TaskSpan};
use colocate_machine::printable;
use colocate_machine::{Machine, Nanos, PuIdx};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::error::Error;

/// Width of the rows in pixels, which is how many parts the run's time has.
const COLUMNS: u32 = 1000;
/// Width of the column with the PUs' numbers, in pixels.
const NAMES: i32 = 150;
/// Width of the column with the jobs' names, in pixels, and of the gap before it, in which the axis ends.
const LEGEND: u32 = 250;
const GAP: i32 = 46;
/// Height of a PU's row in pixels.
const ROW: i32 = 16;
/// Height of the lines above all, in pixels.
const HEADING: i32 = 56;
/// Height of the axis below, in pixels.
const AXIS: i32 = 44;
/// Least part of a pixel's time that is shown. Chosen.
const LEAST: f64 = 0.05;
/// Most jobs that are named. Chosen: as many as can be distinguished.
const MOST_NAMED: usize = 24;
/// Most characters of a job's name before its phases. Chosen: what fits before them.
const NAME: usize = 20;

/// A run to be drawn, simulated or not.
#[derive(Clone, Copy, Debug)]
pub struct Drawn<'a> {
    /// Two lines above it.
    pub heading: [&'a str; 2],
    /// The machine that it was on.
    pub machine: &'a Machine,
    /// The jobs' names, by `JobIdx`.
    pub jobs: &'a [String],
    /// Threads on PUs over time.
    pub spans: &'a [TaskSpan],
    /// When jobs were serial or parallel, drawn below the PUs; may be empty.
    pub phases: &'a [PhaseSpan],
    /// How long it took.
    pub lasted: Nanos,
    /// What the axis below shows.
    pub axis: &'a str,
}

/// A time for which a job was serial or parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseSpan {
    /// Its place among the jobs.
    pub job: usize,
    /// Which of the two.
    pub busy: Busy,
    /// Its beginning.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
}

/// What a job is at that does not sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// About one thread of it can run: a thin line.
    Serial,
    /// More can: a thick one.
    Parallel,
}

/// A run as an SVG document.
///
/// # Errors
/// Only if the drawing library fails; its line says how.
pub fn of_run(run: &Drawn<'_>) -> Result<String, String> {
    let mut out = String::new();
    draw(run, &mut out).map_err(|error| format!("cannot draw the run: {error}"))?;
    Ok(out)
}

fn draw(run: &Drawn<'_>, out: &mut String) -> Result<(), Box<dyn Error>> {
    let machine = run.machine;
    let named = run.jobs.len().min(MOST_NAMED + 1);
    let courses = courses(run);
    let below = if courses.is_empty() { 0 } else { courses.len() + 1 };
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
            let corner = |column: u32, y| (NAMES + column.cast_signed(), y);
            let corners = [corner(stretch.from, top + 1), corner(stretch.to, top + ROW - 1)];
            root.draw(&Rectangle::new(corners, colour(stretch.task).filled()))?;
        }
    }
    draw_courses(&root, run, &courses)?;
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

/// A row for each job's phases, below a line that says what they are.
fn draw_courses(
    root: &Area<'_>,
    run: &Drawn<'_>,
    courses: &[Vec<Stretch>],
) -> Result<(), Box<dyn Error>> {
    if courses.is_empty() {
        return Ok(());
    }
    let top = |row: usize| -> Result<i32, Box<dyn Error>> {
        Ok(HEADING + i32::try_from(run.machine.pus.len() + row)? * ROW)
    };
    let what = "phases: thick where the job was parallel, thin where serial, nothing where it slept or waited";
    root.draw(&small(what, (NAMES, top(0)? + ROW / 2), HPos::Left))?;
    for (job, row) in courses.iter().enumerate() {
        let top = top(job + 1)?;
        let name: String = printable(&run.jobs[job]).chars().take(NAME).collect();
        root.draw(&small(&name, (NAMES - 8, top + ROW / 2), HPos::Right))?;
        let owner = TaskId { job: JobIdx(u32::try_from(job)?), order: 0 };
        for stretch in row {
            let edge = if stretch.task.order == PARALLEL { 2 } else { ROW / 2 - 1 };
            let corner = |column: u32, y| (NAMES + column.cast_signed(), y);
            let corners = [corner(stretch.from, top + edge), corner(stretch.to, top + ROW - edge)];
            root.draw(&Rectangle::new(corners, colour(owner).filled()))?;
        }
    }
    Ok(())
}

/// In place of a thread's number where phases are drawn as if they were threads, the serial ones as thread 0.
const PARALLEL: u32 = 1;

/// For each named job the phases that had most of a pixel's time; none if no phases are known.
fn courses(run: &Drawn<'_>) -> Vec<Vec<Stretch>> {
    if run.phases.is_empty() {
        return Vec::new();
    }
    let mut by_job: Vec<Vec<TaskSpan>> = vec![Vec::new(); run.jobs.len().min(MOST_NAMED)];
    for phase in run.phases.iter().filter(|phase| phase.to > phase.from) {
        let Some(spans) = by_job.get_mut(phase.job) else { continue };
        let order = if phase.busy == Busy::Parallel { PARALLEL } else { 0 };
        // The same phase on both sides of a change is still one phase, so the job does not matter here.
        let task = TaskId { job: JobIdx(0), order };
        spans.push(TaskSpan { task, pu: PuIdx::new(0), from: phase.from, to: phase.to });
    }
    by_job.iter_mut().map(|spans| row(spans, run.lasted)).collect()
}

/// Where the axis has a mark, in pixels from its beginning, and what is said there: at most ten steps of 1, 2 or 5
/// times a power of ten nanoseconds.
fn ticks(lasted: Nanos) -> Vec<(i32, String)> {
    let steps =
        (0..19).flat_map(|power| [1, 2, 5].map(|digit| u64::pow(10, power).checked_mul(digit)));
    let step = steps.flatten().find(|step| lasted.0 / step <= 10).unwrap_or(u64::MAX);
    let decimals = usize::try_from(9 - step.ilog10().min(9)).unwrap_or(0);
    let tick = |number: u64| {
        let time = Nanos(number * step);
        let share = time.as_secs_f64() / lasted.as_secs_f64();
        #[allow(clippy::cast_possible_truncation)] // at most a thousand
        let x = (f64::from(COLUMNS) * share) as i32;
        (x, format!("{:.decimals$} s", time.as_secs_f64()))
    };
    match lasted {
        Nanos::ZERO => vec![(0, "0 s".to_owned())],
        _ => (0..=lasted.0 / step).map(tick).collect(),
    }
}

fn small(text: &str, place: (i32, i32), side: HPos) -> Text<'static, (i32, i32), String> {
    use plotters::style::text_anchor::{Pos, VPos};
    let style = ("sans-serif", 12).into_font().color(&BLACK).pos(Pos::new(side, VPos::Center));
    Text::new(text.to_owned(), place, style)
}

/// A job's colour, lighter for its later threads.
#[allow(clippy::cast_precision_loss)] // shades
fn colour(task: TaskId) -> HSLColor {
    /// The golden ratio's fraction: colours of neighbours differ most.
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let hue = (0.58 + f64::from(task.job.0) * GOLDEN).fract();
    let shade = f64::from(task.order % 8) / 8.0;
    HSLColor(hue, 0.65, 0.38 + 0.3 * shade)
}

/// A task for some pixels of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    task: TaskId,
    from: u32,
    to: u32,
}

/// For each PU the tasks that had most of a pixel's time, where one had a twentieth of it.
fn pixels(pus: usize, run: &Drawn<'_>) -> Vec<Vec<Stretch>> {
    let mut by_pu: Vec<Vec<TaskSpan>> = vec![Vec::new(); pus];
    for span in run.spans.iter().filter(|span| span.to > span.from) {
        by_pu[span.pu.idx()].push(*span);
    }
    by_pu.iter_mut().map(|spans| row(spans, run.lasted)).collect()
}

fn row(spans: &mut [TaskSpan], lasted: Nanos) -> Vec<Stretch> {
    if lasted == Nanos::ZERO {
        return Vec::new();
    }
    spans.sort_by_key(|span| span.from);
    let mut most: Vec<Option<(TaskId, f64)>> = vec![None; COLUMNS as usize];
    let scale = f64::from(COLUMNS) / lasted.as_secs_f64();
    let mut open: Vec<(TaskId, f64)> = Vec::new();
    let mut column = 0;
    for span in spans {
        let (from, to) = (span.from.as_secs_f64() * scale, span.to.as_secs_f64() * scale);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // cut to the row
        let columns = (from as usize).min(most.len() - 1)..=(to as usize).min(most.len() - 1);
        for at in columns {
            if at != column {
                open.clear();
                column = at;
            }
            #[allow(clippy::cast_precision_loss)] // at most a thousand
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
    let mut stretches: Vec<Stretch> = Vec::new();
    for (at, task) in (0_u32..).zip(most) {
        let Some((task, part)) = task else { continue };
        match stretches.last_mut() {
            // What hardly ran is shown as idle rather than as busy.
            _ if part < LEAST => {}
            Some(last) if last.task == task && last.to == at => last.to = at + 1,
            _ => stretches.push(Stretch { task, from: at, to: at + 1 }),
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
        let phase = |job, busy, from: u64, to: u64| PhaseSpan {
            job,
            busy,
            from: Nanos(from),
            to: Nanos(to),
        };
        let mut phases: Vec<PhaseSpan> = (0..1_000)
            .flat_map(|n| {
                let (from, change, to) = (1_000 * n, 1_000 * n + 900, 1_000 * n + 1_000);
                [phase(0, Busy::Serial, from, change), phase(0, Busy::Parallel, change, to)]
            })
            .collect();
        phases.push(phase(1, Busy::Parallel, 0, 500_000));
        phases.push(phase(1, Busy::Serial, 900_000, 1_000_000));
        let jobs = ["a", "b", "c"].map(str::to_owned);
        let drawn = Drawn {
            heading: ["", ""],
            machine: &machine,
            jobs: &jobs,
            spans: &[],
            phases: &phases,
            lasted: Nanos(1_000_000),
            axis: "",
        };
        let found: Vec<Vec<_>> = courses(&drawn)
            .iter()
            .map(|row| row.iter().map(|it| (it.task.order, it.from, it.to)).collect())
            .collect();
        assert_eq!(found, [vec![(0, 0, 1_000)], vec![(1, 0, 500), (0, 900, 1_000)], Vec::new()]);
        let text = of_run(&drawn).unwrap();
        assert!(text.contains("phases: thick"), "{text}");
        // The ground, three stretches, three jobs.
        assert_eq!(text.matches("<rect").count(), 7);
        assert!(!of_run(&Drawn { phases: &[], ..drawn }).unwrap().contains("phases"));
    }
}
