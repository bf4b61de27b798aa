//! `turns PATTERN THREADS`: threads that pass on tokens by pipes, each asleep until it has a token,
//! until the program is killed.
//!
//! - `pairs`: threads *i* and *i* + THREADS / 2 pass a token to and fro.
//! - `ring`: one token goes round.
//! - `star`: thread 0 passes the token to each other thread in turn and gets it back.
//! - `all`: each thread passes the token to each other thread in turn.

use super::lives;
use anyhow::{Context as _, ensure};
use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::sync::Arc;

pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let [pattern, threads] = arguments else { anyhow::bail!("expected a pattern and threads") };
    let threads: usize = threads.parse()?;
    ensure!(threads >= 2 && threads.is_multiple_of(2), "expected an even number of threads");
    let next = next_of(pattern, threads).context("expected pairs, ring, star or all")?;
    let pipes = (0..threads).map(|_| pipe()).collect::<Result<Vec<_>, _>>()?;
    let (readers, writers): (Vec<PipeReader>, Vec<PipeWriter>) = pipes.into_iter().unzip();
    let writers = Arc::new(writers);
    for (own, mut reader) in readers.into_iter().enumerate() {
        let writers = Arc::clone(&writers);
        let next = Arc::clone(&next);
        std::thread::spawn(move || -> anyhow::Result<()> {
            for turn in 0.. {
                reader.read_exact(&mut [0])?;
                (&writers[next(own, turn)]).write_all(&[0])?;
            }
            Ok(())
        });
    }
    // First tokens: one per pair, else a single token.
    let begin = if pattern == "pairs" { threads / 2 } else { 1 };
    for writer in &writers[..begin] {
        (&*writer).write_all(&[0])?;
    }
    lives()
}

/// Receiver of a thread's token: a function of the thread and the number of its turn.
pub(super) type TokenReceiver = Arc<dyn Fn(usize, usize) -> usize + Send + Sync>;

/// The function of a pattern; `None` if the pattern is unknown.
pub(super) fn next_of(pattern: &str, threads: usize) -> Option<TokenReceiver> {
    Some(match pattern {
        "pairs" => Arc::new(move |own, _| (own + threads / 2) % threads),
        "ring" => Arc::new(move |own, _| (own + 1) % threads),
        "star" => Arc::new(move |own, turn| if own == 0 { 1 + turn % (threads - 1) } else { 0 }),
        "all" => Arc::new(move |own, turn| (own + 1 + turn % (threads - 1)) % threads),
        _ => return None,
    })
}
