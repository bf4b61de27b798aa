//! Described machines: what is read holds together.
#![no_main]

use colocate_machine::described;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(exact) = described::from_toml(text) {
        exact.machine.check().expect("a machine that was read holds together");
    }
    let _ = described::sources(text);
});
