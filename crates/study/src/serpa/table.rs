//! The study as text for a terminal.

use super::Report;
use crate::simulate::figures::Spread;
use std::fmt::Write;

/// The report as tables and their legend; ends in a newline.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let Report { machine, draws, seeds, .. } = report;
    let _ = writeln!(
        out,
        "simulated {machine}; in brackets the range over {draws} sets of assumptions, {seeds} seeds each"
    );
    bench(&mut out, report);
    pairs(&mut out, report);
    tail(&mut out, report);
    out
}

/// In percent.
fn percent(spread: &Spread) -> String {
    let Spread { value, low, high } = spread;
    format!("{:6.1} ({:.1} to {:.1})", value * 100.0, low * 100.0, high * 100.0)
}

fn bench(out: &mut String, report: &Report) {
    let bench = &report.bench;
    let _ = writeln!(out, "\nSMT-Bench, time on one core relative to alone, percent");
    for (kernel, same) in bench.kernels.iter().zip(&bench.same) {
        let _ = writeln!(out, "  {kernel:10} beside itself        {}", percent(same));
    }
    // Published: Serpa et al., section 4. Which partners scenario C has is not said there.
    for (name, spread, published) in [
        ("B: beside itself, geometric mean", &bench.scenario_b, "published 187.2"),
        ("B: the worst kernel", &bench.worst_b, "published 220, \"up to 120 % more\""),
        ("C: beside another, all pairs", &bench.scenario_c, "published 102.7"),
        ("C: beside the best partner", &bench.best_c, "the same"),
    ] {
        let _ = writeln!(out, "  {name:32} {}; {published}", percent(spread));
    }
}

fn pairs(out: &mut String, report: &Report) {
    let pairs = &report.pairs;
    let _ = writeln!(
        out,
        "\n{} pairs of {} applications, {} threads each, none ever alone: percent of the baseline",
        pairs.pairs,
        pairs.applications.join(" "),
        pairs.threads
    );
    let heading =
        ["slower one's time/os", "slower one's time/RR", "STP/os", "STP/RR", "unfairness"];
    let _ = write!(out, "  {:16}", "policy");
    heading.iter().for_each(|name| {
        let _ = write!(out, "  {name:24}");
    });
    out.push('\n');
    for policy in &pairs.policies {
        let _ = write!(out, "  {:16}", policy.policy);
        for spread in [
            &policy.slower_over_os,
            &policy.slower_over_round_robin,
            &policy.stp_over_os,
            &policy.stp_over_round_robin,
            &policy.unfairness,
        ] {
            let _ = write!(out, "  {:24}", percent(spread));
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out.push_str(PUBLISHED);
}

/// Serpa et al., section 6: means over all pairs, times of the slower application.
const PUBLISHED: &str = "  published for instruction-aware mapping: 29.1 % less time of the slower one \
    than under Linux,\n  17.4 % less than round-robin; with applications of unequal length, see the tail\n  \
    `os`: each lasts half a second alone, too short for the simulated kernel to settle; see docs/serpa.md\n";

fn tail(out: &mut String, report: &Report) {
    let _ = writeln!(
        out,
        "\nthe metric's tail: two copies of one application, the second shorter; how much sooner the longer \
         one\nends with one thread of each a core than under round-robin, with nothing to match, percent"
    );
    for tail in &report.tail {
        let _ = writeln!(out, "  length {:3.0} %  {}", tail.length * 100.0, percent(&tail.gain));
    }
}
