//! What may be said, by hand and by properties.

use super::*;
use colocate_machine::printable;
use proptest::prelude::*;

pub(crate) fn settings(policies: &[&str], draws: u32, seeds: u32) -> ComparisonSettings {
    ComparisonSettings {
        colocate: "0.1.0".into(),
        scenario: "pair".into(),
        note: None,
        machine: "2x Test 1000".into(),
        jobs: vec!["a".into(), "b".into()],
        tasks: 4,
        method: Method::Restart,
        policies: policies.iter().map(|&policy| policy.to_owned()).collect(),
        baseline: policies[0].to_owned(),
        seed: 1,
        seeds,
        draws,
        inputs: String::new(),
    }
}

/// Every metric of every run is what `value(policy, draw, seed)` says.
pub(crate) fn runs(
    settings: &ComparisonSettings,
    value: impl Fn(usize, u32, u32) -> f64,
) -> Vec<RunSummary> {
    let mut runs = Vec::new();
    for policy in 0..settings.policies.len() {
        for draw in 0..settings.draws {
            for seed in 0..settings.seeds {
                let value = Some(value(policy, draw, seed));
                let usage = Usage {
                    pus: 0.5,
                    controllers: vec![0.25],
                    caches: [(1, None), (3, Some(0.5))]
                        .map(|(level, used)| CacheUsage { level, used })
                        .to_vec(),
                    port_groups: port_groups(f64::from(seed)),
                    together: vec![vec![0.0, 1.0], vec![1.0, 0.0]],
                    ..Usage::default()
                };
                runs.push(RunSummary {
                    metrics: [value; 5],
                    slowdowns: vec![value; 2],
                    progress: vec![Some(0.5); 2],
                    usage: (draw == 0).then_some(usage),
                });
            }
        }
    }
    runs
}

/// Two groups, the first used for 20 % and more with the seed.
fn port_groups(seed: f64) -> Vec<PortUsage> {
    let group = |ports: &[&str], used, fullest| PortUsage {
        kind: "core".into(),
        ports: ports.iter().map(|&port| port.to_owned()).collect(),
        used,
        fullest,
    };
    vec![group(&["add0", "add1"], 0.2 + 0.1 * seed, 0.4), group(&["load"], 0.75, 0.75)]
}

fn of(settings: &ComparisonSettings, value: impl Fn(usize, u32, u32) -> f64) -> Simulated {
    Simulated::of(settings.clone(), &runs(settings, value))
}

/// Ratios e^-1 and e^-0.5 by draw, ± 0.1 by seed: means −1 and −½, squares 4 · 0.01 over 2 degrees
/// of freedom, v = √0.02, and t(0.975, 2) = 4.302653: the ends move by 4.302653 · √(0.02 / 2) =
/// 0.430265.
#[test]
fn traced_by_hand() {
    let settings = settings(&["os", "mix"], 2, 2);
    let found = of(&settings, |policy, draw, seed| match policy {
        0 => 1.0,
        _ => (-1.0 + 0.5 * f64::from(draw) + if seed == 0 { 0.1 } else { -0.1 }).exp(),
    });
    let ratio = found.policies[1].metrics[0].ratio.unwrap();
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-5, "{a} is not {b}");
    close(ratio.value.ln(), -1.0);
    close(ratio.low.ln(), -1.430_265);
    close(ratio.high.ln(), -0.069_735);
    assert_eq!(found.policies[1].metrics[0].verdict, SimulatedVerdict::Better);
    // More throughput is better, less of it worse.
    assert_eq!(found.policies[1].metrics[2].verdict, SimulatedVerdict::Worse);
    let value = found.policies[1].metrics[0].value.unwrap();
    close(value.value, (-1.0_f64).exp() * 0.1_f64.cosh());
    close(value.high, (-0.5_f64).exp() * 0.1_f64.cosh());
    let usage = &found.policies[0].usage;
    close(usage.pus, 0.5);
    // Over seeds 0 and 1: 20 and 30 %.
    close(usage.port_groups[0].used, 0.25);
    close(usage.port_groups[0].fullest, 0.4);
    assert_eq!(usage.caches[0], CacheUsage { level: 1, used: None });
    close(usage.caches[1].used.unwrap(), 0.5);
}

/// Fifteen draws say 10 % less; one says 1 % more.
#[test]
fn a_draw_that_disagrees_silences() {
    let settings = settings(&["os", "mix"], 16, 2);
    let by_draw = |odd: f64| {
        move |policy: usize, draw: u32, _| match (policy, draw) {
            (0, _) => 1.0,
            (_, 9) => odd,
            _ => 0.9,
        }
    };
    let agreed = &of(&settings, by_draw(0.89)).policies[1].metrics[0];
    assert_eq!((agreed.verdict, agreed.unresolved), (SimulatedVerdict::Better, None));
    let silenced = &of(&settings, by_draw(1.01)).policies[1].metrics[0];
    assert_eq!(silenced.verdict, SimulatedVerdict::NotResolved);
    assert_eq!(silenced.unresolved, Some(Unresolved::SignChanges));
}

#[test]
fn why_nothing_is_said() {
    let why = |draws, seeds, factor: f64| {
        let settings = settings(&["os", "mix"], draws, seeds);
        let found = of(&settings, |policy, _, _| if policy == 0 { 1.0 } else { factor });
        found.policies[1].metrics[0].unresolved
    };
    assert_eq!(why(1, 5, 0.5), Some(Unresolved::OneDraw));
    assert_eq!(why(5, 1, 0.5), Some(Unresolved::OneSeed));
    assert_eq!(why(5, 5, 0.96), Some(Unresolved::BelowResolution));
    assert_eq!(why(5, 5, 1.0), Some(Unresolved::BelowResolution));
    assert_eq!(why(5, 5, 0.9), None);
    let settings = settings(&["os", "mix"], 2, 2);
    let mut runs = runs(&settings, |_, _, _| 1.0);
    runs[7].metrics = [None; 5];
    let found = Simulated::of(settings, &runs);
    assert_eq!(found.policies[1].metrics[4].unresolved, Some(Unresolved::NotFinished));
    assert_eq!((found.policies[0].unfinished, found.policies[1].unfinished), (0, 1));
    assert!(found.notes[1].starts_with("1 of 4 runs under mix"), "{:?}", found.notes);
}

#[test]
fn what_is_written_is_read() {
    let found = of(&settings(&["os", "mix"], 2, 2), |policy, _, _| 1.5 - policy as f64 / 3.0);
    assert_eq!(serde_json::from_str::<Simulated>(&printable::json(&found)).unwrap(), found);
}

proptest! {
    #[test]
    fn no_claim_without_resolution(
        values in prop::collection::vec(0.2..5.0_f64, 1..60),
        draws in 1..6_u32,
        seeds in 1..6_u32,
    ) {
        let settings = settings(&["os", "mix", "compact"], draws, seeds);
        let found = of(&settings, |policy, draw, seed| {
            values[(policy * 31 + (draw * 7 + seed) as usize) % values.len()]
        });
        for metric in found.policies.iter().skip(1).flat_map(|policy| &policy.metrics) {
            let ratio = metric.ratio.unwrap();
            prop_assert!(ratio.low <= ratio.value && ratio.value <= ratio.high);
            let resolved = draws > 1 && seeds > 1
                && !(ratio.low..=ratio.high).contains(&1.0)
                && (ratio.value - 1.0).abs() >= RESOLUTION;
            prop_assert_eq!(resolved, metric.verdict != SimulatedVerdict::NotResolved);
            prop_assert_eq!(resolved, metric.unresolved.is_none());
        }
    }

    #[test]
    fn common_factors_cancel(factors in prop::collection::vec(0.1..10.0_f64, 12)) {
        let settings = settings(&["os", "mix"], 3, 4);
        let found = of(&settings, |policy, draw, seed| {
            factors[(draw * 4 + seed) as usize] * if policy == 0 { 4.0 } else { 3.0 }
        });
        let ratio = found.policies[1].metrics[0].ratio.unwrap();
        prop_assert!((ratio.value - 0.75).abs() < 1e-9);
        prop_assert!((ratio.low - 0.75).abs() < 1e-9 && (ratio.high - 0.75).abs() < 1e-9);
    }
}
