//! Executables: no file makes the reader panic, hang or go over its budget.
#![no_main]

use colocate_isa::Decoder;
use colocate_observe::sample::budget::StepBudget;
use colocate_observe::sample::elf::{MOST_STEPS, Tables};
use colocate_observe::sample::flow::Graph;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;

fuzz_target!(|data: &[u8]| {
    let mut budget = StepBudget::of(u64::MAX);
    let found = Tables::read(data, &mut budget);
    assert!(u64::MAX - budget.left() <= MOST_STEPS);
    let Some(tables) = found else { return };
    let functions = &tables.functions;
    assert!(functions.iter().all(|function| !function.is_empty()));
    assert!(functions.windows(2).all(|pair| pair[0].end <= pair[1].start));
    for function in functions.iter().take(16) {
        assert_eq!(tables.function(function.start).as_ref(), Some(function));
        assert_eq!(tables.function(function.end - 1).as_ref(), Some(function));
        let bytes = tables.bytes(data, function.clone(), 1 << 12);
        assert!(bytes.len() <= 1 << 12 && bytes.len() as u64 <= function.end - function.start);
        let code: Vec<_> = Decoder::new(tables.isa, &bytes, function.start).collect();
        let _ = Graph::of(&code, &BTreeSet::from([function.start]), &mut StepBudget::of(10_000_000));
    }
    for offset_b in [0, 1, data.len() as u64, u64::MAX] {
        let _ = tables.address(offset_b).map(|address| tables.bytes(data, address..u64::MAX, 64));
    }
});
