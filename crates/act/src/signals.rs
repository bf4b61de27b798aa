//! Signals: which ones colocate takes, and which it passes on.
//!
//! The programs stay in colocate's process group, because a terminal lets only its foreground group
//! read and sends keys like Ctrl-C to all of it. Such a signal reaches every program without our
//! doing, so it is not passed on a second time. A signal that was sent to colocate itself, as by
//! `kill`, is passed on to every job that runs.

use colocate_linux::SysError;
use colocate_linux::limits::Descriptors;
use colocate_linux::sys::{self, Arrived, SignalMask};
use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Signals passed on to the jobs.
const PASSED_ON: [c_int; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// State of signals, limits and scheduling at the start of colocate, to be restored in its
/// programs.
#[derive(Clone, Copy)]
pub struct InitialState {
    mask: SignalMask,
    child_ignored: bool,
    nice: c_int,
    policy: c_int,
    files: Option<Descriptors>,
}

impl InitialState {
    /// Restores signals and limits in a process before its exec. Only system calls.
    pub fn restore(&self) {
        // Rust's runtime ignores SIGPIPE, and programs would inherit that through exec.
        sys::ignore(libc::SIGPIPE, sys::pipe_was_ignored());
        if self.child_ignored {
            sys::ignore(libc::SIGCHLD, true);
        }
        sys::set_mask(&self.mask);
        if let Some(files) = self.files {
            sys::limit_files(files.soft, files.hard);
        }
    }

    /// Restores the scheduling of this process, which colocate changes after the creation of its
    /// first programs.
    pub fn restore_schedule(&self) {
        sys::restore_own_schedule(self.policy, self.nice);
    }
}

/// Receiver of the blocked signals.
pub struct Signals {
    fd: OwnedFd,
    inherited: InitialState,
}

impl Signals {
    /// Blocks the signals, to be read later. Signals ignored at the start, like SIGHUP under
    /// `nohup`, stay ignored. Also raises the limit of open files to the hard limit: each job and
    /// each watched thread costs some. Programs get the soft limit from the start of colocate.
    ///
    /// # Errors
    /// At the limit of open files.
    pub fn take() -> Result<Self, SysError> {
        let child_ignored = sys::is_ignored(libc::SIGCHLD);
        // With SIGCHLD ignored the kernel would not keep the exit status of a child for us.
        sys::ignore(libc::SIGCHLD, false);
        let taken = PASSED_ON.into_iter().filter(|&signal| !sys::is_ignored(signal));
        let taken: Vec<c_int> = taken.chain([libc::SIGCHLD]).collect();
        let mask = sys::block(&taken)?;
        let nice = sys::nice();
        let policy = sys::policy();
        let inherited =
            InitialState { mask, child_ignored, nice, policy, files: Some(Descriptors::now()) };
        // Where that fails it is as if it had not been tried.
        let _ = Descriptors::raise();
        Ok(Self { fd: sys::signalfd(&taken)?, inherited })
    }

    /// State before colocate's changes.
    pub fn inherited(&self) -> &InitialState {
        &self.inherited
    }

    /// Readable when a signal waits.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether a signal that ends programs is pending.
    pub fn is_end_pending() -> bool {
        sys::is_pending(&ENDS.map(|(signal, _)| signal))
    }

    /// Next pending signal; `None` without any.
    pub fn next(&self) -> Option<Arrived> {
        sys::next_signal(self.fd())
    }
}

/// Action of colocate on a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalAction {
    /// Send the signal to every running job.
    pub pass_on: bool,
    /// Stop until continued.
    pub stop: bool,
    /// Check for ended children.
    pub reap: bool,
    /// End, as on closing a terminal: programs get the signal at once, and scheduling is over.
    pub ends: bool,
}

/// Passed-on signals that end programs, with their names. SIGUSR1 and SIGUSR2 are requests to a
/// program: on them `dd` reports its progress.
const ENDS: [(c_int, &str); 4] = [
    (libc::SIGINT, "SIGINT"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGQUIT, "SIGQUIT"),
];

/// Name of a signal that ends programs; further signals go by their numbers.
pub fn name(signal: c_int) -> String {
    let known = ENDS.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

/// Exit status of a program ended by a signal, as a shell reports it.
pub fn status(signal: c_int) -> i32 {
    128 + signal
}

impl From<Arrived> for SignalAction {
    fn from(arrived: Arrived) -> Self {
        let Arrived { signal, by_kernel } = arrived;
        let reap = signal == libc::SIGCHLD;
        let ends = ENDS.iter().any(|(number, _)| *number == signal);
        // Signals from the kernel come from the terminal, and reach the whole group by themselves.
        Self { pass_on: !reap && !by_kernel, stop: signal == libc::SIGTSTP, reap, ends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(signal: c_int, by_kernel: bool) -> SignalAction {
        Arrived { signal, by_kernel }.into()
    }

    #[test]
    fn keys_reach_programs_once() {
        assert_eq!(
            asked(libc::SIGINT, true),
            SignalAction { pass_on: false, stop: false, reap: false, ends: true }
        );
        assert_eq!(
            asked(libc::SIGTSTP, true),
            SignalAction { pass_on: false, stop: true, reap: false, ends: false }
        );
    }

    #[test]
    fn what_is_sent_to_us_is_passed_on() {
        assert_eq!(
            asked(libc::SIGTERM, false),
            SignalAction { pass_on: true, stop: false, reap: false, ends: true }
        );
        assert_eq!(
            asked(libc::SIGTSTP, false),
            SignalAction { pass_on: true, stop: true, reap: false, ends: false }
        );
        assert_eq!(
            asked(libc::SIGCONT, false),
            SignalAction { pass_on: true, stop: false, reap: false, ends: false }
        );
    }

    /// They end a program only if it does not handle them, and then without help.
    #[test]
    fn user_signals_end_nothing_else() {
        for signal in [libc::SIGUSR1, libc::SIGUSR2] {
            assert_eq!(
                asked(signal, false),
                SignalAction { pass_on: true, stop: false, reap: false, ends: false }
            );
        }
    }

    #[test]
    fn names_of_signals() {
        assert_eq!([libc::SIGHUP, 99].map(name), ["SIGHUP", "signal 99"]);
        assert_eq!(status(libc::SIGHUP), 129);
    }

    #[test]
    fn a_childs_end_is_for_us_alone() {
        assert_eq!(
            asked(libc::SIGCHLD, false),
            SignalAction { pass_on: false, stop: false, reap: true, ends: false }
        );
        assert_eq!(
            asked(libc::SIGCHLD, true),
            SignalAction { pass_on: false, stop: false, reap: true, ends: false }
        );
    }
}
