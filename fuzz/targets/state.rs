//! States of comparisons: what is read can be evaluated, drawn and written.
#![no_main]

use colocate_figures::comparison::{Comparison, StudyEnvironment};
use colocate_figures::state::StudyState;
use colocate_figures::{plot, table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(state) = StudyState::from_json(text) {
        let again = StudyState::from_json(&state.to_json()).expect("what we write, we read");
        assert_eq!(again, state);
        let place =
            StudyEnvironment { colocate: String::new(), kernel: None, processor: None, usable_pus: None };
        let found = Comparison::of(&state, place);
        let _ = (state.time_left(), table::text(&found));
        plot::svg(&found).expect("every study can be drawn");
    }
});
