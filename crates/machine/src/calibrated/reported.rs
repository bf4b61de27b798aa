//! Speeds of PUs reported by firmware and kernel, and their disagreements with a measurement.

use super::{MeasuredKind, NOISE, PuSpeed};
use crate::cpulist::PuSet;
use crate::units::Hertz;

/// Speed of a PU as reported by firmware and kernel; `None` for a figure not reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// `cpu_capacity`: 1024 is the fastest.
    pub cpu_capacity: Option<u32>,
    /// ACPI CPPC's `highest_perf`, in a scale of the firmware.
    pub cppc_highest: Option<u32>,
    /// `cpuinfo_max_freq`.
    pub max_frequency: Option<Hertz>,
    /// Hybrid PMU that lists the PU, such as `cpu_atom`.
    pub hybrid_pmu: Option<String>,
}

/// Least difference at which a reported speed counts as wrong, as a share of the greater speed.
/// Chosen: the kernel's capacities come from Dhrystone or from clock rates, and the ratios of other
/// code differ from them by some tens of percent between kinds of cores.
const WRONG: f64 = 0.25;

/// A reported figure of speed.
struct SpeedFigure {
    name: &'static str,
    /// True if figures are ratios of speeds. Clock rates are not: work per cycle differs between
    /// cores.
    of_speed: bool,
    figure: fn(&Reported) -> Option<u64>,
}

/// All figures compared with the measurement.
const SOURCES: [SpeedFigure; 3] = [
    SpeedFigure {
        name: "cpu_capacity",
        of_speed: true,
        figure: |found| found.cpu_capacity.map(u64::from),
    },
    SpeedFigure {
        name: "CPPC's highest_perf",
        of_speed: true,
        figure: |found| found.cppc_highest.map(u64::from),
    },
    SpeedFigure {
        name: "cpuinfo_max_freq",
        of_speed: false,
        figure: |found| found.max_frequency.map(|frequency| frequency.0),
    },
];

/// Compares each source with the measurement: equal or different cores, their order, and the ratio
/// of speeds. One line a disagreement. Sources without a figure for every measured PU are left out.
#[must_use]
pub fn disagreements(pus: &[PuSpeed], kinds: &[MeasuredKind]) -> Vec<String> {
    let mut lines: Vec<String> =
        SOURCES.iter().filter_map(|source| disagreement(source, pus, kinds)).collect();
    lines.extend(hybrid(pus, kinds));
    lines
}

fn disagreement(source: &SpeedFigure, pus: &[PuSpeed], kinds: &[MeasuredKind]) -> Option<String> {
    let figures: Option<Vec<u64>> = pus.iter().map(|pu| (source.figure)(&pu.reported)).collect();
    let figures = figures?;
    let top = *figures.iter().max()?;
    let name = source.name;
    let is_alike = spread(&figures) <= NOISE;
    match (is_alike, kinds) {
        (true, [] | [_]) => None,
        (true, [slowest, .., _]) => Some(format!(
            "{name} says that cores are alike ({top}), measured are {} kinds: {} at {:.2} of the fastest",
            kinds.len(),
            named(&slowest.pus),
            slowest.speed.value
        )),
        // Favoured cores clock higher, but are of the same kind.
        (false, [_]) if spread(&figures) <= WRONG => None,
        (false, [_]) => {
            let least = figures.iter().min()?;
            Some(format!(
                "{name} says that cores differ ({least} to {top}), measured they are alike"
            ))
        }
        (false, _) => {
            let means: Vec<f64> =
                kinds.iter().map(|kind| mean_in(&kind.pus, pus, &figures)).collect();
            if let Some(at) = means.windows(2).position(|pair| pair[0] >= pair[1]) {
                let slower = &kinds[at];
                let faster = &kinds[at + 1];
                return Some(format!(
                    "{name} ranks {} no lower than {}, measured are {:.2} and {:.2} of the fastest",
                    named(&slower.pus),
                    named(&faster.pus),
                    slower.speed.value,
                    faster.speed.value
                ));
            }
            // Clock rates in the right order agree, whatever their ratio.
            if source.of_speed { wrong_ratio(name, kinds, &means) } else { None }
        }
    }
}

/// First kind with a wrong reported speed.
fn wrong_ratio(name: &str, kinds: &[MeasuredKind], means: &[f64]) -> Option<String> {
    let fastest = means.last()?;
    let mut figures = kinds.iter().zip(means);
    let (kind, mean) = figures.find(|(kind, mean)| {
        let said = *mean / fastest;
        let found = kind.speed.value;
        (said - found).abs() > WRONG * said.max(found)
    })?;
    Some(format!(
        "{name} says {:.2} of the fastest for {}, measured is {:.2}",
        mean / fastest,
        named(&kind.pus),
        kind.speed.value
    ))
}

/// `PU 1`, `PUs 2-3`.
fn named(pus: &PuSet) -> String {
    if pus.len() == 1 { format!("PU {pus}") } else { format!("PUs {pus}") }
}

/// Compares the lists of the hybrid PMUs with the measured kinds: a kind with PUs of several lists,
/// or a list with PUs of several kinds.
fn hybrid(pus: &[PuSpeed], kinds: &[MeasuredKind]) -> Option<String> {
    let lists: Option<Vec<&str>> = pus.iter().map(|pu| pu.reported.hybrid_pmu.as_deref()).collect();
    let lists = lists?;
    let kinds_of = pus.iter().map(|pu| kinds.iter().position(|kind| kind.pus.contains(pu.pu)));
    let of: Vec<Option<usize>> = kinds_of.collect();
    // The first pair of PUs that are in one list but not in one kind, or the reverse.
    let at = (0..pus.len()).find_map(|a| {
        let b = (0..a).find(|&b| (lists[a] == lists[b]) != (of[a] == of[b]))?;
        Some((b, a))
    });
    let (a, b) = at?;
    let [a_pu, b_pu] = [a, b].map(|at| pus[at].pu.0);
    Some(if lists[a] == lists[b] {
        format!(
            "PUs {a_pu} and {b_pu} are both in {}, measured are {:.2} and {:.2} of the fastest",
            lists[a], pus[a].speed.value, pus[b].speed.value
        )
    } else {
        format!(
            "PU {a_pu} is in {} and PU {b_pu} in {}, measured they are alike",
            lists[a], lists[b]
        )
    })
}

/// Distance of the least figure from the greatest, as a share of the greatest.
#[allow(clippy::cast_precision_loss)] // two digits are looked at
fn spread(figures: &[u64]) -> f64 {
    let least = figures.iter().min().map_or(0.0, |&least| least as f64);
    let top = figures.iter().max().map_or(0.0, |&top| top as f64);
    if top > 0.0 { 1.0 - least / top } else { 0.0 }
}

/// Mean of the figures of the PUs in `set`; 0 without any.
#[allow(clippy::cast_precision_loss)] // as above
fn mean_in(set: &PuSet, pus: &[PuSpeed], figures: &[u64]) -> f64 {
    let within = pus.iter().zip(figures).filter(|(pu, _)| set.contains(pu.pu));
    let found: Vec<f64> = within.map(|(_, &figure)| figure as f64).collect();
    found.iter().sum::<f64>() / found.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrated::kinds::testing::kinds_with;
    use crate::ids::PuNr;
    use proptest::prelude::*;

    /// Four cores of one PU with these speeds, of which this is reported.
    fn said_of(speeds: [f64; 4], reported: impl Fn(usize) -> Reported) -> Vec<String> {
        let (kinds, speeds) = kinds_with(&speeds);
        let pus = speeds.into_iter().enumerate().map(|(index, speed)| PuSpeed {
            pu: PuNr::new(index),
            speed,
            reported: reported(index),
        });
        disagreements(&pus.collect::<Vec<_>>(), &kinds)
    }

    fn capacities(values: [u32; 4]) -> impl Fn(usize) -> Reported {
        move |index| Reported { cpu_capacity: Some(values[index]), ..Reported::default() }
    }

    #[test]
    fn missing_reports_do_not_disagree() {
        assert_eq!(said_of([1.0, 1.0, 0.5, 0.5], |_| Reported::default()), [""; 0]);
        let some =
            |index| Reported { cpu_capacity: (index > 0).then_some(7), ..Reported::default() };
        assert_eq!(said_of([1.0, 1.0, 0.5, 0.5], some), [""; 0]);
    }

    #[test]
    fn agreement_is_silent() {
        assert_eq!(said_of([1.0; 4], capacities([1024; 4])), [""; 0]);
        assert_eq!(said_of([1.0, 1.0, 0.5, 0.5], capacities([1024, 1000, 446, 446])), [""; 0]);
        // Favoured cores.
        assert_eq!(said_of([1.0; 4], capacities([231, 226, 221, 216])), [""; 0]);
        assert_eq!(said_of([1.0; 4], capacities([255, 231, 221, 201])), [""; 0]);
    }

    #[test]
    fn every_disagreement_is_a_line() {
        assert_eq!(
            said_of([1.0, 0.48, 1.0, 0.48], capacities([1024; 4])),
            [
                "cpu_capacity says that cores are alike (1024), measured are 2 kinds: PUs 1,3 at 0.48 of the fastest"
            ]
        );
        assert_eq!(
            said_of([1.0; 4], capacities([1024, 1024, 446, 446])),
            ["cpu_capacity says that cores differ (446 to 1024), measured they are alike"]
        );
        assert_eq!(
            said_of([1.0, 1.0, 0.5, 0.5], capacities([446, 446, 1024, 1024])),
            [
                "cpu_capacity ranks PUs 2-3 no lower than PUs 0-1, measured are 0.50 and 1.00 of the fastest"
            ]
        );
        assert_eq!(
            said_of([1.0, 1.0, 0.7, 0.7], capacities([1024, 1024, 446, 446])),
            ["cpu_capacity says 0.44 of the fastest for PUs 2-3, measured is 0.70"]
        );
    }

    /// A core of half the speed at two thirds of the clock rate is no contradiction.
    #[test]
    fn clock_rates_are_not_speeds() {
        let clock = |index: usize| Reported {
            max_frequency: Some(Hertz::mhz([3000, 3000, 2600, 2600][index])),
            ..Reported::default()
        };
        assert_eq!(said_of([1.0, 1.0, 0.4, 0.4], clock), [""; 0]);
        assert_eq!(said_of([0.4, 0.4, 1.0, 1.0], clock).len(), 1);
    }

    #[test]
    fn hybrid_lists_are_compared_as_sets() {
        let lists = |index: usize| Reported {
            hybrid_pmu: Some(["cpu_core", "cpu_core", "cpu_atom", "cpu_atom"][index].into()),
            ..Reported::default()
        };
        assert_eq!(said_of([1.0, 1.0, 0.5, 0.5], lists), [""; 0]);
        assert_eq!(
            said_of([1.0; 4], lists),
            ["PU 0 is in cpu_core and PU 2 in cpu_atom, measured they are alike"]
        );
        assert_eq!(
            said_of([1.0, 0.5, 0.5, 0.5], lists),
            ["PUs 0 and 1 are both in cpu_core, measured are 1.00 and 0.50 of the fastest"]
        );
    }

    proptest! {
        /// Reports that agree with the measurement are never contradicted, in whatever unit.
        #[test]
        fn the_truth_is_never_contradicted(
            slow in 0.1..0.88_f64,
            fast in prop::collection::vec(any::<bool>(), 4),
            unit in 500..4_000_u32,
        ) {
            let speeds = [0, 1, 2, 3].map(|core| if fast[core] { 1.0 } else { slow });
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // up to 4000
            let figure = |core: usize| (speeds[core] * f64::from(unit)).round() as u32;
            let said = said_of(speeds, |core| Reported {
                cpu_capacity: Some(figure(core)),
                cppc_highest: Some(figure(core)),
                max_frequency: Some(Hertz::mhz(figure(core).into())),
                hybrid_pmu: fast.contains(&true).then(|| if fast[core] { "cpu_core" } else { "cpu_atom" }.into()),
            });
            prop_assert_eq!(said, [""; 0]);
        }

        /// Figures that are the wrong way round always are.
        #[test]
        fn the_opposite_always_is(slow in 0.1..0.88_f64, fast in prop::collection::vec(any::<bool>(), 4)) {
            prop_assume!(fast.contains(&true) && fast.contains(&false));
            let speeds = [0, 1, 2, 3].map(|core| if fast[core] { 1.0 } else { slow });
            let said = said_of(speeds, |core| Reported {
                cpu_capacity: Some(if fast[core] { 500 } else { 1024 }),
                ..Reported::default()
            });
            prop_assert_eq!(said.len(), 1);
        }
    }
}
