//! Classes of work of a machine instruction.
//!
//! Both methods of profiling, `sample` and `emulate`, count with the functions of this crate, so
//! that their figures are comparable. [`classify`] decodes one instruction; [`Decoder`] iterates
//! over a stretch of code.
//!
//! # Rules
//! - *Load* and *store* follow the architecture: `push` stores, `ret` loads, `lea`, `nop [mem]` and
//!   prefetch hints do neither. A repeated string instruction counts once.
//! - *Branch* is every jump, call and return. System calls and traps have no class.
//! - *Float* and *int* follow the type in the mnemonic, vectors included: `addsd` and `shufps` are
//!   float, `paddd` and `pshufd` are int. Conversions to or from floating point are float.
//!   Comparisons and selections (`cmp`, `cmov`, `csel`, `blendps`) are work.
//! - A move is no work, even with widening, insertion, extraction or broadcast. Only a move from or
//!   to memory counts, as load or store.

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
