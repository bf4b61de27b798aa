//! A small process that ends the measured program if colocate is killed.
//!
//! The program and what it starts have a process group of their own, and were created on one PU. If colocate ended
//! they would run on there. Only the first process gets a signal then (PR_SET_PDEATHSIG), so the keeper, to which
//! the end of a pipe is closed, ends the group.

use colocate_cli::children;
use colocate_linux::sys::{self, Fork};
use colocate_linux::{Pid, SysError};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// How long a program has to end by itself. Chosen: as long as most take to write what they hold.
const GRACE: Duration = Duration::from_secs(2);
/// Time between two looks whether it has.
const POLL: Duration = Duration::from_millis(20);

/// The keeper, as colocate sees it. Dropped, it is dismissed.
pub struct Keeper {
    pid: Pid,
    pipe: io::PipeWriter,
}

impl Keeper {
    /// Starts the keeper. To be called before threads are created.
    pub fn start() -> Result<Self, SysError> {
        let (reader, writer) = io::pipe().map_err(|source| SysError { call: "pipe", source })?;
        match sys::fork()? {
            Fork::Parent(pid) => Ok(Self { pid, pipe: writer }),
            Fork::Child => {
                drop(writer);
                // Nothing may unwind into the code of the process that this is a copy of.
                let _ = std::panic::catch_unwind(AssertUnwindSafe(|| keep(reader)));
                sys::exit_now(0)
            }
        }
    }

    /// From now on, the process group `group` is what has to end with colocate; `None` for none.
    pub fn mind(&self, group: Option<Pid>) -> io::Result<()> {
        (&self.pipe).write_all(&group.map_or(0, |pid| pid.0).to_ne_bytes())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It is killed, because one that is stopped does not read the pipe.
        let _ = sys::kill(self.pid, libc::SIGKILL);
        let _ = sys::wait(Some(self.pid), true);
    }
}

/// What the keeper does until colocate ends.
fn keep(mut reader: io::PipeReader) {
    sys::leave_session();
    sys::set_name(c"colocate-keeper");
    sys::close_all_but(&[reader.as_raw_fd()]);
    // The folder may be unmounted meanwhile.
    let _ = std::env::set_current_dir("/");
    let (mut word, mut group) = ([0; 4], 0);
    while reader.read_exact(&mut word).is_ok() {
        group = i32::from_ne_bytes(word);
    }
    if group > 0 {
        end_group(Pid(group));
    }
}

/// Asks the process group of `leader` to end, and kills what has not after [`GRACE`].
fn end_group(leader: Pid) {
    children::terminate_group(leader);
    let polls = GRACE.as_millis() / POLL.as_millis();
    for _ in 0..polls {
        if sys::kill(Pid(-leader.0), 0).is_err() {
            return;
        }
        std::thread::sleep(POLL);
    }
    children::kill_group(leader);
}
