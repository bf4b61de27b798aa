//! Counts that the emulator's plugin leaves: no file makes the reader panic or hang.
#![no_main]

use colocate_observe::emulate::trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(found) = trace::parse(data) {
        // A file that ends early is never taken for a whole one.
        assert!(data.ends_with(b"}"));
        assert!(found.threads.len() <= data.len());
        assert!(trace::parse(&data[..data.len() - 1]).is_err());
    }
});
