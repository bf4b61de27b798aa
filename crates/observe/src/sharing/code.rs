//! What the instruction that a thread was found at accesses next.

use colocate_isa::operand::{Operand, next_access};
use colocate_linux::Pid;
use colocate_linux::foreign;
use std::collections::HashMap;

/// Places that are remembered, at most: some 1 MiB. Chosen.
const MOST: usize = 1 << 14;

/// Accesses by process and address of the instruction; `None` where none is known.
#[derive(Debug, Default)]
pub(super) struct Code(HashMap<(Pid, u64), Option<Operand>>);

impl Code {
    /// What a thread of process `pid` accesses next that is at `ip`.
    pub fn next_access(&mut self, pid: Pid, ip: u64) -> Option<Operand> {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let read = |at: u64, to: &mut [u8]| foreign::memory(pid, at, to).unwrap_or(0);
        *self.0.entry((pid, ip)).or_insert_with(|| next_access(ip, read))
    }

    /// Process `pid` has other code now.
    pub fn forget(&mut self, pid: Pid) {
        self.0.retain(|(of, _), _| *of != pid);
    }
}
