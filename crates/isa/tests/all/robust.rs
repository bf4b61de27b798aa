//! Any bytes at all: an answer, never a panic.

use colocate_isa::{Decoder, Isa, classify};
use proptest::prelude::*;

fn any_isa() -> impl Strategy<Value = Isa> {
    prop_oneof![Just(Isa::X86_64), Just(Isa::Aarch64)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_bytes_decode_or_do_not(
        isa in any_isa(),
        bytes in prop::collection::vec(any::<u8>(), 0..20),
        ip in any::<u64>(),
    ) {
        if let Some(found) = classify(isa, &bytes, ip) {
            prop_assert!(usize::from(found.len) <= isa.max_len().min(bytes.len()));
            prop_assert!(found.len >= 1);
            prop_assert_eq!(found.ip, ip);
        }
    }

    #[test]
    fn only_the_instructions_own_bytes_matter(
        isa in any_isa(),
        bytes in prop::collection::vec(any::<u8>(), 15..20),
        ip in any::<u64>(),
    ) {
        if let Some(found) = classify(isa, &bytes, ip) {
            let own = &bytes[..usize::from(found.len)];
            prop_assert_eq!(classify(isa, own, ip), Some(found));
            prop_assert_eq!(classify(isa, &own[1..], ip).filter(|f| f.len == found.len), None);
        }
    }

    #[test]
    fn a_walk_is_without_gaps(
        isa in any_isa(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        ip in any::<u64>(),
    ) {
        let mut expected = ip;
        for found in Decoder::new(isa, &bytes, ip) {
            prop_assert_eq!(found.ip, expected);
            expected = found.next_ip();
        }
        prop_assert!(expected.wrapping_sub(ip) <= bytes.len() as u64);
    }
}

/// A64 words have few bits that matter to control flow, so a coarse grid reaches every group.
#[test]
fn aarch64_grid() {
    for high in 0..=0xffff_u32 {
        for low in [0, 0xffff, 0x0820, 0x7c1f, 0xfc00 | high >> 11] {
            let word = high << 16 | low;
            if let Some(found) = classify(Isa::Aarch64, &word.to_le_bytes(), 0x1000) {
                assert_eq!(found.len, 4);
            }
        }
    }
}
