//! What came of a scheduled workload, as JSON (docs/schemas/scheduled.json), text and picture.

use super::figures::{marked, mostly, seconds, unknown};
use super::mean::Mean;
use super::phases::{self, PhasesReport};
use super::tally::{JobTally, Placed, Tally};
use crate::evidence::Evidence;
use colocate_engine::rates::Estimated;
use colocate_engine::{Meanwhile, Observation};
use colocate_machine::printable::{self, printable};
use colocate_machine::{Nanos, PuNr, PuSet};
use colocate_policy::Grant;
use colocate_policy::schedule::{Allocated, Selected};
use colocate_study::simulate::gantt;
use colocate_study::table::aligned;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Version of the report format that this build writes.
const VERSION: u32 = 2;
/// Most jobs whose sharing of cores is shown as a matrix. Chosen: a line of 100 characters.
const MOST_TOGETHER: usize = 12;

/// What came of it.
#[derive(Serialize)]
pub struct Report {
    version: u32,
    colocate: &'static str,
    machine: MachineReport,
    scheduler: String,
    quantum_ns: Nanos,
    quanta: u64,
    /// From the launch to the end of the last job.
    turnaround_ns: Nanos,
    /// What the scheduler had to say of itself at the end.
    state: Option<String>,
    jobs: Vec<JobReport>,
    /// Pairs of jobs that shared a core in a quantum at least.
    shared_core: Vec<SharedCore>,
    evidence: Vec<Evidence>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct MachineReport {
    name: String,
    pus: usize,
    usable: PuSet,
}

#[derive(Serialize)]
struct JobReport {
    name: String,
    command: Vec<String>,
    /// Exit status as a shell reports it; null if it did not end.
    status: Option<i32>,
    /// From the launch of the workload to its end; null if it did not end.
    ended_ns: Option<Nanos>,
    /// CPU time of its processes that were waited for; null if the kernel does not say.
    cpu_ns: Option<Nanos>,
    /// Instructions of all its runs, as far as its threads were counted; null if not counted.
    instructions: Option<u64>,
    /// How often it ran to its own end.
    runs: u32,
    /// Quanta in which it ran.
    quanta: u64,
    /// Quanta in which it had to wait.
    waited: u64,
    /// CPU time that it used in these; null if waiting jobs are stopped.
    filled_ns: Option<Nanos>,
    rates: RatesReport,
    /// When it was serial, parallel or asleep; null if unknown.
    phases: Option<PhasesReport>,
    /// Why it ran when it last did; null if it never did.
    last_choice: Option<ChoiceReport>,
}

/// Means over the time that its threads ran; null where unknown.
#[derive(Serialize)]
struct RatesReport {
    ipc: Option<f64>,
    first_cache_per_us: Option<f64>,
    /// Requests to the caches of each level from 1.
    caches_per_us: Vec<Option<f64>>,
    memory_per_us: Option<f64>,
    /// The share of its cycles that each part takes.
    cycles: Option<BTreeMap<&'static str, f64>>,
    /// By which share of the cycles these missed them at worst, before they were scaled to add up.
    cycles_off: Option<f64>,
    /// The largest of them, as text.
    #[serde(skip)]
    mostly: Option<(&'static str, f64)>,
    /// Whether some of it is estimated by the model.
    estimated: bool,
    /// Which of it.
    estimated_of: Vec<&'static str>,
    /// The same, for the text.
    #[serde(skip)]
    by_model: Estimated,
}

#[derive(Serialize)]
struct ChoiceReport {
    selected: Selected,
    /// By thread.
    places: Vec<PlaceReport>,
}

#[derive(Serialize)]
struct PlaceReport {
    /// Its number among the threads of its job.
    thread: u32,
    /// Null if the kernel chose.
    pu: Option<PuNr>,
    allocated: Allocated,
}

#[derive(Serialize)]
struct SharedCore {
    jobs: [usize; 2],
    quanta: u64,
}

/// What a report is of, beside what was counted.
pub struct Occasion {
    /// The scheduler with its settings.
    pub scheduler: String,
    /// Time between two decisions.
    pub quantum: Nanos,
    /// PUs that could be used.
    pub usable: PuSet,
    /// The jobs' commands.
    pub commands: Vec<Vec<String>>,
    /// How often each job ran to its own end.
    pub runs: Vec<u32>,
    /// Instructions of each job, if they are counted.
    pub instructions: Option<Vec<u64>>,
    /// What jobs did that had to wait.
    pub meanwhile: Meanwhile,
    /// What the host answered when evidence was requested.
    pub grants: Vec<Grant>,
    /// Lines for the user that have come up.
    pub notes: Vec<String>,
}

impl Report {
    /// Of a workload that was counted so, by the last look.
    pub fn new(occasion: Occasion, tally: &Tally, last: &Observation) -> Self {
        let Occasion { scheduler, quantum, usable, commands, runs, instructions, .. } = occasion;
        let Occasion { meanwhile, grants, notes, .. } = occasion;
        let of = |number: usize| instructions.as_ref()?.get(number).copied();
        let machine = &tally.machine;
        let jobs = tally.jobs.iter().zip(commands.into_iter().zip(runs)).enumerate();
        let shared = tally.shared.iter();
        Self {
            version: VERSION,
            colocate: env!("CARGO_PKG_VERSION"),
            machine: MachineReport { name: machine.name.clone(), pus: machine.pus.len(), usable },
            scheduler,
            quantum_ns: quantum,
            quanta: tally.quanta,
            turnaround_ns: last.ended.iter().map(|end| end.at).max().unwrap_or(Nanos::ZERO),
            state: tally.state.clone(),
            jobs: jobs
                .map(|(number, (job, whose))| JobReport {
                    instructions: of(number),
                    filled_ns: Some(job.filled).filter(|_| meanwhile == Meanwhile::Fill),
                    ..JobReport::new(number, job, whose, last)
                })
                .collect(),
            shared_core: shared
                .map(|(&(a, b), &quanta)| SharedCore { jobs: [a, b], quanta })
                .collect(),
            evidence: Evidence::of(&grants),
            notes,
        }
    }

    /// As JSON text.
    pub fn to_json(&self) -> String {
        printable::json(self)
    }

    /// As tables and with the notes, for a file: there they were not shown before.
    pub fn kept(&self, explain: bool) -> String {
        let mut text = self.text(explain);
        if !self.notes.is_empty() {
            text.push_str("\nnotes\n");
        }
        for note in &self.notes {
            let _ = writeln!(text, "{}", printable(note));
        }
        text
    }

    /// As tables; with the reasons of the last choices if `explain`.
    pub fn text(&self, explain: bool) -> String {
        let mut text = format!(
            "scheduler {}: {} quanta of {}, turnaround {} s, PUs {}\n",
            printable(&self.scheduler),
            self.quanta,
            self.quantum_ns,
            seconds(Some(self.turnaround_ns)),
            self.machine.usable
        );
        if let Some(state) = &self.state {
            let _ = writeln!(text, "at the end: {}", printable(state));
        }
        text.push_str(&aligned(&self.job_rows()));
        if self.jobs.iter().any(|job| job.rates.estimated) {
            text.push_str("~: estimated by the contention model, not counted\n");
        }
        let jobs = || self.jobs.iter().map(|job| (job.name.clone(), job.phases.as_ref()));
        text.push_str(&phases::text(jobs, explain));
        self.together(&mut text);
        if explain {
            text.push_str("\nwhy each job ran when it last did\n");
            text.push_str(&aligned(&self.reasons()));
        }
        text
    }

    /// One row a job, with a heading; rates only where one is known.
    fn job_rows(&self) -> Vec<Vec<String>> {
        let known = |of: fn(&RatesReport) -> Option<f64>| {
            self.jobs.iter().any(|job| of(&job.rates).is_some())
        };
        let (ipc, memory) = (known(|rates| rates.ipc), known(|rates| rates.memory_per_us));
        let cycles = self.jobs.iter().any(|job| job.rates.mostly.is_some());
        let again = self.jobs.iter().any(|job| job.runs > 1);
        let filled = self.jobs.iter().any(|job| job.filled_ns.is_some());
        let pick = |cells: [String; 11]| -> Vec<String> {
            let wanted = [true, true, again, true, true, true, true, filled, ipc, memory, cycles];
            let cells = cells.into_iter().zip(wanted).filter(|(_, wanted)| *wanted);
            cells.map(|(cell, _)| cell).collect()
        };
        let head = [
            "job",
            "status",
            "runs",
            "ended, s",
            "CPU, s",
            "quanta",
            "waited",
            "filling, s",
            "IPC",
            "memory, t/µs",
            "cycles",
        ];
        let mut rows = vec![pick(head.map(str::to_owned))];
        rows.extend(self.jobs.iter().map(|job| {
            pick([
                job.name.clone(),
                job.status.map_or_else(unknown, |status| status.to_string()),
                job.runs.to_string(),
                seconds(job.ended_ns),
                seconds(job.cpu_ns),
                job.quanta.to_string(),
                job.waited.to_string(),
                seconds(job.filled_ns),
                marked(job.rates.ipc, job.rates.by_model.ipc),
                marked(job.rates.memory_per_us, job.rates.by_model.traffic),
                mostly(job.rates.mostly, job.rates.by_model.stack),
            ])
        }));
        rows
    }

    /// The frequency matrix: in how many quanta whose threads shared a core.
    fn together(&self, text: &mut String) {
        if self.shared_core.is_empty() {
            return;
        }
        text.push_str("\nquanta in which threads of two jobs shared a core\n");
        let jobs = self.jobs.len();
        if jobs > MOST_TOGETHER {
            let _ = writeln!(text, "{jobs} jobs: in the JSON");
            return;
        }
        let mut matrix = vec![vec![0; jobs]; jobs];
        for SharedCore { jobs: [a, b], quanta } in &self.shared_core {
            (matrix[*a][*b], matrix[*b][*a]) = (*quanta, *quanta);
        }
        let names = || self.jobs.iter().map(|job| job.name.clone());
        let mut rows: Vec<Vec<String>> = vec![[String::new()].into_iter().chain(names()).collect()];
        for (name, quanta) in names().zip(matrix) {
            rows.push([name].into_iter().chain(quanta.iter().map(u64::to_string)).collect());
        }
        text.push_str(&aligned(&rows));
    }

    /// One row a thread of what each job's last choice was, with a heading.
    fn reasons(&self) -> Vec<Vec<String>> {
        let mut rows =
            vec![["job", "selected", "thread", "PU", "allocated"].map(str::to_owned).to_vec()];
        for job in &self.jobs {
            let Some(choice) = &job.last_choice else {
                let never = "never";
                rows.push([&job.name, never, "", "", ""].map(str::to_owned).to_vec());
                continue;
            };
            for (row, place) in choice.places.iter().enumerate() {
                let of_job = |cell: String| if row == 0 { cell } else { String::new() };
                rows.push(vec![
                    of_job(job.name.clone()),
                    of_job(choice.selected.to_string()),
                    place.thread.to_string(),
                    place.pu.map_or("kernel".to_owned(), |pu| pu.0.to_string()),
                    place.allocated.to_string(),
                ]);
            }
        }
        rows
    }

    /// The first status in the jobs' order that is not 0.
    pub fn exit_status(&self) -> u8 {
        let status = self.jobs.iter().filter_map(|job| job.status).find(|status| *status != 0);
        u8::try_from(status.unwrap_or(0)).unwrap_or(crate::exit::OURS)
    }

    /// Which job ran where, as an SVG picture.
    ///
    /// # Errors
    /// Only if the drawing library fails; its line says how.
    pub fn svg(&self, tally: &Tally) -> Result<String, String> {
        let phases_cut =
            self.jobs.iter().filter_map(|job| job.phases.as_ref()).any(PhasesReport::is_cut);
        let cut = match (tally.is_cut(), phases_cut) {
            (true, _) => "; only the beginning is kept",
            (false, true) => "; of phases only the beginning is kept",
            (false, false) => "",
        };
        let first = format!(
            "{} jobs under {} on {}",
            self.jobs.len(),
            self.scheduler,
            printable(&self.machine.name)
        );
        let second = format!(
            "{} quanta of {}; where threads were last seen in each, as long as they ran{cut}",
            self.quanta, self.quantum_ns
        );
        let names: Vec<String> = self.jobs.iter().map(|job| job.name.clone()).collect();
        gantt::of_run(&gantt::Drawn {
            heading: [&first, &second],
            machine: &tally.machine,
            jobs: &names,
            spans: tally.spans(),
            phases: &phases::drawn(tally),
            lasted: tally.spans().iter().map(|span| span.to).max().unwrap_or(Nanos::ZERO),
            axis: "time since the launch",
        })
    }
}

impl JobReport {
    fn new(
        number: usize,
        job: &JobTally,
        (command, runs): (Vec<String>, u32),
        last: &Observation,
    ) -> Self {
        let end = last.ended.iter().find(|end| end.job.0 as usize == number);
        Self {
            name: job.name.clone(),
            command,
            status: end.map(|end| end.status),
            ended_ns: end.map(|end| end.at),
            cpu_ns: end.and_then(|end| end.cpu_time),
            instructions: None,
            runs,
            quanta: job.quanta,
            waited: job.waited,
            filled_ns: None,
            rates: RatesReport {
                ipc: job.all.ipc.get(),
                first_cache_per_us: job.all.caches[0].get(),
                caches_per_us: job.all.caches.map(Mean::get).to_vec(),
                memory_per_us: job.all.memory.get(),
                cycles: job
                    .all
                    .cycles
                    .most()
                    .map(|_| job.all.cycles.shares().into_iter().collect()),
                cycles_off: job.all.cycles.off(),
                mostly: job.all.cycles.most(),
                estimated: job.all.estimated_of.any(),
                estimated_of: names(job.all.estimated_of),
                by_model: job.all.estimated_of,
            },
            phases: PhasesReport::of(&job.timeline),
            last_choice: job.selected.clone().map(|selected| ChoiceReport {
                selected,
                places: job.placed.iter().map(PlaceReport::of).collect(),
            }),
        }
    }
}

impl PlaceReport {
    fn of(placed: &Placed) -> Self {
        let Placed { thread, pu, allocated } = placed.clone();
        Self { thread, pu, allocated }
    }
}

/// What is estimated, as the JSON calls it.
fn names(Estimated { ipc, traffic, stack }: Estimated) -> Vec<&'static str> {
    let all = [("ipc", ipc), ("traffic", traffic), ("cycles", stack)];
    all.into_iter().filter(|(_, estimated)| *estimated).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tally::tests::tally;
    use super::super::timeline::Timeline;
    use super::*;
    use colocate_engine::{JobEnd, QuantumEnd};
    use colocate_policy::JobIdx;
    use expect_test::expect;

    fn report(tally: &Tally) -> Report {
        report_with(tally, Meanwhile::Stop)
    }

    fn report_with(tally: &Tally, meanwhile: Meanwhile) -> Report {
        let end = |job: u32, status| JobEnd {
            job: JobIdx(job),
            at: Nanos::from_millis(150 + 100 * u64::from(job)),
            status,
            cpu_time: Some(Nanos::from_millis(90)),
        };
        let last = Observation {
            at: Nanos::from_millis(400),
            end: QuantumEnd::AllJobsEnded,
            tasks: Vec::new(),
            ended: vec![end(1, 0), end(0, 3)],
            moved: vec![],
        };
        let occasion = Occasion {
            scheduler: "fair".into(),
            quantum: Nanos::from_millis(100),
            usable: PuSet::parse_list("0-3").unwrap(),
            commands: vec![vec!["a".into()], vec!["b".into(), "-x".into()], vec!["c".into()]],
            runs: vec![1, 12, 0],
            instructions: None,
            meanwhile,
            grants: Vec::new(),
            notes: Vec::new(),
        };
        Report::new(occasion, tally, &last)
    }

    fn of_two_quanta() -> Tally {
        tally(&[
            (&[(0, 0, 100, Some(1.25)), (1, 1, 100, Some(0.5))], &[]),
            (&[(0, 2, 90, None), (1, 3, 100, Some(0.5))], &[]),
        ])
    }

    #[test]
    fn the_text() {
        expect![[r#"
            scheduler fair: 2 quanta of 100.0 ms, turnaround 0.25 s, PUs 0-3
            at the end: the scheduler's line
            job  status  runs  ended, s  CPU, s  quanta  waited  IPC    memory, t/µs  cycles
            a    3       1     0.15      0.09    2       0       1.25   12.50         frontend 62 %
            b    0       12    0.25      0.09    2       0       ~0.50  ~5.00         ~backend 75 %
            c    ?       0     ?         ?       0       2       ?      ?             ?
            ~: estimated by the contention model, not counted

            phases, and the mean number of runnable threads
            job  serial, s  parallel, s  asleep, s  runnable  from when to when, s
            a    0.00       0.10         0.00       6.2       parallel 0.00–0.10
            b    0.00       0.20         0.00       2.5       parallel 0.00–0.20

            quanta in which threads of two jobs shared a core
               a  b  c
            a  0  2  0
            b  2  0  0
            c  0  0  0

            why each job ran when it last did
            job  selected                              thread  PU  allocated
            a    has come least far, 0.5 quanta alone  0       2   balances caches down to level 2
            b    has come least far, 1.5 quanta alone  0       3   balances caches down to level 2
            c    never
        "#]]
        .assert_eq(&report(&of_two_quanta()).text(true));
    }

    /// The third job used 5 ms of each of two quanta in which it had to wait.
    #[test]
    fn who_filled_idle_pus() {
        let report = report_with(&of_two_quanta(), Meanwhile::Fill);
        let filled: Vec<_> = report.jobs.iter().map(|job| job.filled_ns).collect();
        assert_eq!(filled, [0, 0, 10].map(Nanos::from_millis).map(Some));
        let text = report.text(false);
        let rows: Vec<&str> = text.lines().skip(2).take(4).collect();
        let column = rows[0].find("filling, s").unwrap();
        let cells = rows[1..].iter().map(|row| &row[column..column + 4]);
        assert_eq!(cells.collect::<Vec<_>>(), ["0.00", "0.00", "0.01"]);
    }

    /// The first job's IPC and traffic were counted, only its stack was not.
    #[test]
    fn only_what_is_estimated_is_marked() {
        let mut found = of_two_quanta();
        let rates = &mut found.jobs[0].all;
        rates.estimated_of = Estimated { stack: true, ..Estimated::default() };
        let report = report(&found);
        let row =
            report.text(false).lines().find(|line| line.starts_with("a ")).unwrap().to_owned();
        assert!(row.ends_with(" 1.25   12.50         ~frontend 62 %"), "{row}");
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        let of = |job: usize| json["jobs"][job]["rates"]["estimated_of"].to_string();
        assert_eq!(of(0), r#"["cycles"]"#);
        assert_eq!(of(1), r#"["ipc","traffic","cycles"]"#);
        assert_eq!(of(2), "[]");
    }

    /// A note may name a program, which names itself as it likes.
    #[test]
    fn a_file_keeps_the_notes() {
        let mut report = report(&of_two_quanta());
        assert_eq!(report.kept(true), report.text(true));
        report.notes = vec!["cannot stop job 0".into(), "a\x1bc has ended".into()];
        let expected = report.text(false) + "\nnotes\ncannot stop job 0\na\\x1bc has ended\n";
        assert_eq!(report.kept(false), expected);
    }

    #[test]
    fn the_first_status_that_is_not_0() {
        assert_eq!(report(&of_two_quanta()).exit_status(), 3);
    }

    #[test]
    fn the_picture() {
        let found = of_two_quanta();
        let drawn = report(&found).svg(&found).unwrap();
        assert!(drawn.contains("3 jobs under fair on") && !drawn.contains("simulated"), "{drawn}");
        assert!(drawn.contains("phases: thick"), "{drawn}");
        // The ground, four stretches on PUs, a parallel phase each of two jobs, three jobs.
        assert_eq!(drawn.matches("<rect").count(), 10);
        assert!(!drawn.contains("only the beginning"), "{drawn}");
    }

    /// Two phases of a job that keeps one.
    #[test]
    fn a_picture_without_later_phases_says_so() {
        let mut found = of_two_quanta();
        let mut timeline = Timeline::one_of(1_000_000);
        timeline.ran(Nanos::ZERO, Nanos::from_millis(100), Some(1.0));
        timeline.ran(Nanos::from_millis(100), Nanos::from_millis(200), Some(4.0));
        found.jobs[1].timeline = timeline;
        let report = report(&found);
        let drawn = report.svg(&found).unwrap();
        assert!(drawn.contains("ran; of phases only the beginning is kept"), "{drawn}");
        let text = report.text(false);
        assert!(text.contains("serial 0.00–0.10, later ones not kept\n"), "{text}");
    }

    #[test]
    fn without_rates_there_are_no_columns_for_them() {
        let found = tally(&[(&[(0, 0, 100, None)], &[])]);
        let text = report(&found).text(false);
        assert!(!text.contains("IPC") && !text.contains("shared a core"), "{text}");
    }
}
