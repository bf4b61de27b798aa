//! Files of stored measurements: one for each machine, named by its identity.

use super::error::ReadError;
use crate::calibrated::identity;
use crate::exact::Exact;
use crate::machine::Machine;
use colocate_files::{Accept, MaxSize};
use std::ffi::OsString;
use std::path::PathBuf;

/// Folder for all users, written by root.
const SYSTEM: &str = "/var/lib/colocate";
/// Largest file. Chosen: 256 bytes for each of the most figures of a calibration.
const LIMIT: MaxSize = MaxSize::mib(32);

/// Folders of measurements, in order of search: `$XDG_STATE_HOME/colocate` or
/// `~/.local/state/colocate`, then `/var/lib/colocate`. `set` returns environment variables.
#[must_use]
pub fn folders(set: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let state = absolute(&set, "XDG_STATE_HOME")
        .or_else(|| Some(absolute(&set, "HOME")?.join(".local/state")));
    let own = state.map(|base| base.join("colocate"));
    own.into_iter().chain([SYSTEM.into()]).collect()
}

/// An environment variable as an absolute path. The XDG specification ignores relative paths.
fn absolute(set: impl Fn(&str) -> Option<OsString>, name: &str) -> Option<PathBuf> {
    set(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Folder for new measurements: the system's for root, unless `XDG_STATE_HOME` is set.
#[must_use]
pub fn folder(root: bool, set: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let named = set("XDG_STATE_HOME").is_some();
    let mut folders = folders(set);
    if root && !named { SYSTEM.into() } else { folders.swap_remove(0) }
}

/// File name of the measurements of `machine` as reported.
#[must_use]
pub fn file_name(machine: &Machine) -> String {
    format!("machine-{}.json", identity(machine))
}

/// Finds the stored measurements of `machine` as reported, with the path of their file; `None`
/// without a file.
///
/// # Errors
/// [`ReadError::Wrong`] if the file cannot be used.
pub fn find(machine: &Machine) -> Result<Option<(PathBuf, Exact)>, ReadError> {
    find_in(machine, &folders(|name| std::env::var_os(name)))
}

fn find_in(machine: &Machine, folders: &[PathBuf]) -> Result<Option<(PathBuf, Exact)>, ReadError> {
    let name = file_name(machine);
    for folder in folders {
        let path = folder.join(&name);
        match colocate_files::read_text(&path, Accept::File, LIMIT) {
            Ok(text) => {
                let origin =
                    format!("{} (`colocate calibrate --forget` removes it)", path.display());
                let exact = Exact::from_json(&text).map_err(|why| ReadError::wrong(origin, why))?;
                return Ok(Some((path, exact)));
            }
            // The home of another user after su(1) or sudo(8).
            Err(why) if why.is_missing() || why.is_denied() => {}
            Err(why) => return Err(ReadError::file(&path, &why)),
        }
    }
    Ok(None)
}

/// Applies the stored measurements to `machine`: groups of PUs, sizes of caches and speeds.
pub(super) fn applied(machine: Machine) -> Result<Exact, ReadError> {
    Ok(with(find(&machine)?.map(|(_, exact)| exact), machine))
}

/// The stored machine with the name and memory of the reported one. Ignored if another number of
/// PUs is online.
fn with(kept: Option<Exact>, reported: Machine) -> Exact {
    let kept = kept.filter(|exact| exact.machine.pus.len() == reported.pus.len());
    let Some(mut exact) = kept else { return Exact::new(reported, None) };
    exact.machine.name = reported.name;
    // A virtual machine may have got or lost memory since.
    for node in &mut exact.machine.nodes {
        let now = reported.nodes.iter().find(|now| now.os == node.os);
        node.memory = now.and_then(|now| now.memory);
    }
    exact
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    fn env(set: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        |name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
    }

    #[test]
    fn folders_by_the_environment() {
        let home = env(&[("HOME", "/h")]);
        assert_eq!(folders(&home), [PathBuf::from("/h/.local/state/colocate"), SYSTEM.into()]);
        assert_eq!(folder(false, &home), PathBuf::from("/h/.local/state/colocate"));
        assert_eq!(folder(true, &home), PathBuf::from(SYSTEM));
        let named = env(&[("HOME", "/h"), ("XDG_STATE_HOME", "/x")]);
        assert_eq!(folder(true, &named), PathBuf::from("/x/colocate"));
        assert_eq!(folders(env(&[("HOME", "h")])), [PathBuf::from(SYSTEM)]);
    }

    #[test]
    fn kept_by_identity() {
        let machine = crate::read::open("xeon-x3320").unwrap();
        let dir = std::env::temp_dir().join(format!("colocate-kept-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let folders = [dir.join("missing"), dir.clone()];
        assert!(find_in(&machine, &folders).unwrap().is_none());
        let mut measured = machine.clone();
        measured.caches[0].size = Some(Bytes(4096));
        let path = dir.join(file_name(&machine));
        std::fs::write(&path, Exact::new(measured.clone(), None).to_json()).unwrap();
        let (found, exact) = find_in(&machine, &folders).unwrap().unwrap();
        assert_eq!((&found, &exact.machine), (&path, &measured));
        assert_eq!(with(Some(exact), machine.clone()).machine, measured);
        std::fs::write(&path, "{").unwrap();
        let error = find_in(&machine, &folders).unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()) && !error.contains('\n'), "{error}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
