//! Result of `--find-siblings` as text.

use super::siblings::{Answer, Finding, Report, THRESHOLD, Verdict};
use colocate_figures::stats::Estimate;
use std::fmt::Write;

/// The answer, then its evidence.
pub fn text(report: &Report) -> String {
    let mut text = match report.answer {
        Answer::OnePu => return one_pu(report),
        Answer::None => none(report),
        Answer::Shared => shared(report),
        Answer::TooBusy => String::new(),
    };
    text += &too_busy(report);
    text += &agreement(report);
    text += &report.quality.remark();
    text
}

fn one_pu(report: &Report) -> String {
    match report.pus.as_slice() {
        [pu] => format!("only PU {pu} is looked at: there is nothing to share\n"),
        _ => "no PU is looked at: there is nothing to share\n".to_owned(),
    }
}

fn none(report: &Report) -> String {
    let most = report.pairs.iter().max_by(|a, b| largest(a).total_cmp(&largest(b)));
    let evidence = match most {
        Some(pair) => {
            let (a, b) = pair.pus;
            format!("largest slowdown {:.2} of PUs {a},{b}", largest(pair))
        }
        None => format!("no PU was slowed while all {} worked", report.pus.len()),
    };
    let count = report.pus.len();
    format!(
        "no two of the {count} PUs share execution units ({evidence}; threshold {THRESHOLD:.2})\n"
    )
}

fn largest(finding: &Finding) -> f64 {
    let values = finding.slowdown.iter().flatten().map(|slowdown| slowdown.value);
    values.fold(0.0, f64::max)
}

fn shared(report: &Report) -> String {
    let mut text = String::new();
    for set in &report.sets {
        let _ = writeln!(text, "PUs {} share execution units", numbers(set));
    }
    for pair in report.pairs.iter().filter(|pair| pair.verdict == Verdict::Shared) {
        let (a, b) = pair.pus;
        let _ = writeln!(text, "  {a},{b}: {}", slowdowns(report, pair));
    }
    let _ =
        writeln!(text, "(slowdown beside each other [99.9 % interval]; threshold {THRESHOLD:.2})");
    text
}

/// A line for each undecided pair, and a line for the untested pairs.
fn too_busy(report: &Report) -> String {
    let mut text = String::new();
    for pair in report.pairs.iter().filter(|pair| pair.verdict == Verdict::Unclear) {
        let (a, b) = pair.pus;
        let measured = slowdowns(report, pair);
        let _ = writeln!(
            text,
            "too busy to decide whether PUs {a},{b} share execution units: {measured}"
        );
    }
    if report.untested > 0 {
        let _ = writeln!(text, "too busy to decide for {} more pairs of PUs", report.untested);
    }
    if !text.is_empty() {
        text += "try again when the machine is quiet, or with longer --seconds\n";
    }
    text
}

fn slowdowns(report: &Report, pair: &Finding) -> String {
    let each = report.probes.iter().zip(&pair.slowdown);
    let each = each.map(|(probe, slowdown)| match slowdown {
        None => format!("{probe} not measured"),
        Some(Estimate { value, interval: None }) => format!("{probe} {value:.2}"),
        Some(Estimate { value, interval: Some(range) }) => {
            format!("{probe} {value:.2} [{:.2}, {:.2}]", range.low, range.high)
        }
    });
    each.collect::<Vec<_>>().join(", ")
}

fn agreement(report: &Report) -> String {
    match (report.agrees, &report.claimed) {
        (Some(true), _) => "the topology says the same\n".to_owned(),
        (Some(false), Some(claimed)) if claimed.is_empty() => {
            "the topology claims that no two PUs share a core\n".to_owned()
        }
        (Some(false), Some(claimed)) => {
            let sets: Vec<String> = claimed.iter().map(|set| numbers(set)).collect();
            format!("the topology claims other cores: {}\n", sets.join(" / "))
        }
        _ => String::new(),
    }
}

fn numbers(pus: &[u32]) -> String {
    pus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::siblings::{Question, find};
    use colocate_cli::measure::testing::Pretend;
    use expect_test::{Expect, expect};

    fn check(mut machine: Pretend, pus: &[u32], claimed: Option<Vec<Vec<u32>>>, expected: &Expect) {
        let question = Question { pus, claimed, repeat: 3, seed: 1 };
        expected.assert_eq(&text(&find(&mut machine, &question).unwrap()));
    }

    #[test]
    fn no_smt() {
        check(
            Pretend::quiet(vec![]),
            &[0, 1],
            Some(vec![]),
            &expect![[r#"
            no two of the 2 PUs share execution units (largest slowdown 1.01 of PUs 0,1; threshold 1.41)
            the topology says the same
        "#]],
        );
        let pus: Vec<u32> = (0..16).collect();
        check(
            Pretend::quiet(vec![]),
            &pus,
            None,
            &expect![[r#"
                no two of the 16 PUs share execution units (no PU was slowed while all 16 worked; threshold 1.41)
            "#]],
        );
    }

    #[test]
    fn smt_that_the_topology_hides() {
        let machine = Pretend::quiet(vec![vec![0, 2], vec![1, 3]]);
        check(
            machine,
            &[0, 1, 2, 3],
            Some(vec![]),
            &expect![[r#"
                PUs 0,2 share execution units
                PUs 1,3 share execution units
                  0,2: int-mul 1.88 [1.77, 2.00], fp-div 1.88 [1.51, 2.34]
                  1,3: int-mul 1.89 [1.70, 2.10], fp-div 1.89 [1.67, 2.15]
                (slowdown beside each other [99.9 % interval]; threshold 1.41)
                the topology claims that no two PUs share a core
            "#]],
        );
    }

    #[test]
    fn smt_that_the_topology_misplaces() {
        let machine = Pretend::quiet(vec![vec![0, 2], vec![1, 3]]);
        check(
            machine,
            &[0, 1, 2, 3],
            Some(vec![vec![0, 1], vec![2, 3]]),
            &expect![[r#"
                PUs 0,2 share execution units
                PUs 1,3 share execution units
                  0,2: int-mul 1.88 [1.77, 2.00], fp-div 1.88 [1.51, 2.34]
                  1,3: int-mul 1.89 [1.70, 2.10], fp-div 1.89 [1.67, 2.15]
                (slowdown beside each other [99.9 % interval]; threshold 1.41)
                the topology claims other cores: 0,1 / 2,3
            "#]],
        );
    }

    #[test]
    fn busy() {
        let machine = Pretend { lost_one_in: 1, ..Pretend::quiet(vec![]) };
        check(
            machine,
            &[0, 1],
            Some(vec![]),
            &expect![[r#"
            too busy to decide whether PUs 0,1 share execution units: int-mul not measured, fp-div not measured
            try again when the machine is quiet, or with longer --seconds
            36 of 36 measurements discarded: other load took the PUs (down to 40 % were left)
        "#]],
        );
        let pus: Vec<u32> = (0..16).collect();
        let machine = Pretend { lost_one_in: 1, ..Pretend::quiet(vec![]) };
        check(
            machine,
            &pus,
            Some(vec![]),
            &expect![[r#"
            too busy to decide for 120 more pairs of PUs
            try again when the machine is quiet, or with longer --seconds
            19 of 19 measurements discarded: other load took the PUs (down to 40 % were left)
        "#]],
        );
    }

    #[test]
    fn one_pu_only() {
        check(
            Pretend::quiet(vec![]),
            &[4],
            None,
            &expect![[r#"
            only PU 4 is looked at: there is nothing to share
        "#]],
        );
    }
}
