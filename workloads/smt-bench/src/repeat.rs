//! Repetitions in the text of loops.

/// Repeats the lines 32 times.
macro_rules! thirty_two_times {
    ($lines:expr) => {
        concat!(
            eight_times!($lines),
            eight_times!($lines),
            eight_times!($lines),
            eight_times!($lines)
        )
    };
}

/// Repeats the lines eight times.
macro_rules! eight_times {
    ($lines:expr) => {
        concat!($lines, $lines, $lines, $lines, $lines, $lines, $lines, $lines)
    };
}

/// Jumps back to a label while a register, counted down, is not 0.
#[cfg(target_arch = "x86_64")]
macro_rules! back {
    ($left:literal, $label:literal) => {
        concat!("dec {", $left, "}\njnz ", $label)
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! back {
    ($left:literal, $label:literal) => {
        concat!("sub {", $left, "}, {", $left, "}, #1\ncbnz {", $left, "}, ", $label)
    };
}
