//! Simulates the pieces of a study on several threads, and shows the progress.

use super::keep::Kept;
use crate::exit::Failure;
use crate::simulate::load;
use crate::workers::{self, Watcher};
use anyhow::Context;
use colocate_observe::identity;
use colocate_study::replication::Work;
use colocate_study::replication::report::Report;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

// No doc comment: clap would show it as that of the study.
#[derive(clap::Args)]
pub(super) struct Course {
    /// File that keeps what is done: the same command of the same build goes on where it was stopped
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,

    /// Threads to simulate on [default: as many as there are PUs]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
}

/// Threads, a progress bar, a file that keeps pieces, and a flag that ends everything.
pub(super) struct Runner {
    keep: Option<PathBuf>,
    threads: NonZeroUsize,
    quiet: bool,
    stop: Arc<AtomicBool>,
}

impl Runner {
    /// By the options.
    ///
    /// # Errors
    /// If signals cannot be watched for.
    pub fn new(course: &Course) -> anyhow::Result<Self> {
        let here = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let stop = crate::compare::stop_flag_once()?;
        let (keep, threads) = (course.keep.clone(), course.threads.unwrap_or(here));
        Ok(Self { keep, threads, quiet: course.quiet, stop })
    }

    /// The report of a study; pieces that are kept are not simulated again, and those that are simulated are kept.
    ///
    /// # Errors
    /// If the file that keeps them is of something else or another build of colocate, or cannot be read or written; of the
    /// pieces that failed, that of the first; [`Failure`] if it was stopped.
    pub fn study(&self, name: &str, study: &Work<'_>) -> anyhow::Result<Report> {
        let inputs = load::hex(&format!("{}{}", env!("CARGO_PKG_VERSION"), study.inputs()));
        let open = |path: &PathBuf| {
            let head = of_this_build(&format!("{} {inputs}", name))?;
            Kept::open(path, &head, |piece| study.shape(piece))
        };
        let kept = self.keep.as_ref().map(open).transpose()?;
        let done = self.all("", study.count(), kept.as_ref().map(Kept::path), |piece| {
            if let Some(done) = kept.as_ref().and_then(|kept| kept.get(piece)) {
                return Ok(done.clone());
            }
            let done = study.piece(piece)?;
            kept.as_ref().map_or(Ok(()), |kept| kept.put(piece, &done))?;
            Ok(done)
        })?;
        Ok(study.report(&done, &inputs)?)
    }

    /// All pieces; `kept` is the file that keeps them, if one does.
    ///
    /// # Errors
    /// Of the pieces that failed, that of the first; [`Failure`] if it was stopped.
    pub fn all<T: Send>(
        &self,
        what: &str,
        count: usize,
        kept: Option<&Path>,
        work: impl Fn(usize) -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        let bar = crate::simulate::bar(self.quiet, count as u64);
        bar.say(what);
        let watcher = Watcher { progress: &|| bar.advance(1), stop: &self.stop };
        let done = workers::all(count, self.threads, watcher, work);
        let made = bar.position();
        bar.clear();
        done?.ok_or_else(|| stopped(made, count, kept).into())
    }
}

/// `head`, and what this program is known by: figures of two builds are not to be mixed, and two that differ may
/// have the same version.
fn of_this_build(head: &str) -> anyhow::Result<String> {
    // The file that is running, also if another one has its name by now.
    let own = "/proc/self/exe";
    let build = identity::of_file(Path::new(own)).with_context(|| format!("cannot read {own}"))?;
    Ok(format!("{head} {build}"))
}

fn stopped(made: u64, count: usize, kept: Option<&Path>) -> Failure {
    let hint = match kept {
        Some(path) => format!("; the same command goes on with {}", path.display()),
        None => "; nothing is kept without --keep FILE".to_owned(),
    };
    // As a shell reports a program that SIGINT ended.
    Failure { code: 130, message: format!("stopped after {made} of {count} pieces{hint}") }
}
