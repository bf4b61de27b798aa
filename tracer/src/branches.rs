//! How often a predictor would guess the program's branches wrongly, if somebody asked.
//!
//! Every block says when it begins; how the block before it ended tells what became of its branch.

use crate::api::{self, Block};
use crate::predictor::Predictor;
use colocate_isa::Flow;
use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Threads whose branches are known at the same time; there is nothing on those beyond.
const CPUS: usize = 8192;

static ASKED: AtomicBool = AtomicBool::new(false);
/// What is known of the thread on each virtual CPU. Only that thread uses it, and whoever has stopped it.
static OF: [AtomicPtr<Branches>; CPUS] = [const { AtomicPtr::new(null_mut()) }; CPUS];

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
    /// Branches that had to be guessed.
    pub guessed: u64,
    /// Those that were guessed wrongly.
    pub missed: u64,
}

/// Branches are to be guessed. Must be said before anything is translated.
pub fn ask() {
    ASKED.store(true, Ordering::Relaxed);
}

/// Has QEMU say when `block` begins, which starts at `start` and ends with an instruction at `last`, of
/// `len` bytes, that leads `flow`.
pub fn watch(block: *mut Block, start: u64, last: u64, len: u8, flow: Flow) {
    if !ASKED.load(Ordering::Relaxed) {
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
    let Some(of) = OF.get(cpu as usize) else { return };
    // SAFETY: it is null or was made by `begin`, and only this thread uses it while it runs; blocks are
    // never freed.
    let (branches, now) = unsafe {
        let Some(branches) = of.load(Ordering::Relaxed).as_mut() else { return };
        (branches, &*word.cast::<Ends>())
    };
    branches.goes_on(now);
}

impl Branches {
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
            self.guessed += u64::from(right.is_some());
            self.missed += u64::from(right == Some(false));
        }
        self.before = now;
    }
}

/// A thread begins on `cpu`.
pub fn begin(cpu: c_uint) {
    if let (true, Some(of)) = (ASKED.load(Ordering::Relaxed), OF.get(cpu as usize)) {
        let predictor = Predictor::new();
        let branches = Branches { predictor, before: std::ptr::null(), guessed: 0, missed: 0 };
        of.store(Box::into_raw(Box::new(branches)), Ordering::Relaxed);
    }
}

/// The thread on `cpu` has ended, or has been stopped for ever: what is known of it.
pub fn end(cpu: c_uint) -> Option<Box<Branches>> {
    let of = OF.get(cpu as usize)?.swap(null_mut(), Ordering::Relaxed);
    // SAFETY: it was made by `begin`, and is no longer where the thread would find it.
    (!of.is_null()).then(|| unsafe { Box::from_raw(of) })
}

/// This is a new process: what is known is of its parent's threads, which are not here. Nothing is
/// freed, since they may have been changing it when the process was made.
pub fn forget() {
    OF.iter().for_each(|of| of.store(null_mut(), Ordering::Relaxed));
}
