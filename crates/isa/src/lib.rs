//! What kind of work one machine instruction is.
//!
//! Both ways of decoding programs, `sample` and `emulate`, count with the functions of this crate,
//! so that their figures mean the same. [`classify`] looks at one instruction, [`Decoder`] walks
//! through a stretch of code.
//!
//! # Rules
//! - *Load* and *store* are what the instruction does architecturally: `push` stores, `ret` loads,
//!   `lea`, `nop [mem]` and prefetch hints do neither. A repeated string instruction counts once.
//! - *Branch* is every jump, call and return. System calls and traps are of no class.
//! - *Float* and *int* follow the type that the mnemonic names, vectors included: `addsd` and
//!   `shufps` are float, `paddd` and `pshufd` are int. Conversions to or from floating point are
//!   float. Comparisons and selections (`cmp`, `cmov`, `csel`, `blendps`) are work.
//! - A move is no work, also when it widens, inserts, extracts or broadcasts: it only loads or
//!   stores if it touches memory.

mod aarch64;
mod assembly;
pub mod class;
pub mod counts;
mod decode;
pub mod effect;
pub mod operand;
pub mod system;
mod x86;

pub use assembly::{Arithmetic, arithmetic, assembly};
pub use class::{Class, ClassCounts, ClassSet};
pub use decode::{Decoded, Decoder, Flow, Isa, classify};
pub use x86::{is_repeated_string, mnemonic, needs_beyond_avx2};
