//! A check sum of a short text.

/// FNV-1a (Fowler, Noll, Vo): enough to detect a torn line, or another list of control groups.
pub(crate) fn check_sum(text: &str) -> u32 {
    // Offset basis and prime of the 32-bit variant.
    text.bytes().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
