//! Mispredictions of the program's branches by a simulated predictor, if enabled.
//!
//! Every block reports its beginning. The address of a block shows the outcome of the branch that
//! ended the block before.

use crate::api::{self, TranslationBlock};
use crate::per_cpu::PerCpu;
use crate::predictor::Predictor;
use colocate_isa::{Flow, counts};
use std::ffi::{c_uint, c_void};

/// Predicted branches of each thread.
pub static BRANCHES: PerCpu<Branches> = PerCpu::new();

/// Last instruction of a block, by kind of prediction.
#[derive(Clone, Copy)]
enum BlockEnd {
    /// A conditional branch.
    Decides,
    /// An indirect jump or call; returns are always predicted.
    Leads,
    /// Any other instruction.
    Plain,
}

/// A translated block. Never freed: QEMU may run the block as long as the process lives.
struct TranslatedBlock {
    start: u64,
    /// Address after the last instruction.
    after: u64,
    /// Address of the last instruction.
    last: u64,
    end: BlockEnd,
}

/// Branches of a thread.
pub struct Branches {
    predictor: Predictor,
    /// Block that ran last; null at first.
    before: *const TranslatedBlock,
    /// Number of branches that need a prediction.
    predicted: u64,
    /// Number of wrong predictions.
    mispredicted: u64,
}

/// Adds a callback to the beginning of `block`.
///
/// The block begins at `start`. Its last instruction is at `last`, with `len` bytes and control
/// flow `flow`.
pub fn watch(block: *mut TranslationBlock, start: u64, last: u64, len: u8, flow: Flow) {
    if !BRANCHES.is_enabled() {
        return;
    }
    let end = match flow {
        Flow::Conditional { .. } => BlockEnd::Decides,
        Flow::IndirectJump | Flow::IndirectCall => BlockEnd::Leads,
        _ => BlockEnd::Plain,
    };
    let ends = Box::new(TranslatedBlock { start, after: last.wrapping_add(len.into()), last, end });
    let word: *mut TranslatedBlock = Box::leak(ends);
    // SAFETY: the block is live; the word is a pointer to leaked memory.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, api::NO_REGS, word.cast())
    };
}

extern "C" fn on_block(cpu: c_uint, word: *mut c_void) {
    // SAFETY: called by the thread that runs on this CPU; blocks are never freed.
    let (branches, now) = unsafe { (BRANCHES.own(cpu), &*word.cast::<TranslatedBlock>()) };
    if let Some(branches) = branches {
        branches.goes_on(now);
    }
}

impl Branches {
    /// Branches of a new thread.
    pub fn new() -> Self {
        Self {
            predictor: Predictor::new(),
            before: std::ptr::null(),
            predicted: 0,
            mispredicted: 0,
        }
    }

    /// Counts so far.
    pub const fn counts(&self) -> counts::Branches {
        counts::Branches { predicted: self.predicted, mispredicted: self.mispredicted }
    }

    /// Checks the prediction for the branch before block `now`.
    fn goes_on(&mut self, now: &TranslatedBlock) {
        // SAFETY: null or a block, and blocks are never freed.
        if let Some(before) = unsafe { self.before.as_ref() } {
            let right = match before.end {
                BlockEnd::Decides => {
                    // A block that does not follow in memory means that the branch was taken.
                    Some(self.predictor.decided(before.last, now.start != before.after))
                }
                BlockEnd::Leads => Some(self.predictor.led(before.last, now.start)),
                BlockEnd::Plain => None,
            };
            self.predicted += u64::from(right.is_some());
            self.mispredicted += u64::from(right == Some(false));
        }
        self.before = now;
    }
}
