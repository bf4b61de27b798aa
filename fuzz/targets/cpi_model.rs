//! Coefficients of CPI stacks on a shared core: what is read is written and reads back the same, and a refusal is one line.
#![no_main]

use colocate_model::CpiModel;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match CpiModel::from_json(text) {
        Ok(model) => {
            let again = CpiModel::from_json(&model.to_json()).expect("what we write, we read");
            assert_eq!(again, model);
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "one line: {error}"),
    }
});
