//! Journals of `run`: torn lines are passed over, and nothing makes the reader panic.
#![no_main]

use colocate_act::journal::Journal;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(journal) = Journal::parse(text) {
        // `restore` gives threads this mask; an empty one would stop them for good.
        assert!(!journal.original.is_empty());
        assert!(journal.entries.len() <= text.lines().count());
    }
});
