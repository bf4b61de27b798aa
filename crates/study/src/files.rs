//! Files of the built-in studies.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Version of the form of a study's file.
const VERSION: u32 = 1;

/// Built-in studies: name, description, file.
pub const STUDIES: [(&str, &str, &str); 9] = [
    (
        "serpa",
        "Instruction-aware mapping (Serpa et al.): SMT-Bench and all pairs of NAS benchmarks",
        include_str!("../../../studies/serpa.toml"),
    ),
    (
        "feliu-1",
        "Bandwidth-aware scheduling without SMT (Feliu, first contribution): MMaS, MHaS and IDaS",
        include_str!("../../../studies/feliu-1.toml"),
    ),
    (
        "feliu-2",
        "Bandwidth-aware scheduling with SMT (Feliu, second contribution): L1 allocation and BaS",
        include_str!("../../../studies/feliu-2.toml"),
    ),
    (
        "feliu-3",
        "Progress-aware scheduling (Feliu, third contribution): Fair and Perf&Fair",
        include_str!("../../../studies/feliu-3.toml"),
    ),
    (
        "feliu-4",
        "Symbiotic scheduling on POWER8 (Feliu, fourth contribution)",
        include_str!("../../../studies/feliu-4.toml"),
    ),
    (
        "fedorova",
        "Serial phases on fast cores (Fedorova et al.): the gain, the cost of moves, and what spinning hides",
        include_str!("../../../studies/fedorova.toml"),
    ),
    (
        "communication",
        "Communication from cache coherence (Cruz et al.): known patterns under mappings",
        include_str!("../../../studies/communication.toml"),
    ),
    (
        "contention",
        "Losses by others' traffic, and unfairness of pairs (Feliu): what a scheduler can win",
        include_str!("../../../studies/contention.toml"),
    ),
    (
        "piccoli",
        "Selective page migration (Piccoli): modes of placing pages on 4x Opteron 6282 SE",
        include_str!("../../../studies/piccoli.toml"),
    ),
];

/// Version of a file, whatever else is in it.
#[derive(Deserialize)]
struct StudyFileHeader {
    version: u32,
}

/// Reads the file of a built-in study.
///
/// # Errors
/// If no study has this name, or its file is not of this form.
pub fn read<T: DeserializeOwned>(name: &str) -> Result<T, String> {
    let text = STUDIES.iter().find(|(own, ..)| *own == name);
    let (.., text) = text.ok_or_else(|| format!("expected a study, found {name:?}"))?;
    let head: StudyFileHeader = toml::from_str(text).map_err(|error| format!("{name}: {error}"))?;
    if head.version != VERSION {
        return Err(format!("{name}: version"));
    }
    toml::from_str(text).map_err(|error| format!("{name}: {error}"))
}
