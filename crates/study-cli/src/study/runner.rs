//! Simulates the pieces of a study on several threads, and shows the progress.

use super::keep::Kept;
use crate::simulate::load;
use crate::workers::{self, Workers};
use anyhow::Context;
use colocate_cli::exit;
use colocate_observe::identity;
use colocate_study::replication::StudyCells;
use colocate_study::replication::report::StudyReport;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

// No doc comment: clap would show it as that of the study.
#[derive(clap::Args)]
pub(super) struct RunnerOptions {
    /// File that keeps what is done: the same command of the same build goes on where it was stopped
    #[arg(long, value_name = "FILE")]
    pub keep: Option<PathBuf>,

    /// Threads to simulate on [default: as many as there are PUs]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
}

/// Threads, a progress bar, and a file that keeps pieces.
pub(super) struct Runner<'a> {
    options: &'a RunnerOptions,
    workers: Workers,
}

impl<'a> Runner<'a> {
    /// Makes a runner by the options.
    pub fn new(options: &'a RunnerOptions) -> anyhow::Result<Self> {
        Ok(Self { options, workers: Workers::new(options.threads)? })
    }

    /// Report of a study. Kept pieces are not simulated again; new pieces are kept.
    pub fn study(&self, name: &str, study: &StudyCells<'_>) -> anyhow::Result<StudyReport> {
        let inputs = load::hex(&format!("{}{}", env!("CARGO_PKG_VERSION"), study.inputs()));
        let kept = self.options.keep.as_ref().map(|path| {
            let head = of_this_build(&format!("{name} {inputs}"))?;
            Kept::open(path, &head, |piece| study.shape(piece))
        });
        let kept = kept.transpose()?;
        let done = self.all("", study.count(), |piece| {
            if let Some(done) = kept.as_ref().and_then(|kept| kept.get(piece)) {
                return Ok(done.clone());
            }
            let done = study.piece(piece)?;
            kept.as_ref().map_or(Ok(()), |kept| kept.put(piece, &done))?;
            Ok(done)
        })?;
        Ok(study.report(&done, &inputs)?)
    }

    /// Results of all pieces.
    pub fn all<T: Send>(
        &self,
        what: &str,
        count: usize,
        work: impl Fn(usize) -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        let bar = workers::bar(self.options.quiet, count as u64);
        bar.say(what);
        let done = self.workers.all(count, Some(&bar), work);
        bar.clear();
        done?.ok_or_else(|| {
            let hint = match &self.options.keep {
                Some(path) => format!("the same command goes on with {}", path.display()),
                None => "nothing is kept without --keep FILE".to_owned(),
            };
            exit::stopped(format!("stopped after {} of {count} pieces; {hint}", bar.position()))
        })
    }
}

/// `head` with the identity of this program: figures of two builds must not be mixed, and two
/// builds may have the same version.
fn of_this_build(head: &str) -> anyhow::Result<String> {
    // The running file, even if its name has been given to a new file.
    let own = "/proc/self/exe";
    let build = identity::of_file(Path::new(own)).with_context(|| format!("cannot read {own}"))?;
    Ok(format!("{head} {build}"))
}
