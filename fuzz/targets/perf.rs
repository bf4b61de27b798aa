//! Records of perf events: no bytes make the reader panic or hang, and what it finds it found in them.
#![no_main]

use colocate_observe::perf::{PerfRecord, split};
use colocate_observe::sample::file::FileId;
use colocate_observe::sample::maps::Spaces;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut spaces = Spaces::default();
    let mut read = 0;
    for (whole, record) in split(data) {
        assert!(whole.len() >= 8 && data[read..].starts_with(whole));
        read += whole.len();
        let _ = record.at();
        match record {
            PerfRecord::Map(by, map) => {
                assert!(map.path.len() < whole.len() && !map.path.contains(&0));
                spaces.map(by.pid, &map, FileId::of_record(whole));
            }
            PerfRecord::Fork { created, parent_pid, .. } => spaces.fork(parent_pid, created.pid),
            PerfRecord::Exit(of) => spaces.clear(of.pid),
            PerfRecord::Sample { of, ip, .. } => {
                let _ = (spaces.origin(of.pid, ip), spaces.in_vdso(of.pid, ip));
            }
            _ => {}
        }
    }
    spaces.forget_unmapped();
});
