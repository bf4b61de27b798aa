//! The parts that act on programs, each with its own state.

use crate::paging::Paging;
use crate::pausing::{IN_USE, Pausing, ROOM, has_room, no_room};
use crate::placement::{Placing, leave_to_kernel};
use crate::sources::Sources;
use crate::workload::HostState;
use std::path::PathBuf;

/// Parts that act on programs, or read what they do.
pub(crate) struct HostParts {
    pub work: HostState,
    pub placing: Placing,
    pub pausing: Pausing,
    pub sources: Sources,
    pub paging: Paging,
}

impl HostParts {
    /// Gives up if `/proc` is unusable, for the reason `without_proc`, or if hardly any further file can be opened: an unreadable
    /// task must not be stopped or placed. Must be called before any program runs.
    pub fn give_up_if_unreadable(&mut self, without_proc: Option<&str>) {
        if let Some(why) = without_proc {
            // Whatever is there is about other processes.
            self.work.actuators.proc = PathBuf::from("/dev/null");
            self.give_up(why);
        } else if !has_room(ROOM) {
            self.give_up(&no_room(ROOM));
        }
    }

    /// Gives up once file descriptors have run out, as threads can hardly be read without any.
    pub fn give_up_if_used_up(&mut self) {
        if !self.pausing.is_over() && !has_room(IN_USE) {
            self.give_up(&no_room(IN_USE));
        }
    }

    /// Ends all control for good and reports the reason once. Programs then run as without
    /// colocate.
    fn give_up(&mut self, why: &str) {
        if self.pausing.is_over() {
            return;
        }
        // First, as the reserved descriptors are needed for what follows.
        self.pausing.give_up();
        self.sources.times.stop();
        self.paging.stop();
        leave_to_kernel(&mut self.placing, &mut self.work);
        // Before the launch, programs are held and not stopped: to continue them would begin them.
        if self.work.launched.is_some() {
            self.pausing.continue_all(&mut self.work);
        }
        let line = "every program is left to the kernel, none is stopped or placed";
        self.work.notes.push(format!("{line}: {why}"));
    }
}
