//! Simulated figures as text for a terminal.

use super::figures::{
    ComparisonSettings, JobFigures, MetricFigures, PolicyFigures, PortUsage, Simulated,
    SimulatedVerdict, Spread, Usage,
};
use crate::metric::Metric;
use colocate_figures::stats::Estimate;
use colocate_figures::table::{aligned, matrix, range, row, seconds, three_decimals, unknown};
use colocate_machine::printable;
use colocate_sim::Method;
use std::fmt::Write;

/// Most jobs with a line of their own. Chosen: a screen.
const MOST_JOBS: usize = 32;

/// Most jobs whose sharing of cores is shown as a matrix. Chosen: a line of 100 characters.
const MOST_TOGETHER: usize = 12;

/// The figures as tables, with a legend and notes; ends in a newline.
#[must_use]
pub fn text(found: &Simulated) -> String {
    let settings = &found.settings;
    let mut out = heading(settings);
    for place in 0..Metric::OF_SCENARIOS.len() {
        let _ = writeln!(out, "\n{}, simulated", Metric::OF_SCENARIOS[place].title());
        out.push_str(&aligned(&metric_rows(found, place)));
    }
    let _ = writeln!(out, "\neach job's slowdown (range), simulated");
    out.push_str(&aligned(&job_rows(found, |job| job.slowdown)));
    let _ = writeln!(out, "\neach job's progress while it was ready (range), simulated");
    out.push_str(&aligned(&job_rows(found, |job| job.progress)));
    let _ = writeln!(out, "\nhow the machine was used, default assumptions, simulated");
    out.push_str(&aligned(&usage_rows(found)));
    let ports = port_rows(found);
    if ports.len() > 1 {
        let _ = writeln!(
            out,
            "\nhow full ports were (the fullest of a line, where that is another), default assumptions, simulated"
        );
        out.push_str(&aligned(&ports));
    }
    for policy in &found.policies {
        together(&mut out, settings, policy);
    }
    legend(&mut out, found);
    out
}

/// A line for each policy with its resolved metrics, for lists of scenarios.
#[must_use]
pub fn summary(found: &Simulated) -> String {
    let settings = &found.settings;
    let mut out = format!(
        "simulated on {}: {}, against {}\n",
        printable(&settings.machine),
        printable(&settings.scenario),
        printable(&settings.baseline)
    );
    let others = found.policies.iter().filter(|policy| policy.policy != settings.baseline);
    for policy in others {
        let resolved = policy.metrics.iter().filter(|figures| figures.unresolved.is_none());
        let said: Vec<String> = resolved
            .map(|figures| {
                let slowest = figures.metric == Metric::Slowest;
                let name = if slowest { "slowest job" } else { figures.metric.name() };
                format!("{} in {name}", verdict(figures))
            })
            .collect();
        let said = if said.is_empty() { "not resolved".to_owned() } else { said.join(", ") };
        let _ = writeln!(out, "  {}: {said}", printable(&policy.policy));
    }
    out
}

/// First lines: the scenario, the machine, the number of simulations.
fn heading(settings: &ComparisonSettings) -> String {
    let method = match settings.method {
        Method::Leave => "a job that is done leaves",
        Method::Restart => "a job that is done begins anew until all are done",
    };
    let mut out = format!(
        "simulated on {}, not measured: {}\n{} jobs, {} threads; {method}; {} seeds x {} sets of \
         assumptions\n",
        printable(&settings.machine),
        printable(&settings.scenario),
        settings.jobs.len(),
        settings.tasks,
        settings.seeds,
        settings.draws,
    );
    if let Some(note) = &settings.note {
        let _ = writeln!(out, "{}", printable(note));
    }
    out
}

fn metric_rows(found: &Simulated, place: usize) -> Vec<Vec<String>> {
    let ratio_head = format!("ratio to {}", found.settings.baseline);
    let head = ["policy", "value", "range", &ratio_head, "interval", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for policy in &found.policies {
        let figures = &policy.metrics[place];
        rows.push(vec![
            policy.policy.clone(),
            figures.value.map_or_else(unknown, |value| seconds(value.value)),
            between(figures.value, seconds),
            ratio(figures),
            between(figures.ratio, three_decimals),
            verdict(figures),
        ]);
    }
    rows
}

/// The verdict in words, with the least and the largest difference, in percent.
#[must_use]
pub fn verdict(figures: &MetricFigures) -> String {
    let percent = figures.ratio.map_or_else(String::new, |ratio| {
        let mut ends = [ratio.low, ratio.high].map(|end| 100.0 * (end - 1.0).abs());
        // The lower end of a gain is the larger difference.
        ends.sort_by(f64::total_cmp);
        let [least, most] = ends.map(|end| format!("{end:.1}"));
        if least == most { most } else { format!("{least} to {most}") }
    });
    match (figures.verdict, figures.unresolved) {
        (SimulatedVerdict::Baseline, _) => "baseline".to_owned(),
        (SimulatedVerdict::Better, _) => format!("{percent} % better"),
        (SimulatedVerdict::Worse, _) => format!("{percent} % worse"),
        (SimulatedVerdict::NotResolved, None) => "not resolved".to_owned(),
        (SimulatedVerdict::NotResolved, Some(why)) => format!("not resolved: {}", why.reason()),
    }
}

fn job_rows(found: &Simulated, get: impl Fn(&JobFigures) -> Option<Spread>) -> Vec<Vec<String>> {
    let mut rows = vec![row("job", found.policies.iter().map(|policy| policy.policy.clone()))];
    for (place, name) in found.settings.jobs.iter().enumerate().take(MOST_JOBS) {
        let cells = found.policies.iter().map(|policy| {
            let figures = get(&policy.jobs[place]);
            figures.map_or_else(unknown, |it| {
                format!("{:.3} ({})", it.value, between(figures, three_decimals))
            })
        });
        rows.push(row(name, cells));
    }
    let more = found.settings.jobs.len().saturating_sub(MOST_JOBS);
    if more > 0 {
        rows.push(vec![format!("and {more} more, in the JSON")]);
    }
    rows
}

fn usage_rows(found: &Simulated) -> Vec<Vec<String>> {
    let head = [
        "policy",
        "PUs",
        "slots",
        "ports",
        "memory, busiest",
        "links, busiest",
        "moves",
        "to other nodes",
        "pages moved",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    // All policies ran on the same machine, with the same levels.
    let levels = found.policies.first().map_or(Vec::new(), |first| known_levels(&first.usage));
    rows[0].extend(levels.iter().map(|(level, _)| format!("L{level} bandwidth")));
    for PolicyFigures { policy, usage, .. } in &found.policies {
        let mut row = vec![
            policy.clone(),
            percent(usage.pus),
            percent(usage.slots),
            percent(usage.ports),
            busiest(&usage.controllers),
            busiest(&usage.links),
            format!("{:.1}", usage.moves),
            format!("{:.1}", usage.node_moves),
            format!("{:.1} MiB", usage.page_bytes / f64::from(1 << 20)),
        ];
        row.extend(known_levels(usage).into_iter().map(|(_, used)| percent(used)));
        rows.push(row);
    }
    rows
}

/// Levels of caches with known use, and this use.
fn known_levels(usage: &Usage) -> Vec<(u8, f64)> {
    usage.caches.iter().filter_map(|cache| Some((cache.level, cache.used?))).collect()
}

/// A line for each group of ports in use under any policy.
fn port_rows(found: &Simulated) -> Vec<Vec<String>> {
    let groups = found.policies.first().map_or(&[][..], |first| &first.usage.port_groups);
    let kinds = groups.iter().any(|group| group.kind != groups[0].kind);
    let mut rows = vec![row("ports", found.policies.iter().map(|policy| policy.policy.clone()))];
    for (place, group) in groups.iter().enumerate() {
        if found.policies.iter().all(|policy| policy.usage.port_groups[place].used == 0.0) {
            continue;
        }
        let cells = found.policies.iter().map(|policy| {
            let PortUsage { used, fullest, .. } = policy.usage.port_groups[place];
            // A difference that one decimal shows.
            let apart = (fullest - used) * 100.0 >= 0.1;
            let beside = if apart { format!(" ({})", percent(fullest)) } else { String::new() };
            percent(used) + &beside
        });
        let kind = if kinds { format!("{}: ", group.kind) } else { String::new() };
        let name = kind + &group.ports.join(" ");
        rows.push(row(&name, cells));
    }
    rows
}

/// Pairs of jobs on a shared core, as parts of the time.
fn together(out: &mut String, settings: &ComparisonSettings, policy: &PolicyFigures) {
    let Usage { together, .. } = &policy.usage;
    let jobs = settings.jobs.len();
    if together.iter().flatten().all(|&share| share == 0.0) {
        return;
    }
    let _ = writeln!(
        out,
        "\n{}: pairs of tasks on one core, on average over the time, default assumptions, simulated",
        printable(&policy.policy)
    );
    if jobs > MOST_TOGETHER {
        let _ = writeln!(out, "{jobs} jobs: in the JSON");
        return;
    }
    out.push_str(&matrix(&settings.jobs, |a, b| format!("{:.2}", together[a][b])));
}

fn legend(out: &mut String, found: &Simulated) {
    let _ = writeln!(
        out,
        "\nvalue: mean over the seeds under the default assumptions; range: of that mean over all sets of \
         assumptions.\nratio: geometric mean over the seeds, paired; interval: of that mean over all \
         sets, widened by what the\nseeds leave open. `not resolved`: the sign is not the same for all, \
         or the difference is below {:.0} %,\nwhich is what the model can resolve.",
        found.resolution * 100.0
    );
    for note in &found.notes {
        let _ = writeln!(out, "note: {}", printable(note));
    }
}

fn ratio(figures: &MetricFigures) -> String {
    match figures.verdict {
        SimulatedVerdict::Baseline => "1".to_owned(),
        _ => figures.ratio.map_or_else(unknown, |ratio| three_decimals(ratio.value)),
    }
}

fn between(spread: Option<Spread>, form: impl Fn(f64) -> String) -> String {
    range(spread.and_then(|spread| Estimate::from(spread).interval), form)
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn busiest(parts: &[f64]) -> String {
    parts.iter().copied().reduce(f64::max).map_or_else(unknown, percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::figures::tests::{runs, settings};
    use expect_test::expect_file;

    #[test]
    fn three_policies() {
        let settings = settings(&["os", "mix", "compact"], 3, 3);
        let runs = runs(&settings, |policy, draw, seed| {
            [2.0, 1.6, 1.99][policy] + f64::from(draw) * 0.05 + f64::from(seed) * 0.01
        });
        let found = Simulated::of(settings, &runs);
        expect_file!["../../tests/golden/simulated-three-policies.txt"].assert_eq(&text(&found));
    }

    #[test]
    fn without_an_end_there_is_no_number() {
        let mut settings = settings(&["os", "mix"], 2, 2);
        settings.jobs = (0..40).map(|job| format!("job {job}")).collect();
        let mut runs = runs(&settings, |_, _, _| 1.0);
        for run in &mut runs {
            (run.metrics, run.slowdowns, run.progress) =
                ([None; 5], vec![None; 40], vec![None; 40]);
        }
        let said = text(&Simulated::of(settings, &runs));
        assert!(
            said.contains("\nmix     -      -      -            -         not resolved: runs did")
        );
        assert!(said.contains("\nand 8 more, in the JSON\n"), "{said}");
        assert!(said.contains("note: 4 of 4 runs under mix did not come to their end"));
    }
}
