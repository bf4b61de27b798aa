//! A small process that ends the measured program if colocate is killed.
//!
//! The program and its descendants have their own process group, and were created on one PU. If
//! colocate ended they would run on there. Only the first process gets a signal then
//! (PR_SET_PDEATHSIG). The keeper sees the end of its pipe closed, and ends the group.

use colocate_cli::children;
use colocate_linux::sys::{self, Fork};
use colocate_linux::{Pid, SysError};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// Time for a program to end by itself. Chosen: long enough for most programs to write their
/// buffers.
const GRACE: Duration = Duration::from_secs(2);
/// Time between two checks for the program's end.
const POLL: Duration = Duration::from_millis(20);

/// Handle of the keeper process; dropping it ends the keeper.
pub struct Keeper {
    pid: Pid,
    pipe: io::PipeWriter,
}

impl Keeper {
    /// Starts the keeper. Call it before threads are created.
    pub fn start() -> Result<Self, SysError> {
        let (reader, writer) = io::pipe().map_err(|source| SysError { call: "pipe", source })?;
        match sys::fork()? {
            Fork::Parent(pid) => Ok(Self { pid, pipe: writer }),
            Fork::Child => {
                drop(writer);
                // A panic must not unwind into the parent's code.
                let _ = std::panic::catch_unwind(AssertUnwindSafe(|| keep(reader)));
                sys::exit_now(0)
            }
        }
    }

    /// Sets the process group that ends with colocate; `None` for no group.
    pub fn mind(&self, group: Option<Pid>) -> io::Result<()> {
        (&self.pipe).write_all(&group.map_or(0, |pid| pid.0).to_ne_bytes())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // SIGKILL, because a stopped keeper does not read the pipe.
        let _ = sys::kill(self.pid, libc::SIGKILL);
        let _ = sys::wait(Some(self.pid), true);
    }
}

/// Main function of the keeper process: waits until colocate ends.
fn keep(mut reader: io::PipeReader) {
    sys::leave_session();
    sys::set_name(c"colocate-keeper");
    sys::close_all_but(&[reader.as_raw_fd()]);
    // The folder may be unmounted meanwhile.
    let _ = std::env::set_current_dir("/");
    let mut word = [0; 4];
    let mut group = 0;
    while reader.read_exact(&mut word).is_ok() {
        group = i32::from_ne_bytes(word);
    }
    if group > 0 {
        end_group(Pid(group));
    }
}

/// Sends SIGTERM to the process group of `leader`, and SIGKILL after [`GRACE`].
fn end_group(leader: Pid) {
    children::terminate_group(leader);
    let polls = GRACE.as_millis() / POLL.as_millis();
    for _ in 0..polls {
        // No process of the group is left.
        if sys::kill(Pid(-leader.0), 0).is_err() {
            return;
        }
        std::thread::sleep(POLL);
    }
    children::kill_group(leader);
}
