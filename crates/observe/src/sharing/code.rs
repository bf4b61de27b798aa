//! Next memory access of an instruction.

use colocate_isa::operand::{Operand, next_access};
use colocate_linux::{Pid, foreign};
use std::collections::HashMap;

/// Limit of cached instructions: some 1 MiB. Chosen.
const MOST: usize = 1 << 14;

/// Memory operand by process and instruction address; `None` if unknown.
#[derive(Debug, Default)]
pub(super) struct OperandCache(HashMap<(Pid, u64), Option<Operand>>);

impl OperandCache {
    /// Next memory access of a thread of process `pid` at `ip`.
    pub fn next_access(&mut self, pid: Pid, ip: u64) -> Option<Operand> {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        *self.0.entry((pid, ip)).or_insert_with(|| {
            next_access(ip, |at: u64, to: &mut [u8]| foreign::memory(pid, at, to).unwrap_or(0))
        })
    }

    /// Forgets the code of process `pid`, e.g. after an exec.
    pub fn forget(&mut self, pid: Pid) {
        self.0.retain(|(of, _), _| *of != pid);
    }
}
