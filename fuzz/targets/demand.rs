//! Demand vectors as TOML and as JSON: what is read can be written in both forms and reads back the same,
//! and is put into figures or refused.
#![no_main]

use colocate_machine::{Performance, described};
use colocate_model::phase::{Guesses, PhaseFile};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static EPYC: LazyLock<Performance> = LazyLock::new(|| {
    let (_, text) = described::MACHINES[0];
    let speeds = described::performance(text).expect("a description of ours");
    speeds.expect("it says how fast it is")
});

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for file in [PhaseFile::from_toml(text), PhaseFile::from_json(text)] {
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "one line: {error}");
                continue;
            }
        };
        let again = PhaseFile::from_toml(&file.to_toml()).expect("what we write, we read");
        assert_eq!(again, file);
        let again = PhaseFile::from_json(&file.to_json()).expect("what we write, we read");
        assert_eq!(again, file);
        for phase in &file.phases {
            if let Ok(on) = phase.on(&EPYC.kinds[0], &Guesses::default()) {
                let demand = on.demand;
                let whole = [demand.slots, demand.dependent_cycles, demand.stall_cycles];
                assert!(whole.into_iter().all(|figure| figure.is_finite() && figure >= 0.0));
            }
        }
    }
});
