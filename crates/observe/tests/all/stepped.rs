//! Programs of workloads/spin and workloads/serial, run instruction by instruction: which part of waiting is seen, and which part
//! of work is taken for waiting.
//!
//! Every loop is compiled by GCC and Clang at four levels of optimisation. A thread is stopped before each of some thousand
//! instructions (ptrace(2)), and the judgement of live samples is requested for each. So nothing depends on time or chance.
//! An instruction weighs 1, whatever time it takes: of waiting with a hint, whose hints take most of the time, less is seen so
//! than by time. Waiting in the kernel, by `sched_yield`, has no instructions: `spins` has it, by time.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, clippy::print_stderr, unsafe_code)] // a test that cannot go on has failed; ptrace

use colocate_linux::proc::Proc;
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use colocate_observe::sample::file::CodeFile;
use colocate_observe::spin::judge::{CodeJudge, CodeSource};
use colocate_observe::spin::loops::CodeVerdict;
use colocate_observe::spin::{CodeLocation, Question, SampledSite, ThreadMode};
use colocate_testing::skip::{Requirement, part};
use colocate_testing::{skip, wait_for};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::ptr;

/// Instructions of a thread that are run before any is counted: the way into what it does.
const BEFORE: usize = 600;
/// Instructions of a thread that are counted. Chosen: some rounds of the longest loops.
const COUNTED: usize = 1_000;
const COMPILERS: [&str; 3] = ["gcc", "clang", "clang-19"];
/// Elements of the data of programs that work, so that a round of most has fewer instructions than are counted.
const ELEMENTS: &str = "-DN=32";
/// Kinds of waits.c that wait in the kernel.
const IN_KERNEL: [&str; 3] = ["yield", "patient", "asleep"];
/// Kinds of waits.c that wait in functions of the C library.
const IN_LIBC: [&str; 2] = ["spinlock", "adaptive"];
/// CPU time after which a thread of serial.c waits for a phase of minutes.
const UNDER_WAY: Nanos = Nanos::from_millis(10);

/// A thread that is run instruction by instruction.
struct Stepped(libc::pid_t);

impl Stepped {
    /// Stops a thread of a child process.
    fn seize(tid: Tid) -> io::Result<Self> {
        request(libc::PTRACE_SEIZE, tid.0, ptr::null_mut())?;
        request(libc::PTRACE_INTERRUPT, tid.0, ptr::null_mut())?;
        let stepped = Self(tid.0);
        stepped.await_stop()?;
        Ok(stepped)
    }

    /// The address of the next instruction.
    fn ip(&self) -> io::Result<u64> {
        // SAFETY: all of its fields are numbers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        request(libc::PTRACE_GETREGS, self.0, (&raw mut registers).cast())?;
        Ok(registers.rip)
    }

    fn step(&self) -> io::Result<()> {
        request(libc::PTRACE_SINGLESTEP, self.0, ptr::null_mut())?;
        self.await_stop()
    }

    fn await_stop(&self) -> io::Result<()> {
        let mut status = 0;
        // SAFETY: `status` is written to.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
        if waited < 0 {
            return Err(io::Error::last_os_error());
        }
        assert!(libc::WIFSTOPPED(status), "the thread has ended: {status:#x}");
        Ok(())
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        // Else its process would be a zombie until this one waits for the thread.
        let _ = request(libc::PTRACE_DETACH, self.0, ptr::null_mut());
    }
}

/// One ptrace(2) request.
fn request(what: libc::c_uint, tid: libc::pid_t, data: *mut libc::c_void) -> io::Result<()> {
    let address: *mut libc::c_void = ptr::null_mut();
    // SAFETY: of the requests made here only `PTRACE_GETREGS` writes to memory of this process: to `data`, which is as large.
    let done = unsafe { libc::ptrace(what, tid, address, data) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A child process that is killed in the end.
struct Program(Child);

impl Program {
    fn start(path: &Path, words: &[&str]) -> Self {
        let mut command = Command::new(path);
        // Without the dynamic linker in between, and waiting in loops for long.
        command.args(words).env("LD_BIND_NOW", "1").env("OMP_WAIT_POLICY", "active");
        command.env("GLIBC_TUNABLES", "glibc.pthread.mutex_spin_count=32767");
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id().cast_signed())
    }

    /// The rest of the line of its output that begins so.
    fn line(&mut self, begins: &str) -> String {
        let out: &mut ChildStdout = self.0.stdout.as_mut().unwrap();
        let line = BufReader::new(out)
            .lines()
            .find_map(|line| line.unwrap().strip_prefix(begins).map(str::to_owned));
        line.unwrap()
    }

    /// Ends its wait for its input.
    fn go_on(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A place in a file, by bytes from its beginning; `None` in memory without a file.
type Location = Option<(String, u64)>;

/// How often each instruction is run by a thread that is stopped.
fn run(program: &Program, thread: &Stepped) -> io::Result<BTreeMap<Location, u64>> {
    let maps = Proc::default().code_maps(program.pid());
    let mut counts = BTreeMap::new();
    for step in 0..BEFORE + COUNTED {
        if step >= BEFORE {
            let ip = thread.ip()?;
            let map = maps.iter().find(|map| (map.start..map.end).contains(&ip) && map.inode != 0);
            let location = map.map(|map| (map.path.clone(), ip - map.start + map.offset_b));
            *counts.entry(location).or_default() += 1;
        }
        thread.step()?;
    }
    Ok(counts)
}

/// The instructions of a thread that waits for its input, whose number is in the line that begins so; of its first one without.
fn instructions(path: &Path, kind: &str, begins: &str) -> io::Result<BTreeMap<Location, u64>> {
    let mut program = Program::start(path, &[kind, "0"]);
    let tid = program.line(begins).trim().parse().map_or(Tid(program.pid().0), Tid);
    let thread = Stepped::seize(tid)?;
    program.go_on();
    run(&program, &thread)
}

/// The same of the second thread of serial.c, which waits for the first.
fn instructions_of_serial(path: &Path, option: &str) -> io::Result<BTreeMap<Location, u64>> {
    let words = [option, "--serial", "90", "--phase", "100000", "--length", "1000000"];
    let program = Program::start(path, &words);
    let (proc, pid) = (Proc::default(), program.pid());
    let is_under_way = |tid: &Tid| proc.cpu_time(pid, *tid) > Some(UNDER_WAY);
    let second =
        || proc.tasks(pid).ok()?.into_iter().filter(|tid| tid.0 != pid.0).find(is_under_way);
    let thread = Stepped::seize(wait_for("a waiting thread of serial", second))?;
    run(&program, &thread)
}

/// What became of the instructions of one kind of loops.
#[derive(Clone, Copy, Default)]
struct Tally {
    waiting: u64,
    all: u64,
}

impl Tally {
    fn plus(self, other: Self) -> Self {
        Self { waiting: self.waiting + other.waiting, all: self.all + other.all }
    }

    fn percent(self) -> f64 {
        100.0 * self.waiting as f64 / self.all as f64
    }
}

/// What was found, by kind of loops.
#[derive(Default)]
struct Report {
    judge: CodeJudge,
    programs: u64,
    of: BTreeMap<&'static str, Tally>,
    lines: String,
}

const WAITS: &str = "waiting: own loops";
const LIBC: &str = "waiting: C library";
const GNU: &str = "waiting: GNU OpenMP";
const LLVM: &str = "waiting: LLVM OpenMP";
const WORKS: &str = "work";
/// Least part of waiting that is seen, in percent, of each kind and of all; and most of work that is taken for it.
const LEAST_SEEN: f64 = 98.0;
/// Of LLVM's OpenMP: a thread that waits calls functions without loops there, and looks for tasks.
const LEAST_SEEN_OF_LLVM: f64 = 60.0;
const MOST_WRONG: f64 = 0.5;

impl Report {
    /// Judges the instructions of one program.
    fn add(&mut self, class: &'static str, name: &str, counts: &BTreeMap<Location, u64>) {
        let (mut tally, mut other) = (Tally::default(), Vec::new());
        self.programs += 1;
        // As if minutes had passed, so that there are steps for all of it.
        self.judge.fill(Nanos::from_secs(100 * self.programs));
        for (location, count) in counts {
            let verdict =
                location.as_ref().and_then(|(path, at)| judged(&mut self.judge, path, *at));
            let waits = verdict.is_some_and(CodeVerdict::waits);
            tally.all += count;
            tally.waiting += if waits { *count } else { 0 };
            if waits == (class == WORKS) {
                other.push((count, verdict, location));
            }
        }
        self.add_tally(class, tally);
        if other.iter().map(|(count, ..)| **count).sum::<u64>() * 200 > tally.all {
            writeln!(self.lines, "{name}: {:.1} % waiting", tally.percent()).unwrap();
            for (count, verdict, location) in other {
                writeln!(self.lines, "    {count} {verdict:?} {location:x?}").unwrap();
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        other.of.iter().for_each(|(class, tally)| self.add_tally(class, *tally));
        self.lines += &other.lines;
    }

    fn add_tally(&mut self, class: &'static str, tally: Tally) {
        let sum = self.of.entry(class).or_default();
        *sum = sum.plus(tally);
    }
}

/// What is said of a thread that is seen at a place in a file.
fn judged(judge: &mut CodeJudge, path: &str, at: u64) -> Option<CodeVerdict> {
    let file = CodeFile { path: path.into(), id: None };
    let of = (Pid(i32::MAX), 1 << 40);
    let site = SampledSite { place: CodeLocation::Memory(of.0, of.1), seen: ThreadMode::Running };
    judge.judge(&Question { site, source: CodeSource::File(file, at), of })
}

/// Compiles a program of workloads/, where that compiler is there.
fn compiled(folder: &Path, compiler: &str, level: &str, name: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads").join(name);
    let program = folder.join(format!("{compiler}{level}-{}", source.file_stem()?.to_str()?));
    let mut command = Command::new(compiler);
    command.args([level, ELEMENTS, "-pthread"]);
    if name.contains("teams") {
        command.arg("-fopenmp");
    }
    let status = command.arg("-o").arg(&program).arg(&source).stderr(Stdio::null()).status();
    let is_compiled = status.is_ok_and(|status| status.success());
    let what = if compiler == "gcc" { Requirement::Compiler } else { Requirement::Clang };
    part(what.if_there(is_compiled, format_args!("{compiler} {level} does not compile {name}")))?;
    Some(program)
}

/// The kinds of a program.
fn kinds(program: &Path) -> Vec<String> {
    let out = Command::new(program).arg("list").output().unwrap();
    String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// All programs of one compiler.
fn judge_all(folder: &Path, compiler: &str) -> io::Result<Report> {
    let mut report = Report::default();
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let program = |name: &str| compiled(folder, compiler, level, name);
        let title = |kind: &str| format!("{compiler} {level} {kind}");
        let waits = program("spin/waits.c");
        for (program, kind) in waits.iter().flat_map(|p| kinds(p).into_iter().map(move |k| (p, k)))
        {
            if IN_KERNEL.contains(&&*kind) {
                continue;
            }
            let class = if IN_LIBC.contains(&&*kind) { LIBC } else { WAITS };
            report.add(class, &title(&kind), &instructions(program, &kind, "waits ")?);
        }
        let works = program("spin/works.c");
        for (program, kind) in works.iter().flat_map(|p| kinds(p).into_iter().map(move |k| (p, k)))
        {
            let found = instructions(program, &kind, "ready")?;
            report.add(WORKS, &title(&format!("works {kind}")), &found);
        }
        if let Some(program) = program("serial/serial.c") {
            for (option, class) in [("--spin", WAITS), ("--spin-lock", LIBC)] {
                let found = instructions_of_serial(&program, option)?;
                report.add(class, &title(&format!("serial {option}")), &found);
            }
        }
    }
    // clang-19 comes without an OpenMP of its own.
    let has_openmp = compiler != "clang-19";
    let teams = has_openmp.then(|| compiled(folder, compiler, "-O2", "spin/teams.c")).flatten();
    if let Some(program) = teams {
        let class = if compiler == "gcc" { GNU } else { LLVM };
        for kind in ["end", "start", "barrier", "tasks", "critical"] {
            let found = instructions(&program, kind, "waits ")?;
            report.add(class, &format!("{compiler} OpenMP {kind}"), &found);
        }
    }
    Ok(report)
}

/// Of the instructions that waiting threads run, at least 98 % are seen to wait, of each kind of loops; of those of work at most
/// 0.5 % are taken for waiting.
#[test]
fn waiting_is_seen_and_work_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let reports = std::thread::scope(|scope| {
        let one = |compiler: &'static str| scope.spawn(move || judge_all(folder, compiler));
        COMPILERS.map(one).map(|thread| thread.join().unwrap())
    });
    let mut all = Report::default();
    for report in reports {
        match report {
            Ok(report) => all.merge(&report),
            Err(why) if why.raw_os_error() == Some(libc::EPERM) => {
                skip!(Ptrace, "no thread can be run instruction by instruction: {why}");
            }
            Err(why) => panic!("{why}"),
        }
    }
    let waiting = all.of.iter().filter(|(class, _)| **class != WORKS);
    let sum = waiting.fold(Tally::default(), |sum, (_, one)| sum.plus(*one));
    let mut table = all.lines.clone();
    for (class, tally) in all.of.iter().chain([(&"waiting: all", &sum)]) {
        writeln!(table, "{class}: {:.2} % of {} instructions", tally.percent(), tally.all).unwrap();
    }
    eprintln!("{table}");
    for (class, tally) in &all.of {
        let least = if *class == LLVM { LEAST_SEEN_OF_LLVM } else { LEAST_SEEN };
        let percent = tally.percent();
        let is_right = if *class == WORKS { percent <= MOST_WRONG } else { percent >= least };
        assert!(is_right, "{class}: {percent:.2} %");
    }
    assert!(sum.percent() >= LEAST_SEEN, "all waiting: {:.2} %", sum.percent());
    assert!([WAITS, LIBC, WORKS].iter().all(|class| all.of.contains_key(class)));
}
