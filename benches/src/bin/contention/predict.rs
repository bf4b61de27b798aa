//! What the model makes of what threads alone show, beside what two did to each other.

use crate::machine::{Figures, LINE, lines};
use crate::raw::{Kind, Raw, Times};
use anyhow::Context;
use colocate_benches::mean;
use colocate_machine::{Bytes, PuIdx, exact};
use colocate_model::{Assumptions, Demand, MissCurve, Model, PlacedTask};
use std::fmt::Write;

/// Assumptions on the last cache's replacement, with names; the second is the default.
const REPLACEMENTS: [(f64, &str); 3] = [(0.0, "LRU"), (0.5, "random"), (1.0, "few new")];

/// An explanation of the size at which a stream alone is half-way to memory.
struct Case {
    name: String,
    machine: exact::Exact,
    assumptions: Assumptions,
    others: Option<Demand>,
}

impl Case {
    /// Nanoseconds a line of concurrent threads.
    fn predicted(&self, demands: &[&Demand]) -> anyhow::Result<Vec<f64>> {
        let performance = self.machine.performance.as_ref().context("no figures")?;
        let model = Model::new(&self.machine.machine, performance, self.assumptions)?;
        let seat =
            |(place, demand)| PlacedTask { pu: PuIdx::new(place), demand, pages: &[1.0], space: 0 };
        let mut seats: Vec<PlacedTask<'_>> =
            demands.iter().copied().enumerate().map(seat).collect();
        seats.extend(self.others.as_ref().map(|others| seat((2, others))));
        let rates = model.predict(&seats);
        Ok(rates.tasks.iter().map(|task| 1e9 / task.instructions_per_second).collect())
    }

    /// The last cache is smaller than the system says.
    fn smaller(figures: &Figures, (chance, name): (f64, &str)) -> anyhow::Result<Self> {
        let (mib, half) = figures.half_way;
        let stream = figures.demand(&("stream".into(), mib))?;
        let with = |last_mib: f64| -> anyhow::Result<Self> {
            let machine = figures.machine(last_mib)?;
            let name = format!("{name}, {last_mib:.0} MiB");
            Ok(Self { name, machine, assumptions: assumed(chance), others: None })
        };
        let mut low = 0.2 * mib;
        let mut high = 1.1 * mib;
        for _ in 0..30 {
            let middle = f64::midpoint(low, high);
            let slow = with(middle)?.predicted(&[&stream])?[0] > half;
            *(if slow { &mut low } else { &mut high }) = middle;
        }
        with(high)
    }

    /// The cache has the reported size, and other users bring in lines at a steady rate.
    fn shared(figures: &Figures, (chance, name): (f64, &str)) -> anyhow::Result<Self> {
        let (mib, half) = figures.half_way;
        let stream = figures.demand(&("stream".into(), mib))?;
        let never = MissCurve::new([(Bytes(64), 1.0)]).map_err(anyhow::Error::msg)?;
        let with = |ns: f64| -> anyhow::Result<Self> {
            let others = Demand {
                // So many that none of them is waited for, and the rate is steady.
                parallel_misses: 1e3,
                ..lines(ns * 1e-9 * figures.clock, never.clone())
            };
            let machine = figures.machine(figures.says_mib())?;
            Ok(Self {
                name: format!("{name}, others {:.0} GB/s", LINE / ns),
                machine,
                assumptions: assumed(chance),
                others: Some(others),
            })
        };
        // Nanoseconds between two lines of the others.
        let mut low = 0.3_f64;
        let mut high = 3000.0_f64;
        for _ in 0..40 {
            let middle = (low * high).sqrt();
            let slow = with(middle)?.predicted(&[&stream])?[0] > half;
            *(if slow { &mut low } else { &mut high }) = middle;
        }
        with(high)
    }
}

fn assumed(chance: f64) -> Assumptions {
    Assumptions { replacement: chance, ..Assumptions::default() }
}

/// All tables, in Markdown.
pub fn tables(raw: &Raw) -> anyhow::Result<String> {
    let figures = Figures::of(raw)?;
    let mut cases = Vec::new();
    for replacement in REPLACEMENTS {
        cases.push(Case::smaller(&figures, replacement)?);
    }
    for replacement in REPLACEMENTS {
        cases.push(Case::shared(&figures, replacement)?);
    }
    let mut text = head(raw, &figures);
    text += &alone(raw, &figures, &cases)?;
    let on_memory = crate::measure::ON_MEMORY.len().min(raw.beside.len());
    let (on_memory, in_cache) = raw.beside.split_at(on_memory);
    text += &table("memory", on_memory, raw, &figures, &cases)?;
    text += &table("last cache", in_cache, raw, &figures, &cases)?;
    Ok(text)
}

fn head(raw: &Raw, figures: &Figures) -> String {
    let found = &raw.circumstances;
    let rounds = raw.beside.first().map_or(0, |(_, times)| times[0].0.len());
    format!(
        "{}, {} UTC, `{}`: clock {:.2} GHz; from threads alone: second cache {:.1} ns, last cache {:.0} ns, \
         memory {:.0} ns, a stream over {:.0} MiB is half-way; load {} before and {} after; each thread had \
         its CPU for at least {:.0} % of the time; medians of {rounds} rounds.\n\n",
        found.processor,
        found.date,
        found.command,
        figures.clock / 1e9,
        figures.second,
        figures.last,
        figures.memory,
        figures.half_way.0,
        found.load[0],
        found.load[1],
        100.0 * found.least_share
    )
}

fn names(cases: &[Case]) -> String {
    cases.iter().map(|case| format!(" {} |", case.name)).collect()
}

/// Threads alone: measured times, and the time predicted by each case.
fn alone(raw: &Raw, figures: &Figures, cases: &[Case]) -> anyhow::Result<String> {
    let mut text = format!("| alone | ns a line |{}\n|---|---|", names(cases));
    text += &"---|".repeat(cases.len());
    let mut kinds: Vec<&(Kind, Times)> = raw
        .alone
        .iter()
        .filter(|((kind, mib), _)| ["stream", "sweeps"].contains(&&**kind) && *mib >= 16.0)
        .collect();
    kinds.sort_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut errors = vec![Vec::new(); cases.len()];
    for (kind, times) in kinds {
        let _ = write!(text, "\n| {} | {:.2} |", named(kind), times.median());
        for (case, errors) in cases.iter().zip(&mut errors) {
            let expected = case.predicted(&[&figures.demand(kind)?])?[0];
            errors.push((expected / times.median() - 1.0).abs());
            let _ = write!(text, " {expected:.2} |");
        }
    }
    text += "\n| mean error, % | |";
    for errors in &errors {
        let _ = write!(text, " {:.1} |", 100.0 * mean(errors));
    }
    Ok(text + "\n\n")
}

/// Pairs: measured slowdown of each thread beside the other, and the slowdown predicted by each
/// case.
fn table(
    what: &str,
    pairs: &[([Kind; 2], [Times; 2])],
    raw: &Raw,
    figures: &Figures,
    cases: &[Case],
) -> anyhow::Result<String> {
    let mut text = format!(
        "| thread | beside | ns a line alone | beside the other | least to most | slow-down |{} in the range |\n\
         |---|---|---|---|---|---|---|",
        names(cases)
    );
    text += &"---|".repeat(cases.len());
    let mut errors = vec![Vec::new(); cases.len()];
    let mut unslowed = Vec::new();
    let mut inside = 0_usize;
    for (kinds, times) in pairs {
        for (place, one) in kinds.iter().enumerate() {
            let same = kinds[0] == kinds[1];
            if place == 1 && same {
                continue;
            }
            // Two of a kind are one line: both threads' times.
            let all = if same {
                Times([&times[0].0[..], &times[1].0[..]].concat())
            } else {
                times[place].clone()
            };
            let alone = raw.alone(&one.0, one.1)?;
            let slower = all.median() / alone;
            let (least, most) = all.range();
            let _ = write!(
                text,
                "\n| {} | {} | {alone:.2} | {:.2} | {least:.2} to {most:.2} | {slower:.2} |",
                named(one),
                named(&kinds[1 - place]),
                all.median()
            );
            let demands = [figures.demand(one)?, figures.demand(&kinds[1 - place])?];
            let mut expected = Vec::new();
            for (case, errors) in cases.iter().zip(&mut errors) {
                let alone = case.predicted(&[&demands[0]])?[0];
                let slower_by = case.predicted(&[&demands[0], &demands[1]])?[0] / alone;
                errors.push((slower_by / slower - 1.0).abs());
                expected.push(slower_by);
                let _ = write!(text, " {slower_by:.2} |");
            }
            let within = is_within(&expected, slower);
            inside += usize::from(within);
            text += if within { " yes |" } else { " no |" };
            unslowed.push((1.0 / slower - 1.0).abs());
        }
    }
    text += "\n| mean error, % | | | | | |";
    for errors in &errors {
        let _ = write!(text, " {:.1} |", 100.0 * mean(errors));
    }
    let _ = writeln!(
        text,
        " {inside} of {} |\n\nMean error of \"none is slowed down\" by the {what}: {:.1} %.\n",
        unslowed.len(),
        100.0 * mean(&unslowed)
    );
    Ok(text)
}

/// Whether `found` lies between the least and the greatest prediction, to half of the last printed
/// digit.
fn is_within(expected: &[f64], found: f64) -> bool {
    let least = expected.iter().copied().fold(f64::INFINITY, f64::min);
    let most = expected.iter().copied().fold(0.0, f64::max);
    (least - 0.005..=most + 0.005).contains(&found)
}

fn named((kind, mib): &Kind) -> String {
    format!("{kind} {mib} MiB")
}
