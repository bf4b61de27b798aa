//! How often a simulated predictor mispredicts the program's branches, if that is counted.
//!
//! Every block reports when it begins; how the block before it ended shows what became of its branch.

use crate::api::{self, Block};
use crate::per_cpu::PerCpu;
use crate::predictor::Predictor;
use colocate_isa::{Flow, counts};
use std::ffi::{c_uint, c_void};

/// The branches of each thread.
pub static BRANCHES: PerCpu<Branches> = PerCpu::new();

/// How a block ends.
#[derive(Clone, Copy)]
enum End {
    /// A branch that is taken or not.
    Decides,
    /// A branch that leads somewhere, but for a return.
    Leads,
    /// Otherwise.
    Plain,
}

/// A translated block. QEMU may run it as long as the process lives, so it is never freed.
struct Ends {
    start: u64,
    /// The address after its last instruction.
    after: u64,
    /// The address of its last instruction.
    last: u64,
    end: End,
}

/// One thread's branches.
pub struct Branches {
    predictor: Predictor,
    before: *const Ends,
    /// Branches that had to be predicted.
    predicted: u64,
    /// Those that were predicted wrongly.
    mispredicted: u64,
}

/// Has QEMU report when `block` begins, which starts at `start` and ends with an instruction at `last`, of
/// `len` bytes, that leads `flow`.
pub fn watch(block: *mut Block, start: u64, last: u64, len: u8, flow: Flow) {
    if !BRANCHES.is_enabled() {
        return;
    }
    let end = match flow {
        Flow::Conditional { .. } => End::Decides,
        Flow::IndirectJump | Flow::IndirectCall => End::Leads,
        _ => End::Plain,
    };
    let ends = Box::new(Ends { start, after: last.wrapping_add(len.into()), last, end });
    let word: *mut Ends = Box::leak(ends);
    // SAFETY: the block is live; the callback gets what was made here, which stays.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, api::NO_REGS, word.cast())
    };
}

extern "C" fn on_block(cpu: c_uint, word: *mut c_void) {
    // SAFETY: called by the thread that runs on this CPU; blocks are never freed.
    let (branches, now) = unsafe { (BRANCHES.own(cpu), &*word.cast::<Ends>()) };
    if let Some(branches) = branches {
        branches.goes_on(now);
    }
}

impl Branches {
    /// Of a thread that has run nothing yet.
    pub fn new() -> Self {
        Self {
            predictor: Predictor::new(),
            before: std::ptr::null(),
            predicted: 0,
            mispredicted: 0,
        }
    }

    /// What has been counted so far.
    pub const fn counts(&self) -> counts::Branches {
        counts::Branches { predicted: self.predicted, mispredicted: self.mispredicted }
    }

    fn goes_on(&mut self, now: &Ends) {
        // SAFETY: null or a block, which are never freed.
        if let Some(before) = unsafe { self.before.as_ref() } {
            let right = match before.end {
                End::Decides => {
                    Some(self.predictor.decided(before.last, now.start != before.after))
                }
                End::Leads => Some(self.predictor.led(before.last, now.start)),
                End::Plain => None,
            };
            self.predicted += u64::from(right.is_some());
            self.mispredicted += u64::from(right == Some(false));
        }
        self.before = now;
    }
}
