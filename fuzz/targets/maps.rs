//! Texts of `/proc/PID/maps`: none makes the reader panic or hang, and what was mapped last is what is there.
#![no_main]

use colocate_linux::Pid;
use colocate_linux::proc::code_maps;
use colocate_observe::sample::maps::{CodeLocation, Spaces};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut spaces = Spaces::default();
    for (number, map) in code_maps(data).enumerate() {
        let pid = Pid(i32::try_from(number % 3).unwrap_or(0));
        spaces.found(pid, &map);
        if number % 5 == 4 {
            spaces.fork(pid, Pid(3));
        }
        // One without an address changes nothing.
        let is_some = map.start < map.end;
        if let CodeLocation::File(file, offset_b) = spaces.origin(pid, map.start)
            && is_some
        {
            let known = spaces.file(file).expect("it is mapped");
            assert_eq!(offset_b, map.offset_b);
            assert_eq!(known.path, std::path::Path::new(&*map.path));
        }
        let _ = (spaces.origin(pid, map.end), spaces.in_vdso(pid, map.start));
    }
    spaces.clear(Pid(0));
    spaces.forget_unmapped();
});
