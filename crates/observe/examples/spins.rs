//! Which of a program's time its threads only waited in a loop, by samples, and where.
//!
//! `cargo run --release -p colocate-observe --example spins [-r HZ] -- CMD…`
//!
//! Prints a line for the whole, then the places with the most samples: how many, the verdict, file and offset.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::cast_precision_loss)]

use colocate_observe::Pid;
use colocate_observe::births::Options;
use colocate_observe::pmu::Start;
use colocate_observe::spin::judge::{Judge, Source};
use colocate_observe::spin::loops::Verdict;
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
    let mut sampler = SpinSampler::new(rate, &Options::here()?)?;
    let mut child = Command::new(name).args(arguments).spawn()?;
    sampler.also(Pid(child.id().cast_signed()), Start::Now)?;
    let (mut judge, mut all) = (Judge::default(), Share::default());
    let mut places: BTreeMap<String, (u32, Option<Verdict>)> = BTreeMap::new();
    let status = loop {
        let ended = child.try_wait()?;
        std::thread::sleep(Duration::from_millis(5));
        sampler.drain();
        for question in sampler.questions() {
            let verdict = judge.judge(&question.source, question.yields);
            let place = match &question.source {
                Source::File(path, offset_b) => format!("{}+{offset_b:#x}", path.display()),
                Source::Memory { ip, .. } => format!("memory {ip:#x}"),
            };
            places.insert(place, (0, verdict));
            sampler.learn(question.site, verdict);
        }
        for share in sampler.take().into_values() {
            all.waits += share.waits;
            all.works += share.works;
            all.unknown += share.unknown;
        }
        if let Some(status) = ended {
            break status;
        }
    };
    println!("waits {} works {} unknown {} status {status}", all.waits, all.works, all.unknown);
    let mut verdicts: BTreeMap<Option<Verdict>, usize> = BTreeMap::new();
    places.values().for_each(|(_, verdict)| *verdicts.entry(*verdict).or_default() += 1);
    println!("places: {verdicts:?}");
    for (place, (_, verdict)) in
        places.iter().filter(|(_, (_, v))| v.is_some_and(Verdict::waits)).take(PLACES)
    {
        println!("{verdict:?} {place}");
    }
    Ok(())
}
