//! Which of a program's time its threads only waited in a loop, by samples, and where.
//!
//! `cargo run --release -p colocate-observe --example spins [-r HZ] -- CMD…`
//!
//! Prints a line for each thread, then some of the places where they waited: the verdict, file and offset.

#![allow(clippy::print_stdout)] // it prints a measurement

use colocate_linux::Pid;
use colocate_observe::pmu::Start;
use colocate_observe::sample::Clocks;
use colocate_observe::spin::judge::{CodeJudge, CodeSource};
use colocate_observe::spin::loops::CodeVerdict;
use colocate_observe::spin::{DEFAULT_RATE_HZ, Share, SpinSampler};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

/// Places that are printed.
const PLACES: usize = 12;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut rate = DEFAULT_RATE_HZ;
    if words.first().is_some_and(|word| word == "-r") {
        rate = words.get(1).ok_or("expected samples a second after -r")?.parse()?;
        words.drain(..2);
    }
    words.retain(|word| word != "--");
    let (name, arguments) = words.split_first().ok_or("expected a program, found nothing")?;
    let mut sampler = SpinSampler::new(rate, &Clocks::here()?)?;
    let mut child = Command::new(name).args(arguments).spawn()?;
    sampler.also(Pid(child.id().cast_signed()), Start::Now)?;
    let (mut judge, mut places) = (CodeJudge::default(), BTreeMap::new());
    let mut threads: BTreeMap<i32, Share> = BTreeMap::new();
    let status = loop {
        let ended = child.try_wait()?;
        std::thread::sleep(Duration::from_millis(5));
        sampler.drain();
        for question in sampler.questions() {
            let verdict = judge.judge(&question);
            places.insert(place(&question.source), verdict);
            sampler.learn(question.site, verdict);
        }
        for (tid, share) in sampler.take() {
            let sum = threads.entry(tid.0).or_default();
            sum.waits += share.waits;
            sum.works += share.works;
            sum.unknown += share.unknown;
        }
        if let Some(status) = ended {
            break status;
        }
    };
    for (tid, Share { waits, works, unknown }) in &threads {
        println!("thread {tid}: waits {waits} works {works} unknown {unknown}");
    }
    let waiting = places.iter().filter(|(_, v)| v.is_some_and(CodeVerdict::waits));
    for (place, verdict) in waiting.take(PLACES) {
        println!("{verdict:?} at {place}");
    }
    println!("{status}");
    Ok(())
}

fn place(source: &CodeSource) -> String {
    match source {
        CodeSource::File(file, offset_b) => format!("{}+{offset_b:#x}", file.path.display()),
        CodeSource::Memory { ip, .. } => format!("memory {ip:#x}"),
    }
}
