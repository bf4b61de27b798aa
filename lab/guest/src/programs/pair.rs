//! `pair ROUNDS`: two threads pass a byte to and fro ROUNDS times, each asleep until its partner
//! wakes it. Prints the main thread's voluntary context switches.

use super::own_tid;
use anyhow::Context as _;
use std::io::{Read as _, Write as _, pipe};

pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let rounds: usize = arguments.first().context("expected rounds")?.parse()?;
    let (mut asked, mut ask) = pipe()?;
    let (mut answered, mut answer) = pipe()?;
    let other = std::thread::spawn(move || -> anyhow::Result<()> {
        let mut byte = [0];
        while asked.read(&mut byte)? > 0 {
            answer.write_all(&byte)?;
        }
        Ok(())
    });
    for _ in 0..rounds {
        ask.write_all(&[0])?;
        answered.read_exact(&mut [0])?;
    }
    let path = format!("/proc/self/task/{}/status", own_tid()?);
    let status = std::fs::read_to_string(path)?;
    let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    println!("{}", slept.context("no count of sleeps")?.trim());
    drop(ask);
    other.join().map_err(|_| anyhow::anyhow!("the other thread has panicked"))?
}
