//! Plans: what is read can be written, and reads back the same.
#![no_main]

use colocate_policy::Plan;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(plan) = Plan::from_json(text) {
        for decision in &plan.decisions {
            let _ = plan.place_of(decision.task);
        }
        let again = Plan::from_json(&plan.to_json()).expect("what we write, we read");
        assert_eq!(again, plan);
    }
});
