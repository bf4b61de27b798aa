//! A server among the programs: the others start when it is ready, and it is terminated when they
//! have ended.

use crate::children::GRACE;
use crate::{args, exit};
use colocate_evidence::JobIdx;
use colocate_figures::state;
use colocate_host::{Probe, Readiness, Setup};
use colocate_machine::Nanos;
use std::ffi::OsString;

/// Options for a server, of `run` and `compare`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Server {
    /// The first program is a server: the others start once PROBE succeeds, and it is ended when they have ended. PROBE is
    /// tcp:PORT, tcp:HOST:PORT or unix:PATH, which accept connections, or file:PATH, which exists
    #[arg(long, value_name = "PROBE")]
    ready: Option<Probe>,

    /// Time that the server may take to be ready; then all programs are ended, in s [default: 30, range: 0.1-3600]
    #[arg(long, value_name = "S", requires = "ready", value_parser = |text: &str| args::seconds(text, 0.1..=3600.0))]
    ready_s: Option<Nanos>,

    /// End the others when program N, counted from 0, has ended: SIGTERM, and SIGKILL after 10 s
    #[arg(long, value_name = "N")]
    until: Option<u32>,
}

impl Server {
    /// Refuses options that do not fit `count` programs.
    pub fn check_words(&self, count: usize) -> anyhow::Result<()> {
        if let Some(until) = self.until.filter(|until| *until as usize >= count) {
            let last = count.saturating_sub(1);
            return Err(exit::usage(format!(
                "--until: expected a program from 0 to {last}, found {until}"
            )));
        }
        if self.ready.is_some() && count < 2 {
            let found = "a program behind `:::` that waits for the first one, found none";
            return Err(exit::usage(format!("--ready: expected {found}")));
        }
        Ok(())
    }

    /// Refuses a probe that succeeds before `first`, the server, is started.
    pub fn check_start(&self, first: &str) -> anyhow::Result<()> {
        match &self.ready {
            Some(probe) if probe.check().is_ok() => anyhow::bail!(
                "expected no {probe} before {first} is started, found one: it is in use, or left from an earlier run"
            ),
            _ => Ok(()),
        }
    }

    /// Condition for the start of all programs but the first.
    pub fn readiness(&self) -> Option<Readiness> {
        let within = self.ready_s.unwrap_or(Nanos::from_secs(30));
        self.ready.clone().map(|probe| Readiness { probe, within })
    }

    /// Programs, by number, after whose ends the remaining ones are terminated.
    pub fn until(&self, programs: usize) -> Vec<usize> {
        match (self.until, &self.ready) {
            (Some(until), _) => vec![until as usize],
            (None, Some(_)) => (1..programs).collect(),
            (None, None) => Vec::new(),
        }
    }

    /// These options in the saved state of a comparison.
    pub fn kept(&self) -> state::Server {
        let ready = self.ready.as_ref().map(ToString::to_string);
        state::Server { ready, within_ns: self.ready_s, until: self.until }
    }

    /// The options in the saved state of a comparison.
    pub fn of_kept(kept: &state::Server) -> anyhow::Result<Self> {
        let ready = kept.ready.as_deref().map(str::parse).transpose();
        let ready = ready.map_err(anyhow::Error::msg)?;
        Ok(Self { ready, ready_s: kept.within_ns, until: kept.until })
    }

    /// Whether no option is given.
    pub fn is_default(&self) -> bool {
        self.ready.is_none() && self.ready_s.is_none() && self.until.is_none()
    }

    /// These options as words for `colocate run`.
    pub fn words(&self) -> Vec<OsString> {
        let ready = self.ready.iter().map(|probe| format!("--ready={probe}"));
        let within = self.ready_s.iter().map(|time| format!("--ready-s={}", time.as_secs_f64()));
        let until = self.until.iter().map(|until| format!("--until={until}"));
        ready.chain(within).chain(until).map(OsString::from).collect()
    }

    /// `setup` with these options.
    pub fn applied(&self, setup: Setup) -> Setup {
        let until = self.until(setup.commands.len()).into_iter();
        let until: Vec<JobIdx> =
            until.filter_map(|job| u32::try_from(job).ok()).map(JobIdx).collect();
        let grace = if until.is_empty() { setup.grace } else { GRACE.into() };
        Setup { ready: self.readiness(), until, grace, ..setup }
    }
}
