//! `colocate attach` beside the programs of a run.

use crate::children::start_into;
use anyhow::{Context, bail, ensure};
use colocate_figures::state::AttachPeriod;
use colocate_linux::Pid;
use colocate_linux::sys::{self, Waited};
use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

/// A `colocate attach` that begins and ends by the clock.
pub struct Attachment {
    command: Command,
    begin: Instant,
    end: Option<Instant>,
    state: AttachmentState,
}

enum AttachmentState {
    Due,
    Attached(Pid),
    /// SIGINT has been sent.
    Ending(Pid),
    Ended(Waited),
}

impl Attachment {
    /// An attachment by `command` to `programs`, in `period`, or from now until [`Self::end`].
    pub fn new(mut command: Command, period: Option<AttachPeriod>, programs: &[Pid]) -> Self {
        command.args(programs.iter().flat_map(|pid| ["-p".to_owned(), pid.0.to_string()]));
        let now = Instant::now();
        let begin = period.map_or(now, |period| now + Duration::from_secs_f64(period.after_s));
        let end = period.map(|period| begin + Duration::from_secs_f64(period.for_s));
        Self { command, begin, end, state: AttachmentState::Due }
    }

    /// Starts or ends `colocate attach` when it is time; its messages go to `output`.
    pub fn poll(&mut self, output: &File) -> anyhow::Result<()> {
        let now = Instant::now();
        match self.state {
            AttachmentState::Due if now >= self.begin => {
                let pid = start_into(&mut self.command, output).context("cannot start it")?;
                self.state = AttachmentState::Attached(pid);
            }
            AttachmentState::Attached(pid) => {
                if let Some(waited) = sys::wait(Some(pid), false)? {
                    self.state = AttachmentState::Ended(waited);
                    return succeeded(waited);
                }
                if self.end.is_some_and(|end| now >= end) {
                    sys::kill(pid, libc::SIGINT)?;
                    self.state = AttachmentState::Ending(pid);
                }
            }
            AttachmentState::Due | AttachmentState::Ending(_) | AttachmentState::Ended(_) => {}
        }
        Ok(())
    }

    /// Ends `colocate attach` and waits for it.
    pub fn end(self) -> anyhow::Result<()> {
        let waited = match self.state {
            AttachmentState::Due => bail!("the programs ended before it was time to attach"),
            AttachmentState::Attached(pid) => {
                sys::kill(pid, libc::SIGINT)?;
                sys::wait(Some(pid), true)?
            }
            AttachmentState::Ending(pid) => sys::wait(Some(pid), true)?,
            AttachmentState::Ended(waited) => Some(waited),
        };
        waited.map_or(Ok(()), succeeded)
    }
}

fn succeeded(waited: Waited) -> anyhow::Result<()> {
    ensure!(waited.status == 0, "expected status 0, found {}", waited.status);
    Ok(())
}
