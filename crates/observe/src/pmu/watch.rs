//! Counts each thread of running programs, from its creation to its exit.

use super::counters::{Counters, OpenCounters};
use super::extras::{Events, Extras};
use super::open::Start;
use crate::event::TaskEvent;
use crate::lifecycle::{LifecycleEvents, Options};
use colocate_linux::SysError;
use colocate_linux::clock::now;
use colocate_linux::limits::Descriptors;
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use colocate_model::{Mix, Share, ThreadProfile};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Counts of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// Threads, in the order of creation.
    pub threads: Vec<ThreadProfile>,
    /// Duration of the watch.
    pub watched: Nanos,
    /// Whether all threads had exited.
    pub complete: bool,
    /// Notes for readers of the figures, one sentence each.
    pub notes: Vec<String>,
}

/// Thread, alive or exited.
#[derive(Debug)]
struct Thread {
    pid: Pid,
    name: String,
    created: Nanos,
    ended: Option<Nanos>,
    found: Found,
}

#[derive(Debug)]
enum Found {
    /// Counters are open.
    Open(OpenCounters),
    /// Totals at the thread's exit, and its CPU time in ns.
    Read(Box<super::scale::Totals>, u64),
    /// Not counted.
    Nothing,
}

/// Descriptors reserved for the rest of the program: files, pipes and scans of `/proc`. Chosen.
const RESERVE: usize = 64;

/// Counts every thread of a process and of its descendants.
#[derive(Debug)]
pub struct Watch {
    counters: Counters,
    /// Limit of the counters' descriptors.
    most_open: usize,
    /// Threads with open counters.
    open: usize,
    lifecycle: LifecycleEvents,
    proc: Proc,
    began: Nanos,
    /// Threads, in the order of reports.
    threads: Vec<Thread>,
    /// Index in `threads` of each living thread.
    alive: HashMap<Tid, usize>,
    /// Processes, in the order of reports.
    processes: Vec<Pid>,
    /// Threads that exited before their counters were open.
    too_short: u64,
    /// Threads not counted for another reason, and the first such reason.
    refused: u64,
    reason: Option<SysError>,
    /// Threads whose counters the kernel has taken away.
    withdrawn: u64,
    lost: u64,
    events: Vec<TaskEvent>,
}

impl Watch {
    /// Counts process `root` and all its future threads and children.
    ///
    /// With [`Start::AtExec`], `root` is a child that waits before its exec, and nothing before the
    /// exec is counted. With [`Start::Now`] it runs already, and its threads are counted from now
    /// on.
    ///
    /// # Errors
    /// If no thread can be counted: as [`Counters::open`].
    pub fn start(
        counters: Counters,
        root: Pid,
        start: Start,
        options: &Options,
    ) -> Result<Self, SysError> {
        let lifecycle = LifecycleEvents::watch(root, options);
        // The soft limit is raised when descriptors run out.
        let hard = usize::try_from(Descriptors::now().hard).unwrap_or(usize::MAX);
        let mut watch = Self {
            counters,
            most_open: hard.saturating_sub(RESERVE + lifecycle.fds().len()),
            open: 0,
            lifecycle,
            proc: options.proc.clone(),
            began: now(),
            threads: Vec::new(),
            alive: HashMap::new(),
            processes: Vec::new(),
            too_short: 0,
            refused: 0,
            reason: None,
            withdrawn: 0,
            lost: 0,
            events: Vec::new(),
        };
        watch.take_events(start);
        let counting = watch.threads.iter().any(|thread| matches!(thread.found, Found::Open(_)));
        match watch.reason.take_if(|_| !counting) {
            Some(reason) => Err(reason),
            None => Ok(watch),
        }
    }

    /// Descriptors that become readable when [`Watch::pump`] has work.
    #[must_use]
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.lifecycle.fds()
    }

    /// Longest sleep of a reader; `None` if [`Watch::fds`] report all events.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.lifecycle.poll_timeout()
    }

    /// Whether every watched thread has exited.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.lifecycle.all_ended()
    }

    /// Opens counters of new threads and reads those of exited threads. Never waits.
    pub fn pump(&mut self) {
        self.take_events(Start::Now);
    }

    fn take_events(&mut self, start: Start) {
        let mut events = std::mem::take(&mut self.events);
        self.lifecycle.drain(&mut events);
        for event in events.drain(..) {
            self.take(event, start);
        }
        self.events = events;
    }

    fn take(&mut self, event: TaskEvent, start: Start) {
        match event {
            TaskEvent::Created { at, pid, tid, parent_tid, .. } => {
                self.add_thread(at, pid, tid, parent_tid, start);
            }
            TaskEvent::Named { tid, name, .. } => {
                if let Some(place) = self.alive.get(&tid) {
                    self.threads[*place].name = name;
                }
            }
            TaskEvent::Ended { at, pid, tid } => {
                if let Some(place) = self.alive.remove(&tid) {
                    self.ended(place, at, pid, tid);
                }
            }
            TaskEvent::Lost { count } => self.lost += count,
            // Threads are reported here even in a storm of creations.
            TaskEvent::Storm { .. } => {}
        }
    }

    fn ended(&mut self, place: usize, at: Nanos, pid: Pid, tid: Tid) {
        if self.lives_on(pid, tid) {
            self.withdrawn += 1;
            self.open -= usize::from(matches!(self.threads[place].found, Found::Open(_)));
            self.threads[place].found = Found::Nothing;
        } else {
            self.threads[place].ended = Some(at);
            self.read(place);
        }
    }

    /// Whether a process lives on although the kernel reported the exit of its last thread. The
    /// kernel reports this, too, when it removes all events from a process that gains privileges,
    /// or that executes a file its user may not read. Such a process may no longer be watched, so
    /// its counts are incomplete.
    fn lives_on(&self, pid: Pid, tid: Tid) -> bool {
        // If other threads live, one of them may have taken over this TID by an exec.
        let has_others = self.alive.values().any(|place| self.threads[*place].pid == pid);
        if tid != pid.first_thread() || has_others {
            return false;
        }
        self.proc.is_exiting(pid, tid) == Some(false)
    }

    fn add_thread(&mut self, at: Nanos, pid: Pid, tid: Tid, parent: Tid, start: Start) {
        // A new thread has its creator's name until it sets its own.
        let creator = self.alive.get(&parent).map(|place| self.threads[*place].name.clone());
        let name = creator.or_else(|| self.proc.name(pid, tid)).unwrap_or_default();
        let found = match self.open(tid, start) {
            Ok(open) => {
                self.open += 1;
                Found::Open(open)
            }
            Err(error) if error.errno() == Some(libc::ESRCH) => {
                self.too_short += 1;
                Found::Nothing
            }
            Err(error) => {
                self.refused += 1;
                self.reason.get_or_insert(error);
                Found::Nothing
            }
        };
        if !self.processes.contains(&pid) {
            self.processes.push(pid);
        }
        self.alive.insert(tid, self.threads.len());
        self.threads.push(Thread { pid, name, created: at, ended: None, found });
    }

    /// Opens the counters on `tid`; without free descriptors raises the limit and retries. The
    /// programs have been started by then and do not inherit the limit.
    fn open(&self, tid: Tid, start: Start) -> Result<OpenCounters, SysError> {
        if (self.open + 1) * self.counters.descriptors() > self.most_open {
            return Err(SysError::of("perf_event_open", libc::EMFILE));
        }
        match self.counters.open(tid, start) {
            Err(error) if error.errno() == Some(libc::EMFILE) => {
                Descriptors::raise()?;
                self.counters.open(tid, start)
            }
            done => done,
        }
    }

    /// Reads a thread's counters and closes them.
    fn read(&mut self, place: usize) {
        let thread = &mut self.threads[place];
        if let Found::Open(open) = &thread.found {
            self.open -= 1;
            thread.found = match self.counters.read(open) {
                Ok((totals, on_cpu_ns)) => Found::Read(Box::new(totals), on_cpu_ns),
                Err(error) => {
                    self.refused += 1;
                    self.reason.get_or_insert(error);
                    Found::Nothing
                }
            };
        }
    }

    /// Reads the counters of living threads; returns all counts.
    #[must_use]
    pub fn finish(self) -> Counted {
        self.finish_all().0
    }

    /// As [`Watch::finish`], with each thread's other components of demand vectors, and their
    /// events.
    #[must_use]
    pub fn finish_all(mut self) -> (Counted, Vec<Extras>, Events) {
        self.pump();
        let complete = self.all_ended() && self.withdrawn == 0;
        for place in 0..self.threads.len() {
            self.read(place);
        }
        let watched = now().saturating_sub(self.began);
        let notes = self.notes();
        let mut all: Vec<(ThreadProfile, Extras)> = self
            .threads
            .iter()
            .map(|thread| {
                let process = self.processes.iter().position(|pid| *pid == thread.pid);
                let process = u32::try_from(process.unwrap_or(0)).unwrap_or(u32::MAX);
                thread.profile(process, self.began)
            })
            .collect();
        all.sort_by_key(|(thread, _)| thread.start_ns);
        let (mut threads, extras): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        for (order, thread) in (0..).zip(&mut threads) {
            thread.order = order;
        }
        (Counted { threads, watched, complete, notes }, extras, self.counters.events())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.counters.notes.clone();
        if self.too_short > 0 {
            notes.push(format!(
                "threads that ended before they could be counted, whose figures are unknown: {}",
                self.too_short
            ));
        }
        if let Some(reason) = &self.reason {
            notes.push(format!("threads that could not be counted: {} ({reason})", self.refused));
        }
        if self.withdrawn > 0 {
            notes.push(format!(
                "processes that may not be watched since they gained privileges or executed \
                 what their user may not read, whose figures are unknown: {}",
                self.withdrawn
            ));
        }
        if self.lost > 0 {
            notes.push(format!("lost records of thread creations and ends: {}", self.lost));
        }
        if let Some(why) = self.lifecycle.without_perf() {
            notes.push(format!(
                "thread creation is detected by scanning /proc, because {why}: threads are counted late"
            ));
        }
        notes.extend(self.scaling());
        notes
    }

    /// Notes on threads with multiplexed or missing counters.
    fn scaling(&self) -> Vec<String> {
        let read = self.threads.iter().filter_map(|thread| match &thread.found {
            Found::Read(totals, _) => Some(totals),
            _ => None,
        });
        let mut notes = Vec::new();
        let parts: Vec<Share> = read.clone().filter_map(|totals| totals.scaled).collect();
        if let Some(least) = parts.iter().copied().min_by(|a, b| a.get().total_cmp(&b.get())) {
            notes.push(format!(
                "threads whose instructions and cycles are scaled, since counters took turns: {} \
                 (counted for {least} of their time or more)",
                parts.len()
            ));
        }
        let unknown = read.filter(|totals| totals.instructions.is_none()).count();
        if unknown > 0 {
            notes.push(format!(
                "threads whose figures are unknown, since others held the counters nearly all of \
                 their time: {unknown}"
            ));
        }
        notes
    }
}

impl Thread {
    fn profile(&self, process: u32, began: Nanos) -> (ThreadProfile, Extras) {
        let (totals, on_cpu_ns) = match &self.found {
            Found::Read(totals, on_cpu_ns) => (**totals, Some(*on_cpu_ns)),
            Found::Open(_) | Found::Nothing => Default::default(),
        };
        let profile = ThreadProfile {
            order: 0,
            process,
            name: self.name.clone(),
            start_ns: self.created.saturating_sub(began),
            end_ns: self.ended.map(|ended| ended.saturating_sub(began)),
            cpu_time_ns: on_cpu_ns.map(Nanos),
            instructions: totals.instructions,
            cycles: totals.cycles,
            samples: None,
            mix: if totals.instructions == Some(0) { Mix::default() } else { totals.mix },
        };
        (profile, totals.extras)
    }
}

#[allow(unsafe_code)] // the child asks for small pages
#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::ring::page_size;
    use crate::pmu::open::tests::touch;
    use crate::pmu::plan::Role;
    use colocate_linux::poll::wait_readable;
    use colocate_testing::skip::{Missing, Requirement};
    use colocate_testing::{LIMIT, Limit, need, within};
    use perf_event_open_sys::bindings as c;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};

    /// Pages that worker `i` of the child touches.
    fn pages(i: usize) -> usize {
        300 * (i + 1)
    }

    const WORKERS: usize = 6;

    /// The program that the tests watch: workers that wait for a line on standard input, then
    /// touch their pages.
    #[test]
    #[ignore = "a program that the other tests start"]
    fn workers() {
        // SAFETY: takes no pointer.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
        let (doors, threads): (Vec<_>, Vec<_>) = (0..WORKERS)
            .map(|i| {
                let (door, wait) = std::sync::mpsc::channel::<()>();
                let name = format!("worker-{i}");
                let body = move || {
                    let _ = wait.recv();
                    touch(pages(i) * page_size());
                };
                (door, std::thread::Builder::new().name(name).spawn(body).unwrap())
            })
            .unzip();
        println!("ready");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        drop(doors);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    /// The program, held by a shell until a first line; a second one lets the workers go.
    fn held() -> Child {
        Command::new("sh")
            .args(["-c", "read go; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "pmu::watch::tests::workers", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn faults_and_time() -> Counters {
        Counters::of_software(&[
            (Role::Instructions, u64::from(c::PERF_COUNT_SW_PAGE_FAULTS)),
            (Role::Cycles, u64::from(c::PERF_COUNT_SW_TASK_CLOCK)),
        ])
    }

    fn pump_until(watch: &mut Watch, what: &str, done: impl Fn(&Watch) -> bool) {
        let _limit = Limit::start(LIMIT, what);
        while !done(watch) {
            wait_readable(&watch.fds(), watch.poll_timeout()).unwrap();
            watch.pump();
        }
    }

    /// Waits until the program has printed that its workers wait.
    fn wait_ready(child: &mut Child) {
        let out = BufReader::new(child.stdout.as_mut().unwrap());
        let _limit = Limit::start(LIMIT, "a line of the program with \"ready\"");
        assert!(out.lines().any(|line| line.unwrap().contains("ready")));
    }

    fn worker(counted: &Counted, i: usize) -> &ThreadProfile {
        let name = format!("worker-{i}");
        counted.threads.iter().find(|thread| thread.name == name).unwrap()
    }

    fn check(counted: &Counted) {
        assert!(counted.complete);
        for (order, thread) in (0..).zip(&counted.threads) {
            assert_eq!(thread.order, order);
            assert!(thread.end_ns.is_some());
        }
        for i in 0..WORKERS {
            let (thread, least) = (worker(counted, i), pages(i) as u64);
            let faults = thread.instructions.unwrap();
            // Its own pages, and some for its stack; not those of a busier worker.
            assert!((least..least + 250).contains(&faults), "worker {i}: {faults} faults");
            assert!(thread.cycles.unwrap() > 0 && thread.cpu_time_ns.unwrap() > Nanos(0));
            assert_eq!(thread.mix, Mix::default());
        }
    }

    /// A kernel that permits events.
    fn perf() -> Result<(), Missing> {
        let tried = faults_and_time().open(Tid(0), Start::Now);
        tried.map(drop).map_err(|why| Requirement::Perf.missing(why))
    }

    #[test]
    fn each_thread_of_a_launched_program_is_counted_by_itself() {
        need!(perf());
        let mut child = held();
        let pid = Pid(child.id().cast_signed());
        let options = Options::here().unwrap();
        let mut watch = Watch::start(faults_and_time(), pid, Start::AtExec, &options).unwrap();
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let all_named = |watch: &Watch| {
            let named = |thread: &&Thread| thread.name.starts_with("worker-");
            watch.threads.iter().filter(named).count() == WORKERS
        };
        pump_until(&mut watch, "names of all workers", all_named);
        wait_ready(&mut child);
        child.stdin.as_mut().unwrap().write_all(b"work\n").unwrap();
        pump_until(&mut watch, "the end of all threads", Watch::all_ended);
        assert!(within("the end of the program", || child.wait()).unwrap().success());
        let counted = watch.finish();
        check(&counted);
        // The first thread was counted from its exec on.
        assert!(counted.threads[0].instructions.unwrap() > 0);
        assert_eq!(counted.notes, [""; 0]);
    }

    #[test]
    fn a_running_program_is_counted_from_here_on() {
        need!(perf());
        let mut child = held();
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        wait_ready(&mut child);
        let options = Options::here().unwrap();
        let pid = Pid(child.id().cast_signed());
        let mut watch = Watch::start(faults_and_time(), pid, Start::Now, &options).unwrap();
        assert!(watch.threads.len() > WORKERS);
        child.stdin.as_mut().unwrap().write_all(b"work\n").unwrap();
        pump_until(&mut watch, "the end of all threads", Watch::all_ended);
        within("the end of the program", || child.wait()).unwrap();
        check(&watch.finish());
    }

    #[test]
    fn a_program_that_is_stopped_being_watched_is_incomplete() {
        need!(perf());
        let mut child = held();
        let options = Options::here().unwrap();
        let pid = Pid(child.id().cast_signed());
        let watch = Watch::start(faults_and_time(), pid, Start::Now, &options).unwrap();
        let counted = watch.finish();
        assert!(!counted.complete);
        assert_eq!(counted.threads.len(), 1);
        assert_eq!(counted.threads[0].end_ns, None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_thread_that_is_gone_already_is_unknown_not_zero() {
        need!(perf());
        // Not this process, whose other tests' threads come and go.
        let mut child = held();
        let pid = Pid(child.id().cast_signed());
        let options = Options { without_perf: true, ..Options::here().unwrap() };
        let mut watch = Watch::start(faults_and_time(), pid, Start::Now, &options).unwrap();
        let (at, tid) = (now(), Tid(i32::MAX));
        let (parent_pid, parent_tid, found) = (pid, tid, false);
        let created = TaskEvent::Created { at, pid, tid, parent_pid, parent_tid, found };
        watch.take(created, Start::Now);
        watch.take(TaskEvent::Ended { at, pid, tid }, Start::Now);
        let counted = watch.finish();
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = counted.threads.iter().find(|thread| thread.end_ns.is_some()).unwrap();
        assert_eq!((gone.instructions, gone.cycles, gone.cpu_time_ns), (None, None, None));
        let note = "threads that ended before they could be counted, whose figures are unknown: 1";
        assert_eq!(counted.notes, [note]);
    }

    /// A shell executes a copy of itself that its user may run and not read. That works for a while.
    #[test]
    fn a_process_that_may_not_be_watched_any_more_is_unknown() {
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::process::CommandExt;
        need!(perf());
        let copy = std::env::temp_dir().join(format!("colocate-unreadable-{}", std::process::id()));
        std::fs::copy("/bin/sh", &copy).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o111)).unwrap();
        let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done; read end";
        let mut command = Command::new("sh");
        command.args(["-c", "read go; exec \"$0\" -c \"$1\"", copy.to_str().unwrap(), script]);
        // SAFETY: takes no pointer.
        if unsafe { libc::geteuid() } == 0 {
            // Root may read all; this is another user.
            command.uid(65_534).gid(65_534);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        let options = Options::here().unwrap();
        let mut watch = Watch::start(faults_and_time(), pid, Start::AtExec, &options).unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"go\n").unwrap();
        let mut said = String::new();
        let mut output = BufReader::new(child.stdout.as_mut().unwrap());
        within("the line of the copied shell", || output.read_line(&mut said)).unwrap();
        let _ = std::fs::remove_file(&copy);
        watch.pump();
        let counted = watch.finish();
        input.write_all(b"end\n").unwrap();
        within("the end of the copied shell", || child.wait()).unwrap();
        assert_eq!(said, "done\n");
        let thread = &counted.threads[0];
        assert_eq!((thread.instructions, thread.cycles, thread.cpu_time_ns), (None, None, None));
        assert_eq!((thread.end_ns, counted.complete), (None, false));
        let says = |note: &String| note.contains("gained privileges") && note.ends_with(": 1");
        assert!(counted.notes.iter().any(says), "{:?}", counted.notes);
    }

    /// Counts more threads of this process than descriptors allow at first.
    fn count_many() -> Counted {
        let soft = usize::try_from(Descriptors::now().soft).unwrap();
        let threads = soft / 2 + 20;
        let end = std::sync::Arc::new(std::sync::Barrier::new(threads + 1));
        let wait = |_| {
            let end = end.clone();
            let small = std::thread::Builder::new().stack_size(64 << 10);
            small.spawn(move || end.wait()).unwrap()
        };
        let all: Vec<_> = (0..threads).map(wait).collect();
        let me = Pid(std::process::id().cast_signed());
        let options = Options { without_perf: true, ..Options::here().unwrap() };
        let counters = faults_and_time();
        assert!(counters.descriptors() * threads > soft);
        let watch = Watch::start(counters, me, Start::Now, &options);
        end.wait();
        assert!(all.into_iter().all(|thread| thread.join().is_ok()));
        watch.unwrap().finish()
    }

    #[test]
    #[ignore = "run by too_few_descriptors, with a low soft limit"]
    fn many_threads_below_the_hard_limit() {
        let counted = count_many();
        let all = counted.threads.iter().all(|thread| thread.instructions.is_some());
        assert!(all, "{:?}", counted.notes);
    }

    #[test]
    #[ignore = "run by too_few_descriptors, with a low hard limit"]
    fn many_threads_beyond_the_hard_limit() {
        let counted = count_many();
        let unknown = counted.threads.iter().filter(|t| t.instructions.is_none()).count();
        assert!(unknown > 0 && unknown < counted.threads.len());
        let says = |note: &String| note.contains("could not be counted") && note.contains("files");
        assert!(counted.notes.iter().any(says), "{:?}", counted.notes);
    }

    #[test]
    fn too_few_descriptors() {
        need!(perf());
        let limit = Descriptors::now().hard.min(200);
        for (option, name) in [("-S", "below"), ("", "beyond")] {
            let test = format!("pmu::watch::tests::many_threads_{name}_the_hard_limit");
            let done = Command::new("sh")
                .args(["-c", &format!("ulimit {option} -n {limit} && exec \"$0\" \"$@\"")])
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", &test, "--ignored", "--nocapture"])
                .output()
                .unwrap();
            let said =
                String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success() && said.contains("1 passed"), "{said}");
        }
    }

    #[test]
    fn what_cannot_be_counted_is_an_error_at_the_start() {
        let nonsense = Counters::of_software(&[(Role::Instructions, 9_999)]);
        let options = Options::here().unwrap();
        let me = Pid(std::process::id().cast_signed());
        let error = Watch::start(nonsense, me, Start::Now, &options).unwrap_err();
        assert!(error.errno().is_some(), "{error}");
    }
}
