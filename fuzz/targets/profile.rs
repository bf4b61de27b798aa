//! Profiles: what is read can be written, and reads back the same.
#![no_main]

use colocate_model::Profile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(profile) = Profile::from_json(text) {
        let again = Profile::from_json(&profile.to_json()).expect("what we write, we read");
        assert_eq!(again, profile);
    }
});
