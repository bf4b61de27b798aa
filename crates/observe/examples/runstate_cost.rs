//! What it costs to read the run state of 1,000 threads, per thread: their sums, their states, or only whether any of
//! them has run, by the clock of their process.
//!
//! `cargo run --release -p colocate-observe --example runstate_cost [THREADS]`
//!
//! The ways take turns in one run, so that whatever else the machine does disturbs all; the least of the rounds is
//! printed, since nothing makes a round faster than it is. The sums are read twice: right after themselves, and after
//! other work has taken the kernel's structures out of the nearest caches, as between two polls that are far apart.

#![allow(clippy::print_stdout)] // it prints a measurement

use colocate_linux::clock::process_time;
use colocate_linux::proc::Proc;
use colocate_linux::run_time::RunTime;
use colocate_linux::{Pid, Tid};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 200;

fn main() -> std::io::Result<()> {
    let threads: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000);
    let end = Arc::new(Barrier::new(threads + 1));
    for _ in 0..threads {
        let end = end.clone();
        std::thread::Builder::new().stack_size(64 << 10).spawn(move || end.wait())?;
    }
    let (proc, pid) = (Path::new("/proc"), Pid(std::process::id().cast_signed()));
    let tids: Vec<Tid> = Proc::default().tasks(pid)?;
    let open = |tid: &Tid| RunTime::open(proc, pid, *tid);
    let kept = tids.iter().map(open).collect::<std::io::Result<Vec<_>>>()?;
    let read = || kept.iter().for_each(|time| assert!(time.read_both().is_some()));
    let stat = |tid: &Tid| drop(std::fs::read(format!("/proc/{pid}/task/{tid}/stat")));
    let mut least = [Duration::MAX; 5];
    for _ in 0..ROUNDS {
        let took = [
            time(read),
            time(read),
            time(|| tids.iter().for_each(|tid| assert!(open(tid).is_ok()))),
            time(|| tids.iter().for_each(stat)),
            time(|| assert!(process_time(pid).is_some())),
        ];
        for (least, took) in least.iter_mut().zip(took) {
            *least = took.min(*least);
        }
    }
    let per_thread = |span: Duration| span.as_secs_f64() * 1e6 / tids.len() as f64;
    let [cold, kept, opened, states, clock] = least.map(per_thread);
    println!("{} threads, least of {ROUNDS} rounds, µs per thread", tids.len());
    println!("file kept open     {kept:8.3}  after other work {cold:.3}");
    println!("open, read, close  {opened:8.3}  ratio {:.1}", opened / kept);
    println!("state (stat)       {states:8.3}");
    println!("process clock      {clock:8.3}");
    end.wait();
    Ok(())
}

fn time(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}
