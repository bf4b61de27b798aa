//! Samples of real programs, and when sampling ends.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use colocate_linux::clock::now;
use colocate_linux::poll::wait_readable;
use colocate_linux::{Pid, SysError};
use colocate_machine::Nanos;
use colocate_model::Share;
use colocate_observe::sample::clock::Contents;
use colocate_observe::sample::{
    Clocks, LEAST_SAMPLES, SampleOptions, Sampler, Start, ThreadSamples,
};
use colocate_observe::sharing::AccessSampler;
use colocate_observe::spin::SpinSampler;
use colocate_observe::{LifecycleEvents, LifecycleOptions, TaskEvent};
use colocate_testing::skip::{Missing, Requirement};
use colocate_testing::{need, skip};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a test waits for anything. A loaded machine needs a second; more means that it never
/// comes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program that runs at once and is killed in the end.
struct Program(Child);

impl Program {
    fn running(command: &[&str]) -> Self {
        let mut program = Command::new(command[0]);
        program.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        Self(program.spawn().expect("bash and coreutils are there"))
    }

    /// Computes until it is killed, in few and short functions, so that decoding is quick.
    fn busy() -> Self {
        Self::running(&["md5sum", "/dev/zero"])
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id().cast_signed())
    }

    /// Kills it and takes its exit status.
    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A sampler at 1,000 Hz, so that tests are short.
fn sampler(of: &Program) -> Result<Sampler, Missing> {
    started(of, SampleOptions { rate_hz: 1_000, ..SampleOptions::here().unwrap() })
}

fn started(of: &Program, options: SampleOptions) -> Result<Sampler, Missing> {
    Sampler::start(of.pid(), Start::Now, options).map_err(|error| {
        let denied = [libc::EACCES, libc::EPERM, libc::ENOSYS];
        assert!(error.errno().is_some_and(|errno| denied.contains(&errno)), "{error}");
        Requirement::Perf.missing(error)
    })
}

/// Drains until `done` or panics.
fn drain_until(sampler: &mut Sampler, what: &str, mut done: impl FnMut(&mut Sampler) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done(sampler) {
        let alive = sampler.living();
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}; alive: {alive:?}");
        wait_readable(&sampler.fds(), Some(Duration::from_millis(20))).unwrap();
        sampler.drain();
    }
}

/// What the first thread of `of` was seen doing.
fn first_thread(sampler: &mut Sampler, of: &Program) -> ThreadSamples {
    let mine = |thread: &ThreadSamples| thread.tid == of.pid().first_thread();
    sampler.snapshot().into_iter().find(mine).expect("the thread is known")
}

fn has_enough(sampler: &mut Sampler, of: &Program) -> bool {
    first_thread(sampler, of).samples >= LEAST_SAMPLES
}

/// All samples, used or not.
fn count(threads: &[ThreadSamples]) -> u64 {
    threads.iter().map(|t| t.samples + t.unattributed + t.in_kernel).sum()
}

#[test]
fn a_snapshot_of_a_busy_program_has_a_mix() {
    let _alone = crate::alone();
    let program = Program::busy();
    let mut sampler = need!(sampler(&program));
    drain_until(&mut sampler, "enough samples", |sampler| has_enough(sampler, &program));
    let thread = first_thread(&mut sampler, &program);
    assert_eq!((thread.pid, thread.process, thread.ended), (program.pid(), 0, None));
    assert_eq!(thread.name, "md5sum");
    assert!(thread.cpu_time.is_some_and(|time| time.0 > 0), "{thread:?}");
    // MD5 is sums and rotations of words that it loads.
    let share = |share: Option<Share>| share.expect("enough samples").get();
    let mix = thread.mix;
    assert!(share(mix.int) > share(mix.load) && share(mix.load) > share(mix.float), "{thread:?}");
}

/// Waits until `lifecycle` has reported 20 creations after `time`.
fn create_twenty_after(time: Nanos, lifecycle: &mut LifecycleEvents) {
    let mut events = Vec::new();
    let later = |event: &&TaskEvent| matches!(event, TaskEvent::Created { at, .. } if *at > time);
    let deadline = Instant::now() + PATIENCE;
    while events.iter().filter(later).count() < 20 {
        assert!(Instant::now() < deadline, "no 20 creations within {PATIENCE:?}: {events:?}");
        let wait = lifecycle.poll_timeout().unwrap_or(Duration::MAX).min(Duration::from_millis(20));
        wait_readable(&lifecycle.fds(), Some(wait)).unwrap();
        lifecycle.drain(&mut events);
    }
}

#[test]
fn after_stop_creations_are_reported_without_samples() {
    let _alone = crate::alone();
    // A fork may start the time to the next sample anew: without work between, none may ever come.
    let forks_and_works = "while :; do (:); for ((i = 0; i < 2000; i++)); do :; done; done";
    let program = Program::running(&["bash", "-c", forks_and_works]);
    let mut sampler = need!(sampler(&program));
    let mut lifecycle = LifecycleEvents::watch(program.pid(), &LifecycleOptions::here().unwrap());
    drain_until(&mut sampler, "a sample", |sampler| count(&sampler.snapshot()) > 0);
    sampler.stop();
    // What another CPU was writing meanwhile may still come, but bears an earlier time.
    create_twenty_after(now() + Nanos::from_millis(100), &mut lifecycle);
    sampler.drain();
    let before = sampler.snapshot();
    create_twenty_after(now(), &mut lifecycle);
    sampler.drain();
    let after = sampler.snapshot();
    assert_eq!(count(&after), count(&before));
    assert_eq!(after.len(), before.len(), "{after:#?}");
}

#[test]
fn two_programs_in_one_sampler() {
    let _alone = crate::alone();
    let (first, second) = (Program::busy(), Program::busy());
    let mut sampler = need!(sampler(&first));
    sampler.also(second.pid(), Start::Now).unwrap();
    drain_until(&mut sampler, "enough samples of both", |sampler| {
        has_enough(sampler, &first) && has_enough(sampler, &second)
    });
    let threads = sampler.snapshot();
    let pids: Vec<Pid> = threads.iter().map(|thread| thread.pid).collect();
    assert_eq!(pids, [first.pid(), second.pid()]);
    assert_eq!(threads.iter().map(|thread| thread.process).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_process_that_is_gone() {
    let _alone = crate::alone();
    let mut gone = Program::running(&["true"]);
    gone.0.wait().unwrap();
    let is_gone = |error: SysError| error.errno() == Some(libc::ESRCH);
    let live = Program::busy();
    let mut sampler = need!(sampler(&live));
    assert!(sampler.also(gone.pid(), Start::Now).is_err_and(is_gone));
    let options = SampleOptions::here().unwrap();
    assert!(Sampler::start(gone.pid(), Start::Now, options).is_err_and(is_gone));
    // The one that lives is sampled all the same, and alone.
    drain_until(&mut sampler, "enough samples", |sampler| has_enough(sampler, &live));
    assert_eq!(sampler.snapshot().len(), 1);
}

#[test]
fn a_process_that_has_ended_but_is_not_reaped() {
    let _alone = crate::alone();
    let mut zombie = Program::busy();
    let live = Program::busy();
    let mut sampler = need!(sampler(&live));
    zombie.0.kill().unwrap();
    drain_until(&mut sampler, "an error", |sampler| {
        let error = sampler.also(zombie.pid(), Start::Now).err();
        error.is_some_and(|error| error.errno() == Some(libc::ESRCH))
    });
}

#[test]
fn ends_that_found_no_room_are_noticed() {
    let _alone = crate::alone();
    let mut program = Program::busy();
    let mut options = SampleOptions { rate_hz: 10_000, ..SampleOptions::here().unwrap() };
    options.clocks.watch.ring_pages = 1;
    let proc = options.clocks.watch.proc.clone();
    let mut sampler = need!(started(&program, options));
    // A page has room for a hundredth of what this leaves behind, unless it ran on many CPUs.
    let deadline = Instant::now() + PATIENCE;
    let used = || proc.cpu_time(program.pid(), program.pid().first_thread()).unwrap_or_default();
    while used() < Nanos::from_secs(1) {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: 1 s of CPU time");
        std::thread::sleep(Duration::from_millis(20));
    }
    program.end();
    drain_until(&mut sampler, "the end", |sampler| sampler.all_ended());
    assert!(first_thread(&mut sampler, &program).ended.is_some());
    let notes = sampler.finish().notes;
    let lost = notes.iter().any(|note| note.contains("were lost"));
    assert!(lost || !crate::counts_losses(), "{notes:?}");
}

#[test]
fn all_have_ended_after_a_kill() {
    let _alone = crate::alone();
    let (mut first, mut second) = (Program::busy(), Program::busy());
    let mut sampler = need!(sampler(&first));
    sampler.also(second.pid(), Start::Now).unwrap();
    drain_until(&mut sampler, "a sample", |sampler| count(&sampler.snapshot()) > 0);
    assert!(!sampler.all_ended());

    first.end();
    drain_until(&mut sampler, "the end of the first", |sampler| {
        first_thread(sampler, &first).ended.is_some()
    });
    assert!(!sampler.all_ended(), "the second one runs");
    second.end();
    drain_until(&mut sampler, "the end of all", |sampler| sampler.all_ended());
    let counted = sampler.finish();
    assert!(counted.complete);
    assert_eq!(counted.threads.len(), 2);
}

/// The three samplers of instruction pointers have the events of one, and each gets its samples. The events close with the
/// last sampler.
#[test]
fn three_samplers_share_their_events() {
    let _alone = crate::alone();
    need!(Requirement::X86_64.if_there(cfg!(target_arch = "x86_64"), "not on x86-64"));
    let rate_hz = 1_000;
    let mut options = SampleOptions { rate_hz, ..SampleOptions::here().unwrap() };
    let contents = [Contents::MIX, Contents::SPINNING, Contents::ACCESSES];
    options.clocks.expect(contents.map(|contents| (rate_hz, contents)).into());
    let clocks = options.clocks.clone();
    let program = Program::busy();
    let mut mix = need!(started(&program, options));
    let mut spins = SpinSampler::new(rate_hz, &clocks).unwrap();
    let opened = spins.events();
    let mut accesses = AccessSampler::new(rate_hz, &clocks).unwrap();
    spins.also(program.pid(), Start::Now).unwrap();
    accesses.also(program.pid(), Start::Now).unwrap();
    assert!(opened > 0);
    assert_eq!(spins.events(), opened);
    let (mut questions, mut groups) = (0, 0);
    drain_until(&mut mix, "samples of each kind", |mix| {
        spins.drain();
        questions += spins.questions().len();
        accesses.drain(|_| true);
        groups += accesses.take_groups().len();
        questions > 0 && groups > 0 && has_enough(mix, &program)
    });
    mix.stop();
    assert_eq!(spins.events(), opened, "the others go on");
    accesses.forget(program.pid());
    assert_eq!(spins.events(), opened);
    spins.forget(program.pid());
    assert_eq!(spins.events(), 0);
}

/// A process that has inherited the events of its creator needs none of its own, and keeps them when the creator is forgotten.
#[test]
fn inherited_events_are_shared() {
    let _alone = crate::alone();
    let clocks = Clocks::here().unwrap();
    let mut first = match SpinSampler::new(1_000, &clocks) {
        Ok(sampler) => sampler,
        Err(why) => skip!(Perf, "{why}"),
    };
    let mut second = SpinSampler::new(1_000, &clocks).unwrap();
    let script = "read x; md5sum /dev/zero & echo $!; wait";
    let mut shell = Command::new("sh");
    let mut shell = Program(
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap(),
    );
    first.also_alone(shell.pid()).unwrap();
    let opened = first.events();
    drop(shell.0.stdin.take());
    let mut line = String::new();
    BufReader::new(shell.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let child = Pid(line.trim().parse().unwrap());
    second.also_alone(child).unwrap();
    assert_eq!(first.events(), opened, "no second event on the child");
    first.forget(shell.pid());
    assert_eq!(second.events(), opened);
    let deadline = Instant::now() + PATIENCE;
    while second.questions().is_empty() {
        assert!(Instant::now() < deadline, "no sample of the child within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
        second.drain();
    }
    drop(second);
    assert_eq!(first.events(), 0);
    Command::new("kill").arg(child.to_string()).status().unwrap();
}
