//! Kinds of cores that were measured (`colocate bench cores`), in place of those that are reported.

use anyhow::{Context, ensure};
use colocate_machine::measured::CoreSpeeds;
use colocate_machine::read::{Sysfs, usable};
use colocate_machine::{CoreKind, Machine, PuSet};
use std::io::Read;
use std::path::Path;

/// Most bytes that are read: a machine with as many PUs as Linux allows needs 4 MiB.
const MAX_BYTES: u64 = 16 << 20;

/// `machine` with the kinds that were measured, as the file at `path` says.
///
/// # Errors
/// If the file cannot be read or is none, was measured on another machine, or leaves out a core that may be used.
pub fn measured(path: &Path, machine: &Machine) -> anyhow::Result<Machine> {
    let cannot = || format!("cannot use --core-speeds {}", path.display());
    let speeds = CoreSpeeds::from_json(&text(path).with_context(cannot)?).with_context(cannot)?;
    let measured = speeds.of_machine(machine).with_context(cannot)?;
    let left_out = left_out(&speeds, machine);
    ensure!(
        left_out.is_empty(),
        "{}: expected speeds of all cores that may be used, found none of PUs {left_out}; measure again without \
         --cpus",
        cannot()
    );
    Ok(measured)
}

/// What the reader of a report has to know: whose kinds these are.
pub fn note(asked: Option<&Path>, machine: &Machine) -> Option<String> {
    let path = asked?;
    let kind = |(place, kind): (usize, &CoreKind)| {
        let cores = machine.cores.iter().filter(|core| core.kind.idx() == place);
        let pus: PuSet =
            cores.flat_map(|core| &core.pus).map(|pu| machine.pus[pu.idx()].os).collect();
        let known = kind.capacity.map(|capacity| format!(", capacity {capacity}"));
        format!("{}{}: PU {pus}", kind.name, known.unwrap_or_default())
    };
    let kinds: Vec<String> = machine.kinds.iter().enumerate().map(kind).collect();
    Some(format!("kinds of cores as measured ({}): {}", path.display(), kinds.join("; ")))
}

/// The usable PUs of cores none of which was measured.
fn left_out(speeds: &CoreSpeeds, machine: &Machine) -> PuSet {
    let measured = speeds.measured();
    let usable = usable(machine, &Sysfs::at(Path::new("/"))).pus;
    let os = |pu: &colocate_machine::PuIdx| machine.pus[pu.idx()].os;
    let unknown = usable.iter().filter(|&&pu| {
        let core = &machine.cores[machine.core_of(pu).idx()];
        !core.pus.iter().any(|sibling| measured.contains(os(sibling)))
    });
    unknown.map(os).collect()
}

fn text(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    // A device or a pipe has no size, and perhaps no end.
    std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= MAX_BYTES, "expected at most {MAX_BYTES} bytes, found more");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::read;

    /// A machine that nobody measured: four cores of one kind.
    #[test]
    fn the_note_names_kinds_and_their_pus() {
        let mut machine = read::synthetic("pack:1 core:4 pu:1").unwrap();
        assert_eq!(note(None, &machine), None);
        let told = |machine: &Machine| note(Some(Path::new("cores.json")), machine).unwrap();
        assert_eq!(told(&machine), "kinds of cores as measured (cores.json): core: PU 0-3");
        machine.kinds = [("slow", 512), ("fast", 1024)]
            .map(|(name, capacity)| CoreKind {
                name: name.to_owned(),
                capacity: Some(capacity),
                max_frequency: None,
            })
            .to_vec();
        machine.cores[2].kind = colocate_machine::KindIdx(1);
        assert_eq!(
            told(&machine),
            "kinds of cores as measured (cores.json): slow, capacity 512: PU 0-1,3; fast, capacity 1024: PU 2"
        );
    }
}
