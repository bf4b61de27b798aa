//! Lists and masks of CPUs: what is read can be written, and reads back the same.
#![no_main]

use colocate_machine::PuSet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(set) = PuSet::parse_list(text) {
        assert_eq!(PuSet::parse_list(&set.to_string()).as_ref(), Ok(&set));
        assert_eq!(PuSet::parse_mask(&set.mask()).as_ref(), Ok(&set));
        assert_eq!(set.iter().count(), set.len());
    }
    if let Ok(set) = PuSet::parse_mask(text) {
        assert_eq!(PuSet::parse_mask(&set.mask()).as_ref(), Ok(&set));
    }
});
