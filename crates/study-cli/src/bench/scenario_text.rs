//! The scenarios as text.

use colocate_cli::measure::scenarios::{MeasurementSettings, SmtBenchReport};
use colocate_figures::stats::{Estimate, geometric_mean};
use smt_bench::KernelSpec;
use std::fmt::Write;

/// Published figures on two EPYC 7301 (Serpa et al., section 3.2).
const PAPER: [&str; 3] = ["100.0 %", "187.2 %", "102.7 %"];

/// Scenarios, kernels and, with `matrix`, the time of each kernel beside each.
pub fn text(report: &SmtBenchReport, matrix: bool) -> String {
    let mut text = head(report) + &summary(report) + "\n" + &by_kernel(report);
    if matrix {
        text += "\n";
        text += &whole_matrix(report);
    }
    text + &report.quality.remark()
}

fn head(report: &SmtBenchReport) -> String {
    let MeasurementSettings { pus: [a, b], share_core, seconds, repeat, seed } = report.settings;
    let topology = match share_core {
        Some(true) => "one core, says the topology",
        Some(false) => "different cores, says the topology",
        None => "topology unknown",
    };
    let plural = if repeat == 1 { "" } else { "s" };
    format!(
        "PUs {a} and {b} ({topology}); {repeat} repetition{plural}, {seconds} s a measurement, seed \
         {seed}\n"
    )
}

fn summary(report: &SmtBenchReport) -> String {
    let means = report.scenarios;
    let rows = [
        ("A  alone", means.alone),
        ("B  beside itself", means.same),
        ("C  beside another kernel", means.different),
    ];
    let mut text = format!(
        "{:<27}{:>9}{:>21}{:>11}\n",
        "time relative to alone", "mean", "95 % interval", "the paper"
    );
    for ((name, mean), paper) in rows.into_iter().zip(PAPER) {
        let _ = writeln!(text, "{name:<27}{:>9}{:>21}{paper:>11}", percent(mean), range(mean));
    }
    text + "geometric means over kernels; the paper's on two EPYC 7301\n"
}

fn by_kernel(report: &SmtBenchReport) -> String {
    let kernels = report.kernels();
    let mut text = format!(
        "{:<16}{:>16}{:>11}{:>21}{:>11}\n",
        "kernel", "alone, ns/loop", "B", "95 % interval", "C"
    );
    for &kernel in &kernels {
        let alone = report.alone.iter().filter(|alone| alone.kernel == kernel);
        let times: Vec<f64> = alone.filter_map(|alone| Some(alone.iteration_ns?.value)).collect();
        let alone = geometric_mean(&times).map_or("-".to_owned(), |time| format!("{time:.1}"));
        let same = time(report, kernel, kernel);
        let others = kernels.iter().filter(|other| **other != kernel);
        let others: Vec<f64> =
            others.filter_map(|&other| Some(time(report, kernel, other)?.value)).collect();
        let others = geometric_mean(&others).map(|value| Estimate { value, interval: None });
        let _ = writeln!(
            text,
            "{kernel:<16}{alone:>16}{:>11}{:>21}{:>11}",
            percent(same),
            range(same),
            percent(others)
        );
    }
    text
}

fn whole_matrix(report: &SmtBenchReport) -> String {
    let kernels = report.kernels();
    let mut text = format!("{:<16}", "timed \\ beside");
    for beside in &kernels {
        let _ = write!(text, "{beside:>14}");
    }
    text += "\n";
    for &kernel in &kernels {
        let _ = write!(text, "{kernel:<16}");
        for &beside in &kernels {
            let _ = write!(text, "{:>14}", percent(time(report, kernel, beside)));
        }
        text += "\n";
    }
    text
}

fn time(report: &SmtBenchReport, kernel: KernelSpec, beside: KernelSpec) -> Option<Estimate> {
    report.cell(kernel, beside)?.time
}

fn percent(estimate: Option<Estimate>) -> String {
    estimate.map_or("-".to_owned(), |estimate| format!("{:.1} %", estimate.value * 100.0))
}

fn range(estimate: Option<Estimate>) -> String {
    let interval = estimate.and_then(|estimate| estimate.interval);
    interval.map_or("-".to_owned(), |range| {
        format!("{:.1} - {:.1} %", range.low * 100.0, range.high * 100.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_cli::measure::scenarios::measure;
    use colocate_cli::measure::testing::Pretend;
    use expect_test::expect;
    use smt_bench::Kernel;

    fn shown(mut machine: Pretend, repeat: u32, matrix: bool) -> String {
        let kernels = [Kernel::FpDiv, Kernel::IntMul, Kernel::LoadDep].map(KernelSpec::from);
        let settings = MeasurementSettings {
            pus: [0, 2],
            share_core: Some(true),
            repeat,
            seconds: 0.1,
            seed: 1,
        };
        text(&measure(&mut machine, settings, &kernels).unwrap(), matrix)
    }

    #[test]
    fn siblings_with_matrix() {
        expect![[r#"
            PUs 0 and 2 (one core, says the topology); 5 repetitions, 0.1 s a measurement, seed 1
            time relative to alone          mean        95 % interval  the paper
            A  alone                     100.0 %       99.8 - 100.2 %    100.0 %
            B  beside itself             157.6 %      157.1 - 158.1 %    187.2 %
            C  beside another kernel     103.1 %      102.6 - 103.6 %    102.7 %
            geometric means over kernels; the paper's on two EPYC 7301

            kernel            alone, ns/loop          B        95 % interval          C
            fp-div                      10.0    195.0 %      193.8 - 196.1 %    103.1 %
            int-mul                     10.0    194.7 %      194.0 - 195.3 %    103.3 %
            load-dep                    10.0    103.2 %      102.7 - 103.7 %    103.0 %

            timed \ beside          fp-div       int-mul      load-dep
            fp-div                 195.0 %       103.2 %       102.9 %
            int-mul                103.1 %       194.7 %       103.4 %
            load-dep               103.1 %       102.8 %       103.2 %
        "#]]
        .assert_eq(&shown(Pretend::quiet(vec![vec![0, 2]]), 5, true));
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let machine = Pretend { lost_one_in: 2, ..Pretend::quiet(vec![vec![0, 2]]) };
        expect![[r#"
            PUs 0 and 2 (one core, says the topology); 1 repetition, 0.1 s a measurement, seed 1
            time relative to alone          mean        95 % interval  the paper
            A  alone                     100.0 %                    -    100.0 %
            B  beside itself                   -                    -    187.2 %
            C  beside another kernel     103.5 %                    -    102.7 %
            geometric means over kernels; the paper's on two EPYC 7301

            kernel            alone, ns/loop          B        95 % interval          C
            fp-div                      10.0          -                    -    102.6 %
            int-mul                      9.9          -                    -    104.4 %
            load-dep                       -          -                    -          -
            9 of 15 measurements discarded: other load took the PUs (down to 40 % were left)
        "#]]
        .assert_eq(&shown(machine, 1, false));
    }
}
