//! Tables of unwinding (`.eh_frame`): no table makes the reader panic, hang or go over its budget.
#![no_main]

use colocate_observe::sample::budget::StepBudget;
use colocate_observe::sample::elf::unwind_ranges;
use libfuzzer_sys::fuzz_target;

/// More than any table of the length that the fuzzer tries takes: an entry has four bytes at least.
const STEPS_A_BYTE: u64 = 100;

fuzz_target!(|data: &[u8]| {
    let Some((head, table)) = data.split_first_chunk::<9>() else { return };
    let [kind, address @ ..] = *head;
    let mut budget = StepBudget::of(STEPS_A_BYTE * table.len() as u64 + 1_000);
    let found = unwind_ranges(table, u64::from_le_bytes(address), kind & 1 == 0, &mut budget);
    let ranges = found.expect("the work grows with the table");
    assert!(ranges.len() <= table.len() / 4);
});
