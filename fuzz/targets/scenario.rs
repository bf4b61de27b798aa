//! Scenarios: what is read can be written, reads back the same, and is simulated or refused.
#![no_main]

use colocate_machine::{Machine, Performance, described};
use colocate_study::simulate::scenario::ScenarioFile;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static EPYC: LazyLock<(Machine, Performance)> = LazyLock::new(|| {
    let (_, text) = described::MACHINES[0];
    let machine = described::from_toml(text).expect("a description of ours").machine;
    let speeds = described::performance(text).expect("a description of ours");
    (machine, speeds.expect("it says how fast it is"))
});

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(file) = ScenarioFile::from_toml(text) {
        let written = file.to_toml();
        let again = ScenarioFile::from_toml(&written).expect("what we write, we read");
        assert_eq!(again.to_toml(), written);
        let (machine, performance) = &*EPYC;
        if let Ok(found) =
            file.experiment(machine, performance, &|_| Err("no files here".to_owned()))
        {
            found.scenario.check(machine).expect("what was checked makes sense");
        }
    }
});
