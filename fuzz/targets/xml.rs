//! hwloc's XML: what is read holds together.
#![no_main]

use colocate_machine::read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(saved) = read::from_xml_str(text) {
        saved.machine.check().expect("a machine that was read holds together");
    }
});
