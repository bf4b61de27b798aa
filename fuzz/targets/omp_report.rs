//! What OpenMP programs report of their parallel regions: it is read or refused. Any process of the program's may write it.
#![no_main]

use colocate_omp::report::read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Some(regions) = read(text) {
        assert!(text.lines().count() > regions.len(), "a line for each, after the first");
    }
});
