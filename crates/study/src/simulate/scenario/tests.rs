//! Scenario files, good and bad.

use super::*;
use colocate_machine::described;
use colocate_sim::{
    Barrier, BarrierWait, Fork, Method, Pages, PhaseIdx, Serial, TotalWork, Wake, WakeAffine,
};
use expect_test::expect;
use proptest::prelude::*;

const GOOD: &str = r#"
version = 1
name = "adders beside walkers"
note = "what the tests read"
machine = "epyc-7301"
cpus = "0-3,32-35"
policies = ["os", "mix", "random:seed=3"]
baseline = "os"
seed = 7
seeds = 3
draws = 4
method = "leave"
quantum = "100 ms"
horizon = "60 s"

[kernel]
fork = "with-parent"
wake = "idle-pu"
wake-wide = false
numa-balancing = false

[[phase]]
name = "adds"
[phase.demand]
slots = { value = 1.0, source = "one micro-operation each" }
[phase.mix]
int = 0.9
load = 0.1

[[phase]]
name = "walks"
file = "walks.toml"

[[job]]
name = "adder"
copies = 2
[[job.thread]]
copies = 3
phase = "adds"
alone-for = "2 s"

[[job]]
name = "team"
barrier = { wait = "spin", spins = "adds", serial = { phase = "walks", instructions = 500 } }
[[job.thread]]
copies = 2
course = [{ phase = "walks", instructions = 3_000, barrier = true }]
instructions = 30_000

[[event]]
at = "1 s"
offline = "2-3"
[[event]]
at = "2 s"
online = "3"

[[job]]
name = "both"
arrives = "500 ms"
[[job.thread]]
name = "main"
pages = "node 1"
resident = "1 GiB"
course = [
    { phase = "adds", instructions = 1_000_000 },
    { phase = "walks", instructions = 2_000, sleep = "1 ms" },
]
"#;

fn experiment(text: &str) -> Result<Experiment, String> {
    let (_, described) = described::MACHINES[0];
    let machine = described::from_toml(described).unwrap().machine;
    let performance = described::performance(described).unwrap().unwrap();
    let phase = |file: &str| match file {
        "walks.toml" => Ok(vec![Phase::default()]),
        "both.toml" => {
            Ok(["runs", "walks"].map(|name| Phase { name: name.into(), ..Phase::default() }).into())
        }
        _ => Err(format!("cannot read {file}")),
    };
    ScenarioFile::from_toml(text)?.experiment(&machine, &performance, &phase)
}

#[test]
fn everything_is_understood() {
    let found = experiment(GOOD).unwrap();
    assert_eq!(found.note.as_deref(), Some("what the tests read"));
    assert_eq!((found.seeds, found.draws, found.profiled), (3, 4, true));
    assert_eq!(found.policies.len(), 3);
    let scenario = &found.scenario;
    assert_eq!((scenario.seed, scenario.method), (7, Method::Leave));
    assert_eq!(scenario.usable.as_ref().map(Vec::len), Some(8));
    let names: Vec<&str> = scenario.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["adder#1", "adder#2", "team", "both"]);
    assert_eq!(scenario.jobs[1].threads.len(), 3);
    assert_eq!(scenario.jobs[1].threads[2].work, TotalWork::AloneFor(Nanos::from_secs(2)));
    let main = &scenario.jobs[3].threads[0];
    assert_eq!((main.name.as_str(), main.work), ("main", TotalWork::Once));
    assert_eq!(main.course[1].phase, PhaseIdx(1));
    assert_eq!(main.course[1].sleep, Nanos::from_millis(1));
    assert!(matches!(main.pages, Pages::On(node) if node.idx() == 1));
    let team = &scenario.jobs[2];
    let serial = Serial { phase: PhaseIdx(1), instructions: 500 };
    let barrier = Barrier { wait: BarrierWait::Spin(PhaseIdx(0)), serial: Some(serial) };
    assert_eq!((team.barrier, team.threads.len()), (Some(barrier), 2));
    assert!(team.threads[1].course[0].barrier && !main.course[0].barrier);
    let events: Vec<_> = scenario.events.iter().map(|e| (e.at, e.pu.0, e.online)).collect();
    let (one, two) = (Nanos::from_secs(1), Nanos::from_secs(2));
    assert_eq!(events, [(one, 2, false), (one, 3, false), (two, 3, true)]);
    assert_eq!(scenario.kernel.fork, Fork::WithParent);
    let affine = WakeAffine { wide: false, ..WakeAffine::default() };
    let wake = Wake::IdleSibling { idle_cores: false, recent: true, affine: Some(affine) };
    assert_eq!(scenario.kernel.wake, wake);
    assert_eq!(scenario.kernel.numa_balancing, None);
    assert!(scenario.kernel.periodic_balance.is_some());
    assert_eq!(scenario.phases[0].phase.name, "adds");
    assert_eq!(scenario.phases[0].mix.int.map(colocate_model::Share::get), Some(0.9));
}

/// Fixed work with restart, all three policies, five seeds and sixteen draws.
#[test]
fn what_is_not_said() {
    let text = r#"
        version = 1
        name = "least"
        machine = "epyc-7301"
        [[phase]]
        name = "adds"
        demand = {}
        [[job]]
        name = "one"
        [[job.thread]]
        phase = "adds"
        instructions = 5
    "#;
    let found = experiment(text).unwrap();
    assert_eq!((found.seeds, found.draws, found.baseline), (5, 16, named("os")));
    assert_eq!(found.scenario.method, Method::Restart);
    assert_eq!(found.scenario.usable, None);
    assert_eq!(found.scenario.jobs[0].threads[0].course[0].instructions, 5);
}

#[test]
fn what_is_written_is_read() {
    let read = ScenarioFile::from_toml(GOOD).unwrap();
    let again = ScenarioFile::from_toml(&read.to_toml()).unwrap();
    assert_eq!(again.form, read.form);
    assert_eq!(experiment(&read.to_toml()), experiment(GOOD));
}

#[test]
fn a_file_of_several_phases() {
    let both = GOOD.replace("walks.toml", "both.toml");
    assert_eq!(experiment(&both).unwrap().scenario.phases[1].phase.name, "walks");
    let named = both.replace("\"both.toml\"", "\"both.toml\"\nphase = \"runs\"");
    assert_eq!(experiment(&named).unwrap().scenario.phases[1].phase.name, "runs");
}

#[test]
fn overrides_come_first() {
    let mut file = ScenarioFile::from_toml(GOOD).unwrap();
    file.put(&Overrides {
        policies: Some(["mix", "compact"].map(named).to_vec()),
        seeds: Some(9),
        ..Overrides::default()
    });
    let found = experiment(&file.to_toml()).unwrap();
    assert_eq!((found.baseline, found.seeds, found.draws), (named("mix"), 9, 4));
    file.put(&Overrides { draws: Some(0), ..Overrides::default() });
    let refusal = experiment(&file.to_toml()).unwrap_err().to_string();
    assert!(refusal.ends_with("expected 1 to 10000, found 0"), "{refusal}");
}

/// What is said of `GOOD` with one thing changed.
fn refusal(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    experiment(&GOOD.replacen(from, to, 1)).unwrap_err().to_string()
}

/// What is said when each text stands instead of another, a line each.
fn refusals(cases: &[(&str, &str)]) -> String {
    cases.iter().map(|(from, to)| refusal(from, to) + "\n").collect()
}

#[test]
fn a_wrong_setting_is_refused_with_its_line() {
    let said = refusals(&[
        ("version = 1", "version = 2"),
        ("version = 1\n", ""),
        ("seed = 7", "sead = 7"),
        ("seed = 7", "seed = -7"),
        ("seeds = 3", "seeds = 0"),
        ("draws = 4", "draws = 1_000_000"),
        ("quantum = \"100 ms\"", "quantum = \"100 MHz\""),
        ("quantum = \"100 ms\"", "quantum = 100"),
        ("quantum = \"100 ms\"", "quantum = \"0 ms\""),
        ("cpus = \"0-3,32-35\"", "cpus = \"0-3,64\""),
        ("cpus = \"0-3,32-35\"", "cpus = \"3-0\""),
        ("cpus = \"0-3,32-35\"", "cpus = \"\""),
        ("\"random:seed=3\"", "\"best\""),
        ("\"random:seed=3\"", "\"os\""),
        ("[\"os\", \"mix\", \"random:seed=3\"]", "[]"),
        ("baseline = \"os\"", "baseline = \"compact\""),
        ("wake = \"idle-pu\"", "wake = \"never\""),
        ("wake = \"idle-pu\"", "wake = \"previous\""),
        ("wake = \"idle-pu\"", "wake-affine = false"),
        ("numa-balancing = false", "numa-balancing = false\nnuma-period = \"1 s\""),
        ("wake = \"idle-pu\"", "balance-percent = 100"),
        ("wake = \"idle-pu\"", "stagger = 0"),
        ("fork = \"with-parent\"", "fork = \"with-parent\"\nreclaim-distance = 30"),
    ]);
    expect![[r#"
        line 1: expected version = 1, found 2
        line 1: missing field `version`
        line 9: unknown field `sead`, expected one of `version`, `name`, `note`, `machine`, `cpus`, `policies`, `baseline`, `seed`, `seeds`, `draws`, `profiled`, `watch`, `method`, `quantum`, `grain`, `horizon`, `kernel`, `event`, `phase`, `job`
        line 9: invalid value: integer `-7`, expected u64
        line 10: expected 1 to 1000, found 0
        line 11: expected 1 to 10000, found 1000000
        line 13: expected a time like "90 ns", found "100 MHz"
        line 13: invalid type: integer `100`, expected a string
        line 13: expected a time of 1 us or more, found 0 ns
        line 6: expected CPUs that 2x AMD EPYC 7301 has online, found 64
        line 6: expected a range that ends after it begins, found "3-0"
        line 6: expected at least one CPU, found none
        line 7: expected os, auto, round-robin, scatter, compact, random, instruction, mix, communication, communication-static, symbiosis-model, first-touch, interleave, autonuma, next-touch, dpp, carrefour, dino, kmaf, mmas, mhas, idas, l1-static, l1-dynamic, bas, fair, perf-fair, fair-oracle, symbiotic, symbiotic-numa, oracle, parallelism-aware, efficiency, utility or all-fast-first, found policy "best"
        line 7: expected every policy once, found os twice
        line 7: expected 1 to 64 policies, found 0
        line 8: expected one of the policies, os, mix, random:seed=3, found compact
        line 18: unknown variant `never`, expected one of `previous`, `idle-pu`, `idle-core`
        line 19: expected no setting of what wake = "previous" switches off, found one
        line 19: expected no setting of what wake-affine = false switches off, found one
        line 21: expected no setting of what numa-balancing = false switches off, found one
        line 18: expected more than 100 percent, found 100
        line 18: expected 1 to 1000, found 0
        line 18: expected reclaim-distance beside fork = "idlest", found fork = "with-parent"
    "#]].assert_eq(&said);
}

#[test]
fn a_wrong_phase_is_refused_with_its_line() {
    let said = refusals(&[
        ("int = 0.9", "int = 1.9"),
        ("slots = { value = 1.0,", "slots = { value = -1.0,"),
        ("slots = { value = 1.0,", "slots = { value = nan,"),
        ("slots = { value = 1.0,", "slots = { valeu = 1.0,"),
        ("slots = { value = 1.0, source = \"one micro-operation each\" }", "slots = 1.0"),
        ("name = \"walks\"", "name = \"adds\""),
        ("name = \"walks\"", "name = \"\""),
        ("walks.toml", "runs.toml"),
        ("\"walks.toml\"", "\"both.toml\"\nphase = \"flies\""),
        ("file = \"walks.toml\"", "demand = {}\nphase = \"runs\""),
        ("file = \"walks.toml\"", "file = \"walks.toml\"\ndemand = {}"),
        ("file = \"walks.toml\"\n", ""),
    ]);
    expect![[r#"
        line 27: expected a share from 0 to 1, found 1.9
        line 25: expected a number from 0 to 1e6, found -1
        line 25: expected a number from 0 to 1e6, found NaN
        line 25: unknown field `valeu`, expected `value` or `source`
        line 25: invalid type: floating point `1.0`, expected a figure like { value = …, source = "…" }, or "unknown"
        line 31: expected phases of different names, found a second "adds"
        line 31: expected a name of 1 to 100 characters on one line, found 0 characters
        line 32: cannot read runs.toml
        line 33: expected one of the file's phases, "runs", "walks", found "flies"
        line 33: expected a file that the phase is in, found none
        line 31: expected a demand or a file of one, found both
        line 31: expected a demand or a file of one, found neither
    "#]].assert_eq(&said);
}

#[test]
fn a_wrong_job_is_refused_with_its_line() {
    let said = refusals(&[
        ("copies = 2", "copies = 0"),
        ("copies = 2", "copies = 1_025"),
        ("copies = 3", "copies = 60_000"),
        ("phase = \"adds\"\n", "phase = \"subs\"\n"),
        ("phase = \"adds\"\n", ""),
        ("alone-for = \"2 s\"\n", ""),
        ("alone-for = \"2 s\"", "alone-for = \"2 s\"\ninstructions = 5"),
        ("alone-for = \"2 s\"", "alone-for = \"-2 s\""),
        ("pages = \"node 1\"", "pages = \"node 8\""),
        ("pages = \"node 1\"", "pages = \"anywhere\""),
        ("resident = \"1 GiB\"", "resident = \"1 GB\""),
        ("instructions = 1_000_000", "instructions = 0"),
        ("instructions = 1_000_000", "instructions = 1e6"),
        ("sleep = \"1 ms\"", "sleeps = \"1 ms\""),
        ("[[job.thread]]\ncopies = 3", "[[job.tread]]\ncopies = 3"),
        ("[[job]]", "[job]"),
    ]);
    expect![[r#"
        line 36: expected 1 to 65536, found 0
        line 34: expected at most 1024 jobs, found 1025
        line 37: expected at most 65536 threads, and 1000000 stretches, in all jobs, found more
        line 39: expected the name of a [[phase]], found "subs"
        line 37: expected a phase or a course of them, found neither
        line 39: expected instructions = N or alone-for = "TIME" beside a phase, found neither
        line 41: expected instructions or alone-for, found both
        line 40: expected a time like "90 ns", found "-2 s"
        line 62: expected one of the 8 nodes of 2x AMD EPYC 7301, found "node 8"
        line 62: expected first-touch, first-thread, interleaved or node N, found "anywhere"
        line 63: expected a size like "32 KiB" or "16 GiB", found "1 GB"
        line 65: expected at least one instruction, found 0
        line 65: invalid type: floating point `1000000.0`, expected u64
        line 66: unknown field `sleeps`, expected one of `phase`, `instructions`, `sleep`, `barrier`
        line 37: unknown field `tread`, expected one of `name`, `copies`, `arrives`, `barrier`, `thread`, `memory`
        line 42: duplicate key
    "#]].assert_eq(&said);
}

#[test]
fn a_wrong_barrier_is_refused_with_its_line() {
    let said = refusals(&[
        ("wait = \"spin\"", "wait = \"yield\""),
        ("wait = \"spin\"", "wait = \"sleep\""),
        ("spins = \"adds\", ", ""),
        ("spins = \"adds\", ", "turns = 1, "),
        ("wait = \"spin\", spins = \"adds\"", "wait = \"turns\", turns = 1"),
        (
            "wait = \"spin\", spins = \"adds\", serial = { phase = \"walks\", instructions = 500 }",
            "wait = \"turns\", turns = 0",
        ),
        ("spins = \"adds\"", "spins = \"subs\""),
        ("instructions = 500 ", "instructions = 0 "),
        ("barrier = true", "barrier = false"),
        ("barrier = { wait", "barriers = { wait"),
        (
            "barrier = { wait = \"spin\", spins = \"adds\", serial = { phase = \"walks\", instructions = 500 } }\n",
            "",
        ),
        ("barrier = true", "barrier = true, sleep = \"1 ms\""),
    ]);
    expect![[r#"
        line 44: unknown variant `yield`, expected one of `sleep`, `spin`, `turns`, `served`
        line 44: expected wait = "spin" beside spins, found another one
        line 44: expected spins = "PHASE" beside wait = "spin", found none
        line 44: expected wait = "turns" beside turns, found another one
        line 44: expected turns or a serial part, found both
        line 44: expected 1 to 65536, found 0
        line 44: expected the name of a [[phase]], found "subs"
        line 44: expected at least one instruction, found 0
        line 44: expected barrier = true in the course of a thread, found none
        line 44: unknown field `barriers`, expected one of `name`, `copies`, `arrives`, `barrier`, `thread`, `memory`
        line 46: expected barrier = { wait = … } of the job, found none
        line 47: expected sleep or a barrier, found both
    "#]].assert_eq(&said);
}

#[test]
fn a_wrong_event_is_refused_with_its_line() {
    let said = refusals(&[
        ("offline = \"2-3\"", "offline = \"2-3\"\nonline = \"1\""),
        ("offline = \"2-3\"\n", ""),
        ("offline = \"2-3\"", "offline = \"\""),
        ("offline = \"2-3\"", "offline = \"2-4\""),
        ("offline = \"2-3\"", "offline = \"0-3,32-35\""),
        ("online = \"3\"", "online = \"1\""),
        ("at = \"1 s\"", "when = \"1 s\""),
    ]);
    expect![[r#"
        line 50: expected offline or online = "CPUS", found both
        line 50: expected offline or online = "CPUS", found neither
        line 52: expected at least one CPU, found none
        line 52: expected CPUs that the jobs may use, found 4
        event of cpu35 at 1.00 s: expected a PU that is left, found none
        event of cpu1 at 2.00 s: expected a PU that is offline, found one that is not
        line 51: unknown field `when`, expected one of `at`, `offline`, `online`
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_job_without_threads_and_a_file_that_is_too_large() {
    let text = GOOD.split("[[job]]").next().unwrap();
    let without = format!("{text}[[job]]\nname = \"idle\"\n");
    expect!["line 34: expected at least one [[job.thread]], found none"]
        .assert_eq(&experiment(&without).unwrap_err().to_string());
    expect!["scenario: expected at least one job, found none"]
        .assert_eq(&experiment(text).unwrap_err().to_string());
    let large = " ".repeat(MAX_BYTES + 1);
    expect!["expected at most 16777216 bytes, found 16777217"]
        .assert_eq(&experiment(&large).unwrap_err().to_string());
}

proptest! {
    /// Whatever is cut out of a file or put into it, there is an answer, and what is read is written.
    #[test]
    fn damaged_files_are_read_or_refused(at in 0..GOOD.len(), length in 0..40_usize, put in "[a-z=\"0-9\\[\\] \n]{0,6}") {
        let end = (at + length).min(GOOD.len());
        let text = format!("{}{put}{}", &GOOD[..at], &GOOD[end..]);
        if let Ok(file) = ScenarioFile::from_toml(&text) {
            let again = ScenarioFile::from_toml(&file.to_toml()).unwrap();
            prop_assert_eq!(again.form, file.form);
            let _ = experiment(&text);
        }
    }
}

fn named(name: &str) -> Contender {
    name.parse().unwrap()
}
