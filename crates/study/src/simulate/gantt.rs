//! Gantt chart of a simulated run: tasks on PUs over time.

use colocate_figures::gantt::{self, GanttInput};
use colocate_machine::{Machine, printable};
use colocate_sim::Outcome;

/// A simulated run as an SVG document.
///
/// # Errors
/// Only if the drawing library fails; its line says how.
pub fn svg(machine: &Machine, policy: &str, outcome: &Outcome) -> Result<String, String> {
    let jobs: Vec<String> = outcome.jobs.iter().map(|job| job.name.clone()).collect();
    let simulated = format!("simulated on {}, not measured", printable(&outcome.machine));
    let what = format!("{} under {policy}, seed {}", printable(&outcome.scenario), outcome.seed);
    gantt::of_run(&GanttInput {
        heading: [&simulated, &what],
        machine,
        jobs: &jobs,
        spans: &outcome.spans,
        phases: &[],
        lasted: outcome.lasted,
        axis: "simulated time",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_evidence::{JobIdx, TaskId, TaskSpan};
    use colocate_machine::{Nanos, PuIdx};
    use colocate_model::Assumptions;
    use colocate_sim::{JobOutcome, Together, Used};

    fn span(job: u32, pu: usize, to: u64) -> TaskSpan {
        let task = TaskId { job: JobIdx(job), order: 0 };
        TaskSpan { task, pu: PuIdx::new(pu), from: Nanos(0), to: Nanos(to) }
    }

    #[test]
    fn a_row_for_each_pu_and_a_line_for_each_job() {
        let (_, text) = colocate_machine::described::MACHINES[1];
        let machine = colocate_machine::described::from_toml(text).unwrap().machine;
        let job = |name: &str| JobOutcome {
            name: name.to_owned(),
            launched: Some(Nanos(0)),
            done: None,
            runs: 0,
            alone: None,
        };
        let outcome = Outcome {
            machine: machine.name.clone(),
            scenario: "two <of> them".to_owned(),
            seed: 3,
            assumptions: Assumptions::default(),
            lasted: Nanos::from_secs(2),
            complete: false,
            jobs: vec![job("first"), job("second")],
            tasks: Vec::new(),
            together: Together::new(2),
            used: Used::default(),
            spans: vec![span(0, 0, 1_000_000_000), span(1, 3, 2_000_000_000)],
        };
        let drawn = svg(&machine, "mix", &outcome).unwrap();
        for text in ["simulated on", "two &lt;of&gt; them under mix, seed 3", "first", "core 3"] {
            assert!(drawn.contains(text), "{text} is missing");
        }
        // The ground, two stretches, two jobs.
        assert_eq!(drawn.matches("<rect").count(), 5);
    }
}
