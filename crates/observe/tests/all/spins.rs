//! Real programs whose threads wait in loops, or only look so, under the sampler.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use colocate_linux::Pid;
use colocate_observe::pmu::Start;
use colocate_observe::sample::Clocks;
use colocate_observe::spin::judge::CodeJudge;
use colocate_observe::spin::{Share, SpinSampler};
use colocate_testing::skip::{Missing, Requirement, part, two_pus};
use colocate_testing::{LIMIT, TimeLimit, need, skip, within};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Samples a second of CPU time: some hundred of each thread.
const RATE_HZ: u32 = 1_000;
/// CPU time for which a program's first thread works.
const MS: &str = "300";
/// Fewest samples that give a share.
const ENOUGH: u32 = 50;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/spin").join(name)
}

/// Compiles a program of workloads/spin.
fn compiled(folder: &Path, compiler: &str, flags: &[&str], name: &str) -> Result<PathBuf, Missing> {
    let program = folder.join(name.trim_end_matches(".c"));
    let mut command = Command::new(compiler);
    command.args(flags).arg("-o").arg(&program).arg(source(name));
    let is_compiled = command.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    let what = if compiler == "clang" { Requirement::Clang } else { Requirement::Compiler };
    what.if_there(is_compiled, format_args!("{compiler} {flags:?} does not compile {name}"))?;
    Ok(program)
}

fn spin_sampler() -> Result<SpinSampler, Missing> {
    let sampler = SpinSampler::new(RATE_HZ, &Clocks::here().unwrap());
    sampler.map_err(|why| Requirement::Perf.missing(why))
}

/// Samples of the waiting and of the working thread.
fn sampled(program: &Path, words: &[&str]) -> Result<[Share; 2], Missing> {
    let (threads, said) = all_sampled(program, words)?;
    let of = |name: &str| {
        let tid = said.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        threads.get(tid).copied().unwrap_or_default()
    };
    Ok([of("waits "), of("works ")])
}

/// Samples of each thread by its number, and what the program printed.
fn all_sampled(
    program: &Path,
    words: &[&str],
) -> Result<(BTreeMap<String, Share>, String), Missing> {
    let mut sampler = spin_sampler()?;
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::piped()).env("OMP_WAIT_POLICY", "active");
    command.env("GLIBC_TUNABLES", "glibc.pthread.mutex_spin_count=32767");
    let mut child = command.spawn().unwrap();
    sampler.also(Pid(child.id().cast_signed()), Start::Now).unwrap();
    let (mut judge, mut threads) = (CodeJudge::default(), BTreeMap::new());
    let _limit = TimeLimit::start(LIMIT, &format!("the end of {words:?}"));
    loop {
        let ended = child.try_wait().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        sampler.drain();
        let questions = sampler.questions();
        for question in &questions {
            let verdict = judge.judge(question);
            sampler.learn(question.site, verdict);
        }
        // What was sampled until now at a place that is judged only now is no measure of that: on a busy machine this thread
        // may have waited for its PU for long.
        let taken = sampler.take();
        for (tid, share) in taken.into_iter().filter(|_| questions.is_empty()) {
            let sum: &mut Share = threads.entry(tid.0.to_string()).or_default();
            sum.waits += share.waits;
            sum.works += share.works;
            sum.unknown += share.unknown;
        }
        if let Some(status) = ended {
            assert!(status.success());
            break;
        }
    }
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    Ok((threads, said))
}

/// The working thread works, and at least this part of the samples of the waiting one are seen to wait, if it was on a PU for long
/// enough.
fn check(program: &Path, words: &[&str], least: f64) {
    let [waits, works] = need!(sampled(program, words));
    assert!(works.works >= ENOUGH, "{words:?}: {works:?}");
    assert!(works.waits * 20 <= works.works, "{words:?}: working thread: {works:?}");
    let all = waits.waits + waits.works;
    if all < ENOUGH {
        skip!(Idle, "{words:?}: {all} samples of the waiting thread, too few");
    }
    // Three standard deviations of as many draws are chance.
    let chance = 3.0 * (f64::from(all) * least * (1.0 - least)).sqrt();
    let enough = f64::from(waits.waits) + chance >= f64::from(all) * least;
    assert!(enough, "{words:?}: waiting thread: {waits:?}");
}

#[test]
fn locks_and_flags() {
    let _alone = crate::alone();
    let folder = tempfile::tempdir().unwrap();
    for optimised in ["-O0", "-O2"] {
        let flags = [optimised, "-pthread"];
        let program = need!(compiled(folder.path(), "cc", &flags, "waits.c"));
        for kind in
            ["flag", "bare", "spinlock", "exchange", "compare", "backoff", "yield", "patient"]
        {
            check(&program, &[kind, MS], 0.9);
        }
    }
}

/// The compiler puts the limit of rounds and the flag into registers of a loop with nothing else.
#[test]
fn rounds_that_are_counted() {
    let _alone = crate::alone();
    let folder = tempfile::tempdir().unwrap();
    let program = need!(compiled(folder.path(), "cc", &["-O2", "-pthread"], "waits.c"));
    check(&program, &["timed", MS], 0.9);
}

#[test]
fn sleeping_threads_are_not_sampled() {
    let _alone = crate::alone();
    let folder = tempfile::tempdir().unwrap();
    let program = need!(compiled(folder.path(), "cc", &["-O2", "-pthread"], "waits.c"));
    let [waits, works] = need!(sampled(&program, &["asleep", MS]));
    assert!(waits.waits == 0 && waits.works * 10 < works.works, "{waits:?} {works:?}");
}

/// GNU's and LLVM's, where the machine has as many PUs as threads; else they sleep, or give their PU away.
#[test]
fn openmp_waits_actively() {
    let _alone = crate::alone();
    let folder = tempfile::tempdir().unwrap();
    need!(two_pus());
    for compiler in ["gcc", "clang"] {
        let flags = ["-O2", "-fopenmp"];
        let program = compiled(folder.path(), compiler, &flags, "teams.c");
        let Some(program) = part(program) else { continue };
        for kind in ["end", "start", "critical"] {
            check(&program, &[kind, MS], 0.9);
        }
    }
}

/// A thread that waits for an adaptive mutex of glibc, set to wait in its loop for long enough, is seen there.
#[test]
fn adaptive_mutexes() {
    let _alone = crate::alone();
    let folder = tempfile::tempdir().unwrap();
    let program = need!(compiled(folder.path(), "cc", &["-O2", "-pthread"], "waits.c"));
    check(&program, &["adaptive", MS], 0.9);
}

/// A thread that yields its PU after each millisecond of work works, but for what that takes.
#[test]
fn work_that_gives_way_now_and_then() {
    let _alone = crate::alone();
    let folder = tempfile::tempdir().unwrap();
    for optimised in ["-O0", "-O2"] {
        let flags = [optimised, "-pthread"];
        let program = need!(compiled(folder.path(), "cc", &flags, "works.c"));
        let threads = need!(all_sampled(&program, &["yield", MS]));
        let [only] = threads.0.into_values().collect::<Vec<_>>()[..] else { panic!("one thread") };
        assert!(only.works >= ENOUGH && only.waits * 20 <= only.works, "{only:?}");
    }
}

/// A shell is sampled, and what it creates afterwards by way of it: neither any more once the shell is forgotten.
#[test]
fn inherited_sampling_is_known() {
    let _alone = crate::alone();
    let mut sampler = need!(spin_sampler());
    let mut command = Command::new("sh");
    command.args(["-c", "read x; sleep 1000 & echo $!; read x; kill $!; wait; read x"]);
    let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, from) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
    let pid = Pid(shell.id().cast_signed());
    assert!(!sampler.samples(pid) && sampler.events() == 0);
    sampler.also_alone(pid).unwrap();
    let opened = sampler.events();
    assert!(sampler.samples(pid) && opened > 0);
    to.write_all(b"\n").unwrap();
    let mut line = String::new();
    within("the number of the shell's child", || BufReader::new(from).read_line(&mut line))
        .unwrap();
    let child = Pid(line.trim().parse().unwrap());
    let await_samples = |sampler: &mut SpinSampler, expected| {
        for _ in 0..1_000 {
            sampler.drain();
            if sampler.samples(child) == expected {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("expected that the child is sampled: {expected}");
    };
    await_samples(&mut sampler, true);
    assert_eq!(sampler.events(), opened, "it has inherited the shell's");
    to.write_all(b"\n").unwrap();
    await_samples(&mut sampler, false);
    assert!(sampler.samples(pid));
    sampler.forget(pid);
    assert!(!sampler.samples(pid) && sampler.events() == 0);
    shell.kill().unwrap();
    shell.wait().unwrap();
}
