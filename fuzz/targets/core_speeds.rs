//! Measured speeds of cores: what is read is sound, is written and reads back the same, and a refusal is one line.
#![no_main]

use colocate_machine::measured::CoreSpeeds;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match CoreSpeeds::from_json(text) {
        Ok(speeds) => {
            speeds.check().expect("what is read is sound");
            let again = CoreSpeeds::from_json(&speeds.to_json()).expect("what we write, we read");
            assert_eq!(again, speeds);
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "one line: {error}"),
    }
});
