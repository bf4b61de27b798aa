//! A small process that ends the measured program if colocate is killed.
//!
//! The program and what it starts have a process group of their own, and were born with one PU. If colocate
//! is gone they would run on there, measured by nobody. Only the first process hears of that by itself, so
//! the keeper, which hears it by the end of a pipe, ends the group.

use colocate_act::sys::{self, Fork};
use colocate_observe::{Pid, SysError};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// How long a program has to end by itself. Chosen: as long as most take to write what they hold.
const GRACE: Duration = Duration::from_secs(2);
/// How often it is looked whether it has.
const GLANCE: Duration = Duration::from_millis(20);

/// The keeper, as colocate sees it. Dropped, it is dismissed.
pub struct Keeper {
    pid: Pid,
    line: io::PipeWriter,
}

impl Keeper {
    /// Starts the keeper. To be called before threads are created.
    ///
    /// # Errors
    /// If no process or pipe can be had.
    pub fn start() -> Result<Self, SysError> {
        let (ear, line) = io::pipe().map_err(|source| SysError { call: "pipe", source })?;
        match sys::fork()? {
            Fork::Parent(pid) => Ok(Self { pid, line }),
            Fork::Child => {
                drop(line);
                // Nothing may unwind into the code of the process that this is a copy of.
                let _ = std::panic::catch_unwind(AssertUnwindSafe(|| keep(ear)));
                sys::exit_now(0)
            }
        }
    }

    /// From now on, the process group `group` is what has to end with colocate; `None` for nobody.
    ///
    /// # Errors
    /// If the keeper was killed.
    pub fn mind(&mut self, group: Option<Pid>) -> io::Result<()> {
        self.line.write_all(&group.map_or(0, |pid| pid.0).to_ne_bytes())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It is killed and not told, because nobody can tell one that is stopped.
        let _ = sys::kill(self.pid, libc::SIGKILL);
        let _ = sys::wait(Some(self.pid), true);
    }
}

/// The keeper's life.
fn keep(mut ear: io::PipeReader) {
    sys::leave_session();
    sys::set_name(c"colocate-keeper");
    sys::close_all_but(&[ear.as_raw_fd()]);
    // A folder that somebody works in must not be kept from being unmounted.
    let _ = std::env::set_current_dir("/");
    let (mut word, mut group) = ([0; 4], 0);
    while ear.read_exact(&mut word).is_ok() {
        group = i32::from_ne_bytes(word);
    }
    if group > 0 {
        end_group(Pid(group));
    }
}

/// Asks the process group of `leader` to end, and kills what has not after [`GRACE`].
fn end_group(leader: Pid) {
    let all = Pid(-leader.0);
    // Who is stopped could not end.
    let _ = sys::kill(all, libc::SIGTERM);
    let _ = sys::kill(all, libc::SIGCONT);
    let looks = GRACE.as_millis() / GLANCE.as_millis();
    for _ in 0..looks {
        if sys::kill(all, 0).is_err() {
            return;
        }
        std::thread::sleep(GLANCE);
    }
    let _ = sys::kill(all, libc::SIGKILL);
}
