//! Traces of memory accesses, and matrices of communication.
#![no_main]

use colocate_study::matrices::Square;
use colocate_trace::{Check, TraceFile};
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(mut trace) = TraceFile::of(Cursor::new(bytes)) {
        let mut check = Check::default();
        let mut block_bytes = Vec::new();
        let checked = trace.in_order().try_for_each(|(thread, block)| {
            assert!(trace.read(thread, block, &mut block_bytes).is_ok_and(|found| found));
            check.block(thread, &block_bytes)
        });
        let _ = checked.and_then(|()| check.end());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = (Square::from_csv(text, false), Square::from_json(text));
    }
});
