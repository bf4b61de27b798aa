//! `colocate plan`, whole runs.

use assert_cmd::Command;
use expect_test::{Expect, expect};
use std::path::PathBuf;

fn colocate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
    command.args(args);
    command
}

/// A profile in `dir`: a main thread that only waits, and `threads` workers, the first of which end
/// first. Shares are of branch, float, int, load, store.
fn profile(dir: &tempfile::TempDir, name: &str, threads: u64, shares: [f64; 5]) -> String {
    let [branch, float, int, load, store] = shares;
    let thread = |order: u64| {
        let (name, cpu_ns) = if order == 0 {
            (name.to_owned(), 1_000_000)
        } else {
            (format!("w{order}"), 9_000_000_000_u64)
        };
        serde_json::json!({
            "order": order, "process": 0, "name": name, "start_ns": order * 1_000,
            "end_ns": 10_000_000_000_u64 + order, "cpu_time_ns": cpu_ns,
            "mix": { "branch": branch, "float": float, "int": int, "load": load, "store": store },
        })
    };
    let profile = serde_json::json!({
        "version": 1, "backend": "sample",
        "program": { "path": format!("/nowhere/{name}"), "args": [], "identity": "build-id:00" },
        "started_unix_s": 0, "watched_ns": 10_000_001_000_u64, "complete": true,
        "threads": (0..=threads).map(thread).collect::<Vec<_>>(), "notes": [],
    });
    let path = dir.path().join(format!("{name}.json"));
    std::fs::write(&path, profile.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Two programs of `threads` workers each: floating point and sorting.
fn two_programs(dir: &tempfile::TempDir, threads: u64) -> [String; 2] {
    [
        profile(dir, "solve", threads, [0.04, 0.38, 0.12, 0.34, 0.14]),
        profile(dir, "sort", threads, [0.18, 0.0, 0.42, 0.28, 0.12]),
    ]
}

fn check(args: &[&str], expected: Expect) {
    let out = colocate(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = out.status.code().unwrap();
    let code = if code == 0 { String::new() } else { format!("exit code {code}\n") };
    expected.assert_eq(&(text(out.stdout) + &text(out.stderr) + &code));
}

#[test]
fn shows_the_place_of_each_task_and_why() {
    let dir = tempfile::tempdir().unwrap();
    let [solve, sort] = two_programs(&dir, 2);
    let machine = ["--machine", "synthetic:core:3 pu:2"];
    let programs = ["plan", "--profile", &solve, "--profile", &sort];
    check(
        &[&programs[..], &machine].concat(),
        expect![[r#"
            machine  core:3 pu:2: 6 of 6 PUs on 3 cores
            policy   mix
            program  0 solve: 2 threads; default placement for 1 thread busy for less than 1 %
            program  1 sort: 2 threads; default placement for 1 thread busy for less than 1 %

            core  PU  task  name      busy  most of       why
            0     0   0.1   solve/w1  90 %  float 38.0 %  least overlap, 0.0653 beside 1.1
                  1   1.1   sort/w1   90 %  int 42.0 %    least overlap, 0.0653 beside 0.1
            1     2   0.2   solve/w2  90 %  float 38.0 %  least overlap, 0.0000 no task on a sibling PU
            2     4   1.2   sort/w2   90 %  int 42.0 %    least overlap, 0.0000 no task on a sibling PU

            idle       2 of 6 usable PUs
            predicted  mean overlap of a core 0.0218 unit clashes per pair of instructions; 0.0266 for the same places with partners drawn at random, 0.0723 for round-robin
            slowdown   not predicted: the machine's description does not say how fast it is
            default    threads created later: the PU with the fewest tasks, earliest in 0, 2, 4, 1, 3, 5
        "#]],
    );
    check(
        &[&programs[..], &machine, &["--policy", "instruction", "--key", "int"]].concat(),
        expect![[r#"
            machine  core:3 pu:2: 6 of 6 PUs on 3 cores
            policy   instruction:key=int
            program  0 solve: 2 threads; default placement for 1 thread busy for less than 1 %
            program  1 sort: 2 threads; default placement for 1 thread busy for less than 1 %

            core  PU  task  name      busy  most of       why
            0     0   1.2   sort/w2   90 %  int 42.0 %    rank 3 by int, no task on a sibling PU
            1     2   1.1   sort/w1   90 %  int 42.0 %    rank 2 by int, no task on a sibling PU
            2     4   0.2   solve/w2  90 %  float 38.0 %  rank 1 by int, beside 0.1
                  5   0.1   solve/w1  90 %  float 38.0 %  rank 0 by int, beside 0.2

            idle       2 of 6 usable PUs
            predicted  mean overlap of a core 0.0416 unit clashes per pair of instructions; 0.0266 for the same places with partners drawn at random, 0.0723 for round-robin
            slowdown   not predicted: the machine's description does not say how fast it is
            default    threads created later: the PU with the fewest tasks, earliest in 0, 2, 4, 1, 3, 5
        "#]],
    );
    check(
        &[&programs[..], &machine, &["--policy", "os"]].concat(),
        expect![[r#"
            machine  core:3 pu:2: 6 of 6 PUs on 3 cores
            policy   os
            program  0 solve: 2 threads; default placement for 1 thread busy for less than 1 %
            program  1 sort: 2 threads; default placement for 1 thread busy for less than 1 %

            core  PU   task  name      busy  most of       why
            any   any  0.1   solve/w1  90 %  float 38.0 %  left to the kernel
            any   any  0.2   solve/w2  90 %  float 38.0 %  left to the kernel
            any   any  1.1   sort/w1   90 %  int 42.0 %    left to the kernel
            any   any  1.2   sort/w2   90 %  int 42.0 %    left to the kernel

            predicted  nothing: no task is placed
            slowdown   not predicted: the machine's description does not say how fast it is
            default    threads created later: left to the kernel
        "#]],
    );
}

#[test]
fn cpus_leave_out_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let [solve, sort] = two_programs(&dir, 2);
    let args =
        ["plan", "--profile", &solve, "--profile", &sort, "--machine", "synthetic:core:3 pu:2"];
    check(
        &[&args[..], &["--cpus", "0,2-3", "--policy", "scatter"]].concat(),
        expect![[r#"
            machine  core:3 pu:2: 3 of 6 PUs on 2 cores
            policy   scatter
            program  0 solve: 2 threads; default placement for 1 thread busy for less than 1 %
            program  1 sort: 2 threads; default placement for 1 thread busy for less than 1 %

            core  PU  task  name      busy  most of       why
            0     0   0.1   solve/w1  90 %  float 38.0 %  takes turns with 1 on its PU, next in order, farthest apart
                  0   1.2   sort/w2   90 %  int 42.0 %    takes turns with 1 on its PU, next in order, farthest apart
            1     2   0.2   solve/w2  90 %  float 38.0 %  next in order, farthest apart
                  3   1.1   sort/w1   90 %  int 42.0 %    next in order, farthest apart

            idle       0 of 3 usable PUs
            predicted  mean overlap of a core 0.0326 unit clashes per pair of instructions; 0.0326 for round-robin
            slowdown   not predicted: the machine's description does not say how fast it is
            default    threads created later: the PU with the fewest tasks, earliest in 0, 2, 3
        "#]],
    );
    check(
        &[&args[..], &["--cpus", "0,9"]].concat(),
        expect![[r#"
        colocate: --cpus: expected PUs of core:3 pu:2 that may be used (0-5), found 9
        exit code 2
    "#]],
    );
}

#[test]
fn models_more_threads_on_a_described_machine() {
    let dir = tempfile::tempdir().unwrap();
    let [solve, sort] = two_programs(&dir, 2).map(|path| format!("{path}:threads=32"));
    let args =
        ["plan", "--profile", &solve, "--profile", &sort, "--machine", "epyc-7301", "--json"];
    let out = colocate(&args).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let plan = colocate_policy::Plan::from_json(&text).unwrap();
    let machine = colocate_machine::read::open("epyc-7301").unwrap();
    plan.check_against(&machine).unwrap();
    assert_eq!(plan.decisions.len(), 64);
    // Every core has one thread of each program.
    for core in &machine.cores {
        let os = core.pus.iter().map(|pu| machine.pus[pu.idx()].os);
        let on_core: Vec<_> = os
            .map(|os| {
                plan.decisions.iter().find(|decision| decision.place.pu() == Some(os)).unwrap()
            })
            .collect();
        assert_ne!(on_core[0].task.job, on_core[1].task.job);
    }
}

/// A control group's quota leaves every PU usable, but not all of the time.
/// On a machine of which it is known how fast it is, every task's slowdown is told with its range, and
/// the policy that needs it works.
#[test]
fn slowdowns_on_a_described_machine() {
    let dir = tempfile::tempdir().unwrap();
    let [solve, sort] = two_programs(&dir, 4);
    let programs = ["plan", "--profile", &solve, "--profile", &sort];
    let machine = ["--machine", "epyc-7301", "--cpus", "0,32,8,40,16,48,24,56"];
    let policy = ["--policy", "symbiosis-model", "--json"];
    let out = colocate(&[&programs[..], &machine, &policy].concat()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let slowdowns = plan["slowdowns"].as_array().unwrap();
    assert_eq!((slowdowns.len(), plan["decisions"].as_array().unwrap().len()), (8, 8));
    for slowdown in slowdowns {
        let of = |name: &str| slowdown[name].as_f64().unwrap();
        let (usual, least, most) = (of("usual"), of("least"), of("most"));
        assert!(0.99 < least && least < usual && usual < most && most < 4.0, "{slowdown}");
    }
    for decision in plan["decisions"].as_array().unwrap() {
        assert_eq!(decision["why"]["why"], "modelled", "{decision}");
    }
    let table = colocate(&[&programs[..], &machine].concat()).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("  slowdown             why\n"), "{table}");
    assert!(table.contains("predicted by the model, not measured"), "{table}");
    let refused = colocate(&[&programs[..], &["--policy", "symbiosis-model"]].concat());
    let refused = { refused }.output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.starts_with("colocate: expected a machine of which it is described"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_quota_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let topo = ["topo", "--synthetic", "core:2 pu:2", "--json"];
    let mut machine: serde_json::Value =
        serde_json::from_slice(&colocate(&topo).output().unwrap().stdout).unwrap();
    let quota = serde_json::json!({ "time_ns": 150_000_000, "period_ns": 100_000_000 });
    machine["usable"] = serde_json::json!({ "quota": quota, "pus": [0, 1, 2, 3] });
    let file = dir.path().join("limited.json");
    std::fs::write(&file, machine.to_string()).unwrap();
    let [solve, _] = two_programs(&dir, 2);
    let args = ["plan", "--profile", &solve, "--machine", file.to_str().unwrap()];
    let text = String::from_utf8(colocate(&args).output().unwrap().stdout).unwrap();
    let told = text.lines().find(|line| line.starts_with("quota"));
    assert_eq!(
        told,
        Some("quota    all threads together may use 1.50 PUs (150.0 ms every 100.0 ms)")
    );
}

#[test]
fn copies_are_programs_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let [solve, _] = two_programs(&dir, 1).map(|path| format!("{path}:threads=2:copies=2"));
    check(
        &["plan", "--profile", &solve, "--machine", "synthetic:core:4 pu:1", "--policy", "compact"],
        expect![[r#"
            machine  core:4 pu:1: 4 of 4 PUs on 4 cores
            policy   compact
            program  0 solve: 1 thread; default placement for 1 thread busy for less than 1 %; modelled as 2 threads
            program  1 solve: 1 thread; default placement for 1 thread busy for less than 1 %; modelled as 2 threads

            core  PU  task  name      busy  most of       why
            0     0   0.1   solve/w1  90 %  float 38.0 %  next in order, closest together
            1     1   0.2   solve/w1  90 %  float 38.0 %  next in order, closest together
            2     2   1.1   solve/w1  90 %  float 38.0 %  next in order, closest together
            3     3   1.2   solve/w1  90 %  float 38.0 %  next in order, closest together

            idle       0 of 4 usable PUs
            predicted  mean overlap of a core 0.0000 unit clashes per pair of instructions; 0.0000 for the same places with partners drawn at random, 0.0000 for round-robin
            slowdown   not predicted: the machine's description does not say how fast it is
            default    threads created later: the PU with the fewest tasks, earliest in 0, 1, 2, 3
        "#]],
    );
}

#[test]
fn json_is_of_the_schema_and_the_same_every_time() {
    let dir = tempfile::tempdir().unwrap();
    let [solve, sort] = two_programs(&dir, 4);
    let schema = include_str!("../../../../docs/schemas/plan.json");
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let golden = include_str!("../../../policy/tests/golden/plan.json");
    assert!(schema.is_valid(&serde_json::from_str(golden).unwrap()));
    for policy in ["os", "round-robin", "scatter", "compact", "random:seed=3", "instruction", "mix"]
    {
        for machine in ["synthetic:core:2 pu:2", "synthetic:core:8 pu:2", "live"] {
            let args = ["plan", "--profile", &solve, "--profile", &sort, "--json"];
            let args = [&args[..], &["--policy", policy, "--machine", machine]].concat();
            let text = String::from_utf8(colocate(&args).output().unwrap().stdout).unwrap();
            let errors: Vec<_> = schema
                .iter_errors(&serde_json::from_str(&text).unwrap())
                .map(|e| e.to_string())
                .collect();
            assert!(errors.is_empty(), "{policy}: {errors:?}");
            assert_eq!(text, colocate_policy::Plan::from_json(&text).unwrap().to_json());
            assert_eq!(text, String::from_utf8(colocate(&args).output().unwrap().stdout).unwrap());
        }
    }
}

#[test]
fn profiles_are_of_their_schema() {
    let dir = tempfile::tempdir().unwrap();
    let schema = include_str!("../../../../docs/schemas/profile.json");
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let golden = include_str!("../../../model/tests/golden/profile.json").to_owned();
    for text in [golden, std::fs::read_to_string(profile(&dir, "solve", 3, [0.1; 5])).unwrap()] {
        assert!(schema.is_valid(&serde_json::from_str(&text).unwrap()));
        let wrong = text.replacen("sample", "guess", 1);
        assert!(!schema.is_valid(&serde_json::from_str(&wrong).unwrap()));
    }
}

#[test]
fn a_file_appears_whole() {
    let dir = tempfile::tempdir().unwrap();
    let [solve, _] = two_programs(&dir, 2);
    let to: PathBuf = dir.path().join("plan.json");
    let machine = ["--machine", "synthetic:core:2 pu:2"];
    let args = ["plan", "--profile", &solve, "--json", "-o", to.to_str().unwrap()];
    let out = colocate(&[&args[..], &machine].concat()).output().unwrap();
    assert!(out.status.success() && out.stdout.is_empty());
    assert!(colocate_policy::Plan::from_json(&std::fs::read_to_string(to).unwrap()).is_ok());
}

#[test]
fn no_threads_is_a_plan_too() {
    let dir = tempfile::tempdir().unwrap();
    let idle = profile(&dir, "idle", 0, [0.1; 5]);
    check(
        &["plan", "--profile", &idle, "--machine", "synthetic:core:2 pu:1"],
        expect![[r#"
            machine  core:2 pu:1: 2 of 2 PUs on 2 cores
            policy   mix
            program  0 idle: 0 threads; default placement for 1 thread busy for less than 1 %

            core  PU  task  name  busy  most of  why

            predicted  nothing: no task is placed
            slowdown   not predicted: the machine's description does not say how fast it is
            default    threads created later: the PU with the fewest tasks, earliest in 0, 1
        "#]],
    );
}

/// They decide by what programs show while they run: that is said, and not the same nothing for all.
#[test]
fn policies_that_place_nothing_before_the_start_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let [solve, _] = two_programs(&dir, 1);
    let predicted = |policy: &str| {
        let args = ["plan", "--machine", "power8-10c", "--profile", &solve, "--policy", policy];
        let text = String::from_utf8(colocate(&args).output().unwrap().stdout).unwrap();
        text.lines().find(|line| line.starts_with("predicted")).unwrap().to_owned()
    };
    assert_eq!(
        predicted("kmaf"),
        "predicted  nothing: kmaf decides by pages, known only while programs run; colocate run --policy kmaf"
    );
    assert_eq!(
        predicted("communication"),
        "predicted  nothing: communication decides by wake-ups, known only while programs run; colocate run --policy \
         communication"
    );
    assert_eq!(predicted("os"), "predicted  nothing: no task is placed");
}

/// A main thread that waits and is placed by default, and one that works: the second of two modelled threads is neither.
#[test]
fn threads_that_are_modelled_are_not_those_placed_by_default() {
    let dir = tempfile::tempdir().unwrap();
    let path = profile(&dir, "late", 2, [0.04, 0.38, 0.12, 0.34, 0.14]);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["threads"][2]["cpu_time_ns"] = 1_000_000.into();
    std::fs::write(&path, value.to_string()).unwrap();
    let args = ["plan", "--machine", "epyc-7301", "--policy", "compact", "--profile"];
    let profile = format!("{path}:threads=2");
    let output = colocate(&[&args[..], &[&profile]].concat()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("1 thread; default placement for 2 threads busy for less than 1 %;"),
        "{text}"
    );
    assert!(text.contains("  0.1   ") && text.contains("  0.3   "), "{text}");
}

#[test]
fn wrong_usage_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let [solve, _] = two_programs(&dir, 1);
    check(
        &["plan", "--profile", &solve, "--policy", "best"],
        expect![[r#"
            error: invalid value 'best' for '--policy <POLICY>': expected os, auto, round-robin, scatter, compact, random, instruction, mix, communication, communication-static, symbiosis-model, first-touch, interleave, autonuma, next-touch, dpp, carrefour, dino or kmaf, found policy "best"

            For more information, try '--help'.
            exit code 2
        "#]],
    );
    check(
        &["plan", "--profile", &solve, "--seed", "one"],
        expect![[r#"
            error: invalid value 'one' for '--seed <N>': expected a whole number

            For more information, try '--help'.
            exit code 2
        "#]],
    );
    let meant = String::from_utf8(
        colocate(&["plan", "--profile", &solve, "--policy", "mxi"]).output().unwrap().stderr,
    );
    assert!(meant.unwrap().contains("found policy \"mxi\"; did you mean mix?\n"));
    check(
        &["plan", "--profile", &solve, "--seed", "3"],
        expect![[r#"
            colocate: --seed: expected mix with no setting, found "seed=3"
            exit code 2
        "#]],
    );
    check(
        &["plan", "--profile", &solve, "--key", "int"],
        expect![[r#"
            colocate: --key: expected mix with no setting, found "key=int"
            exit code 2
        "#]],
    );
    check(
        &["plan", "--profile", &solve, "--policy", "instruction", "--key", "fp"],
        expect![[r#"
            colocate: --key: expected instruction with key=branch, float, int, load or store; published, a colon between two, found "key=fp"
            exit code 2
        "#]],
    );
    check(
        &["plan", "--profile", &solve, "--cpus", "3-1"],
        expect![[r#"
        colocate: --cpus: expected a range that ends after it begins, found "3-1"
        exit code 2
    "#]],
    );
    check(
        &["plan", "--profile", &solve, "--cpus", ""],
        expect![[r#"
        colocate: --cpus: expected at least one PU, found none
        exit code 2
    "#]],
    );
    check(
        &["plan", "--profile", "/nowhere/p.json"],
        expect![[r#"
        colocate: cannot use profile /nowhere/p.json: No such file or directory (os error 2)
        exit code 125
    "#]],
    );
    let none = format!("{solve}:threads=0");
    let out = colocate(&["plan", "--profile", &none]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let line = String::from_utf8(out.stderr).unwrap();
    assert!(line.ends_with(":threads=0: expected threads=1 to 65536, found \"0\"\n"), "{line}");
}

#[test]
fn too_many_threads_are_refused_before_they_fill_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let [solve, _] = two_programs(&dir, 1).map(|path| format!("{path}:threads=65536:copies=65536"));
    let out = colocate(&["plan", "--profile", &solve]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let line = String::from_utf8(out.stderr).unwrap();
    let ends = ":copies=65536: expected at most 100000 threads in all, found 4294967296\n";
    assert!(line.ends_with(ends), "{line}");
}

#[test]
fn a_changed_binary_is_refused_on_this_machine_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = profile(&dir, "solve", 1, [0.1; 5]);
    let program = dir.path().join("solve");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("/nowhere/solve", program.to_str().unwrap())).unwrap();
    let out = colocate(&["plan", "--profile", &path]).output().unwrap();
    assert_eq!(out.status.code(), Some(125));
    let line = String::from_utf8(out.stderr).unwrap();
    assert!(line.contains("with build-id:00, found sha256:"), "{line}");
    assert!(line.ends_with("; profile again\n"), "{line}");
    let elsewhere = ["plan", "--profile", &path, "--machine", "synthetic:core:2 pu:1"];
    assert!(colocate(&elsewhere).output().unwrap().status.success());
}

#[test]
fn names_cannot_drive_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let path = profile(&dir, "solve", 1, [0.1; 5]);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"w1\"", r#""\u001b[2J""#)).unwrap();
    let out = colocate(&["plan", "--profile", &path, "--machine", "synthetic:core:2 pu:1"])
        .output()
        .unwrap();
    assert!(out.status.success());
    assert!(!out.stdout.contains(&0x1b));
}

/// The pure crates have no decoder, so the classes are named in two places.
#[test]
fn classes_are_named_alike_everywhere() {
    let ours = colocate_model::Class::ALL.map(|class| (class as usize, class.name()));
    assert_eq!(ours, colocate_isa::Class::ALL.map(|class| (class as usize, class.name())));
}

/// A program's name is a cell of a table; Rust pads to at most 65,535 characters, and panics beyond.
#[test]
fn long_names_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let short = profile(&dir, "solve", 2, [0.04, 0.38, 0.12, 0.34, 0.14]);
    let text = std::fs::read_to_string(&short).unwrap().replace("solve", &"é".repeat(70_000));
    let long = dir.path().join("long.json");
    std::fs::write(&long, text).unwrap();
    for machine in ["synthetic:core:2 pu:2", "xeon-e5645"] {
        let args = ["plan", "--machine", machine, "--profile", long.to_str().unwrap()];
        let out = colocate(&args).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(text.contains(&format!("{}…", "é".repeat(239))), "cut");
    }
}
