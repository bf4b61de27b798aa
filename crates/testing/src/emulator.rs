//! QEMU and the plugin for tests that count instructions.

use crate::skip::{Missing, Requirement};
use colocate_observe::emulate::{Emulator, SearchPaths, available};
use std::path::Path;

/// QEMU and the plugin, as `program`, one of the built ones, finds them.
///
/// # Errors
/// If there is none of either.
pub fn emulator(program: &str) -> Result<Emulator, Missing> {
    let mut places = SearchPaths::from_env(|name| std::env::var_os(name));
    places.beside = Path::new(program).parent().map(Path::to_owned);
    available(&places).map_err(|why| Requirement::Qemu.missing(why))
}
