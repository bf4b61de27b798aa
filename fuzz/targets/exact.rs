//! Machines as JSON: what is read holds together and reads back the same.
#![no_main]

use colocate_machine::exact::Exact;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(exact) = Exact::from_json(text) {
        exact.machine.check().expect("a machine that was read holds together");
        if let Some(performance) = &exact.performance {
            performance.check(&exact.machine).expect("speeds that were read are possible");
        }
        let again = Exact::from_json(&exact.to_json()).expect("what we write, we read");
        assert_eq!(again, exact);
    }
});
