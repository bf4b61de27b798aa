//! The result of `colocate-study bench cores` as text.

use colocate_cli::measure::harness::SHARED_WITH_OTHERS;
use colocate_machine::measured::{CoreSpeeds, PuSpeed};
use std::fmt::Write;

/// Kinds of cores, PUs, and disturbances.
pub fn text(speeds: &CoreSpeeds) -> String {
    let mut text = kinds(speeds);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\n{:>4}  {:>5}  {:<13}  {:>7}  {:>5}  {:>9}  reported",
        "PU", "speed", "range", "running", "had", "clock"
    );
    for pu in &speeds.pus {
        let range = format!("{:.3}-{:.3}", pu.speed.low, pu.speed.high);
        let _ = writeln!(
            text,
            "{:>4}  {:>5.3}  {range:<13}  {:>7.3}  {:>3.0} %  {:>9}  {}",
            pu.pu.0,
            pu.speed.value,
            pu.speed_while_running,
            pu.share_of_pu * 100.0,
            pu.clock.to_string(),
            reported(pu)
        );
    }
    let _ = writeln!(
        text,
        "speed: work in a second on the wall, relative to the fastest core, with its range (99.9 %); running: in a\n\
         second of CPU time, relative to the fastest PU; had: the share of the time in which the thread had the PU"
    );
    let odd = [held(speeds), busy(speeds)].into_iter().flatten();
    for line in odd.chain(speeds.disagreements.iter().cloned()) {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn kinds(speeds: &CoreSpeeds) -> String {
    let visits = format!("{} visits of {} to each PU", speeds.rounds, speeds.visit_ns);
    match speeds.kinds.as_slice() {
        [_] if speeds.pus.len() == 1 => {
            format!("1 PU is measured ({visits}): nothing to compare\n")
        }
        [_] => format!("1 kind of core: all measured cores are alike ({visits})\n"),
        kinds => {
            let mut text = format!("{} kinds of cores, slowest first ({visits})\n", kinds.len());
            for kind in kinds {
                let speed = kind.speed;
                let _ = writeln!(
                    text,
                    "  {:.3} of the fastest, {:.3}-{:.3}, capacity {:>4}: PU{} {}",
                    speed.value,
                    speed.low,
                    speed.high,
                    speed.capacity(),
                    if kind.pus.len() == 1 { "" } else { "s" },
                    kind.pus
                );
            }
            text
        }
    }
}

/// Figures of firmware and kernel for a PU, in a few words.
fn reported(pu: &PuSpeed) -> String {
    let found = &pu.reported;
    let words = [
        found.kind.clone(),
        found.cpu_capacity.map(|capacity| format!("capacity {capacity}")),
        found.cppc_highest.map(|highest| format!("CPPC {highest}")),
        found.max_frequency.map(|frequency| format!("up to {frequency}")),
        found.hybrid_pmu.clone(),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() { "nothing".into() } else { words.join(", ") }
}

/// A line on PUs shared with other load; `None` if there are none.
fn held(speeds: &CoreSpeeds) -> Option<String> {
    let held = speeds.pus.iter().filter(|pu| pu.share_of_pu < SHARED_WITH_OTHERS);
    let held: Vec<String> =
        held.map(|pu| format!("{} ({:.0} % were left)", pu.pu.0, pu.share_of_pu * 100.0)).collect();
    (!held.is_empty()).then(|| format!("others held PU {}", held.join(", ")))
}

/// A line on other running tasks; `None` if there are none. The kernel moves them to idle PUs,
/// which makes PUs look more alike.
fn busy(speeds: &CoreSpeeds) -> Option<String> {
    let others = speeds.others_runnable.filter(|&others| others > 0)?;
    Some(format!(
        "{others} other task{} ran at the start: on an idle machine speeds are known better",
        if others == 1 { "" } else { "s" }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(json: &str, expected: &Expect) {
        expected.assert_eq(&text(&CoreSpeeds::from_json(json).unwrap()));
    }

    #[test]
    fn a_pu_that_others_hold() {
        check(
            include_str!("../../../../cli/tests/cores/held.json"),
            &expect![[r#"
                2 kinds of cores, slowest first (15 visits of 60.0 ms to each PU)
                  0.480 of the fastest, 0.475-0.485, capacity  492: PU 1
                  1.000 of the fastest, 0.990-1.010, capacity 1024: PU 0

                  PU  speed  range          running    had      clock  reported
                   0  1.000  0.990-1.010      1.000  100 %   2.70 GHz  core, capacity 1024
                   1  0.480  0.475-0.485      0.990   49 %   2.70 GHz  core, capacity 1024
                speed: work in a second on the wall, relative to the fastest core, with its range (99.9 %); running: in a
                second of CPU time, relative to the fastest PU; had: the share of the time in which the thread had the PU
                others held PU 1 (49 % were left)
                1 other task ran at the start: on an idle machine speeds are known better
                cpu_capacity says that cores are alike (1024), measured are 2 kinds: PU 1 at 0.48 of the fastest
            "#]],
        );
    }

    #[test]
    fn a_hybrid_machine() {
        check(
            include_str!("../../../../cli/tests/cores/hybrid.json"),
            &expect![[r#"
            2 kinds of cores, slowest first (15 visits of 60.0 ms to each PU)
              0.580 of the fastest, 0.574-0.586, capacity  594: PUs 4-11
              1.000 of the fastest, 0.988-1.010, capacity 1024: PUs 0-3

              PU  speed  range          running    had      clock  reported
               0  1.000  0.990-1.010      1.000  100 %   4.70 GHz  performance, capacity 1024, up to 5.00 GHz, cpu_core
               1  1.000  0.990-1.010      1.000  100 %   4.70 GHz  performance, capacity 1024, up to 5.00 GHz, cpu_core
               2  0.998  0.988-1.008      0.998  100 %   4.70 GHz  performance, capacity 1024, up to 5.00 GHz, cpu_core
               3  0.998  0.988-1.008      0.998  100 %   4.70 GHz  performance, capacity 1024, up to 5.00 GHz, cpu_core
               4  0.580  0.574-0.586      0.580  100 %   3.50 GHz  efficiency, capacity 1024, up to 3.80 GHz, cpu_atom
               5  0.580  0.574-0.586      0.580  100 %   3.50 GHz  efficiency, capacity 1024, up to 3.80 GHz, cpu_atom
               6  0.580  0.574-0.586      0.580  100 %   3.50 GHz  efficiency, capacity 1024, up to 3.80 GHz, cpu_atom
               7  0.580  0.574-0.586      0.580  100 %   3.50 GHz  efficiency, capacity 1024, up to 3.80 GHz, cpu_atom
               8  0.580  0.574-0.586      0.580  100 %   3.50 GHz  efficiency, capacity 1024, up to 3.80 GHz, cpu_atom
               9  0.580  0.574-0.586      0.580  100 %   3.50 GHz  efficiency, capacity 1024, up to 3.80 GHz, cpu_atom
              10  0.580  0.574-0.586      0.580  100 %   3.50 GHz  efficiency, capacity 1024, up to 3.80 GHz, cpu_atom
              11  0.580  0.574-0.586      0.580  100 %   3.50 GHz  efficiency, capacity 1024, up to 3.80 GHz, cpu_atom
            speed: work in a second on the wall, relative to the fastest core, with its range (99.9 %); running: in a
            second of CPU time, relative to the fastest PU; had: the share of the time in which the thread had the PU
            cpu_capacity says that cores are alike (1024), measured are 2 kinds: PUs 4-11 at 0.58 of the fastest
        "#]],
        );
    }
}
