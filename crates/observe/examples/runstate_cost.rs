//! What it costs to ask for the run state of 1,000 threads, per thread: their sums, their states, or only whether any of
//! them has run, by the clock of their process.
//!
//! `cargo run --release -p colocate-observe --example runstate_cost [THREADS]`
//!
//! Both ways of reading take turns in one run, so that whatever else the machine does disturbs both;
//! the least of the rounds is printed, since nothing makes a round faster than it is. Each way is
//! measured twice: right after itself, and after other work has taken the kernel's structures out of
//! the nearest caches, as between two samples that are far apart.

#![allow(clippy::print_stdout, clippy::cast_precision_loss)] // it prints a measurement

use colocate_observe::Pid;
use colocate_observe::runstate::RunState;
use colocate_observe::sys::process_time;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 200;

fn main() -> std::io::Result<()> {
    let threads: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000);
    let end = park(threads)?;
    let pid = Pid(std::process::id().cast_signed());
    let mut kept = RunState::watch(pid)?;
    let mut opened = RunState::watch_at(Path::new("/proc"), pid, 0)?;
    let count = kept.len();
    let mut least = [Duration::MAX; 7];
    let stats = stat_files()?;
    for _ in 0..ROUNDS {
        let refresh = time(|| kept.refresh());
        let took = [&mut kept, &mut opened].map(|state| {
            let cold = time(|| seen(state));
            [cold, time(|| seen(state))]
        });
        let states = time(|| stats.iter().for_each(|path| drop(std::fs::read(path))));
        let clock = time(|| assert!(process_time(pid).is_some()));
        let took = [took[0][0], took[0][1], took[1][0], took[1][1], refresh, states, clock];
        for (least, took) in least.iter_mut().zip(took) {
            *least = took.min(*least);
        }
    }
    let per_thread = |span: Duration| span.as_secs_f64() * 1e6 / count as f64;
    let [kept_cold, kept, opened_cold, opened, refresh, states, clock] = least.map(per_thread);
    println!("{count} threads, least of {ROUNDS} rounds, µs per thread");
    println!("                   repeated  after other work");
    println!("file kept open     {kept:8.3}  {kept_cold:.3}");
    println!("open, read, close  {opened:8.3}  {opened_cold:.3}");
    println!("ratio              {:8.1}  {:.1}", opened / kept, opened_cold / kept_cold);
    println!("find new threads   {refresh:8.3}");
    println!("state (stat)       {states:8.3}");
    println!("process clock      {clock:8.3}");
    end.wait();
    Ok(())
}

/// The files with the states of this process's threads.
fn stat_files() -> std::io::Result<Vec<std::path::PathBuf>> {
    let tasks = std::fs::read_dir("/proc/self/task")?;
    tasks.map(|task| Ok(task?.path().join("stat"))).collect()
}

/// One sample, and its result.
fn seen(state: &mut RunState) {
    std::hint::black_box(state.sample().active());
}

fn time(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// Starts `count` threads that sleep until the barrier that is returned is passed.
fn park(count: usize) -> std::io::Result<Arc<Barrier>> {
    let end = Arc::new(Barrier::new(count + 1));
    for _ in 0..count {
        let end = end.clone();
        std::thread::Builder::new().stack_size(64 << 10).spawn(move || end.wait())?;
    }
    Ok(end)
}
