//! Finds QEMU and its plugin.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use thiserror::Error;

/// Places to search.
#[derive(Clone, Debug, Default)]
pub struct SearchPaths {
    /// The only QEMU to use, if given.
    pub qemu: Option<PathBuf>,
    /// The only plugin to use, if given.
    pub plugin: Option<PathBuf>,
    /// Folder of this program's executable.
    pub beside: Option<PathBuf>,
    /// Cache folder that `scripts/build-qemu` fills.
    pub cache: Option<PathBuf>,
}

impl SearchPaths {
    /// Default places, from the environment that `variable` reads.
    #[must_use]
    pub fn from_env(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let cache = path_in(&variable, "COLOCATE_CACHE").or_else(|| {
            let base = path_in(&variable, "XDG_CACHE_HOME")
                .or_else(|| Some(path_in(&variable, "HOME")?.join(".cache")))?;
            Some(base.join("colocate"))
        });
        let own = std::env::current_exe().ok();
        let beside = own.and_then(|path| path.parent().map(Path::to_owned));
        Self { qemu: None, plugin: None, beside, cache }
    }

    /// Candidates for QEMU, in order: the cache folder, `lib/colocate` beside an installed program.
    fn qemus(&self) -> Vec<PathBuf> {
        let name = format!("qemu-{}", std::env::consts::ARCH);
        if let Some(one) = &self.qemu {
            return vec![one.clone()];
        }
        let cached = self.cache.iter().map(|cache| cache.join("qemu").join(&name));
        cached.chain(self.installed(&name)).collect()
    }

    /// Candidates for the plugin, in order: cargo's output folders, the newest first (beside the
    /// program, or in `release` or `debug` next to that folder); then the installed place, then the
    /// cache folder.
    fn plugins(&self) -> Vec<PathBuf> {
        const NAME: &str = "libcolocate_tracer.so";
        if let Some(one) = &self.plugin {
            return vec![one.clone()];
        }
        let built = self.beside.iter().flat_map(|beside| {
            ["", "../release", "../debug"].map(|folder| beside.join(folder).join(NAME))
        });
        let mut built: Vec<PathBuf> = built.collect();
        // Cargo does not refresh the other profile's build, so the newest file is the current one.
        built.sort_by_key(|path| Reverse(path.metadata().and_then(|found| found.modified()).ok()));
        let cached = self.cache.iter().map(|cache| cache.join("qemu").join(NAME));
        built.into_iter().chain(self.installed(NAME)).chain(cached).collect()
    }

    fn installed(&self, name: &str) -> Option<PathBuf> {
        Some(self.beside.as_ref()?.join("../lib/colocate").join(name))
    }
}

/// Path in an environment variable; an empty variable counts as unset.
fn path_in(variable: &impl Fn(&str) -> Option<OsString>, name: &str) -> Option<PathBuf> {
    variable(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
/// A QEMU and a plugin for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulator {
    /// Executable of the emulator.
    pub qemu: PathBuf,
    /// Plugin.
    pub plugin: PathBuf,
    /// Version that QEMU reports.
    pub version: String,
}

/// Reason why programs cannot be emulated here, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EmulationFailure {
    /// No QEMU at these places.
    #[error("no QEMU with plugins in {}; build one with `make tracer`", list(.0))]
    NoQemu(Vec<PathBuf>),
    /// No plugin at these places.
    #[error("no plugin in {}; build it with `make tracer`", list(.0))]
    NoPlugin(Vec<PathBuf>),
    /// QEMU that does not run, with the system's or its own message.
    #[error("{} does not run: {}; build it again with `scripts/build-qemu --again`", .0.display(), .1)]
    QemuBroken(PathBuf, String),
    /// QEMU built without plugins, as in Debian 13, or not the user-mode emulator.
    #[error("{} cannot load plugins; build one that can with `make tracer`", .0.display())]
    NoPlugins(PathBuf),
    /// Processor whose programs cannot be counted.
    #[error(
        "programs for {} cannot be counted, only those for x86_64 and aarch64",
        std::env::consts::ARCH
    )]
    Architecture,
}

fn list(paths: &[PathBuf]) -> String {
    let texts: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    if texts.is_empty() { "any known place".into() } else { texts.join(", ") }
}

/// Finds QEMU and the plugin, and checks that they fit together.
///
/// # Errors
/// The missing part, with the remedy.
pub fn available(places: &SearchPaths) -> Result<Emulator, EmulationFailure> {
    if colocate_isa::Isa::native().is_none() {
        return Err(EmulationFailure::Architecture);
    }
    let looked = places.qemus();
    let qemu = first_file(&looked).ok_or(EmulationFailure::NoQemu(looked))?;
    let version = version_of(&qemu)?;
    let looked = places.plugins();
    let plugin = first_file(&looked).ok_or(EmulationFailure::NoPlugin(looked))?;
    Ok(Emulator { qemu, plugin, version })
}

fn first_file(paths: &[PathBuf]) -> Option<PathBuf> {
    paths.iter().find(|path| path.is_file()).cloned()
}

fn output_of(qemu: &Path, option: &str) -> Result<Output, EmulationFailure> {
    let output = Command::new(qemu).arg(option).stdin(Stdio::null()).output();
    output.map_err(|error| EmulationFailure::QemuBroken(qemu.to_owned(), error.to_string()))
}

fn version_of(qemu: &Path) -> Result<String, EmulationFailure> {
    let said = output_of(qemu, "--version")?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    // "qemu-x86_64 version 10.0.2 (…)"
    let version = text.split_whitespace().skip_while(|word| *word != "version").nth(1);
    let Some(version) = version else {
        let words = String::from_utf8_lossy(&said.stderr);
        let reason = words.lines().next().unwrap_or("it says no version").to_owned();
        return Err(EmulationFailure::QemuBroken(qemu.to_owned(), reason));
    };
    // A QEMU built without plugins lacks the option in its help.
    if !String::from_utf8_lossy(&output_of(qemu, "--help")?.stdout).contains("-plugin") {
        return Err(EmulationFailure::NoPlugins(qemu.to_owned()));
    }
    Ok(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_testing::skip;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, SystemTime};

    fn places(folder: &Path) -> SearchPaths {
        SearchPaths {
            beside: Some(folder.join("bin")),
            cache: Some(folder.into()),
            ..SearchPaths::default()
        }
    }

    fn fake(path: &Path, script: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, script).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn each_missing_part_is_named_with_its_remedy() {
        if colocate_isa::Isa::native().is_none() {
            skip!(KnownIsa, "neither x86-64 nor aarch64");
        }
        let folder = tempfile::tempdir().unwrap();
        let places = places(folder.path());
        let qemu = folder.path().join("qemu").join(format!("qemu-{}", std::env::consts::ARCH));
        let why = available(&places).unwrap_err();
        assert!(matches!(&why, EmulationFailure::NoQemu(looked) if looked[0] == qemu), "{why}");
        assert!(why.to_string().contains("`make tracer`"), "{why}");

        fake(&qemu, "#!/bin/sh\necho no >&2; exit 1\n");
        let why = available(&places).unwrap_err();
        assert!(matches!(&why, EmulationFailure::QemuBroken(_, said) if said == "no"), "{why}");

        fake(&qemu, "#!/bin/sh\necho qemu-x version 9.9.9 by us\n");
        assert_eq!(available(&places).unwrap_err(), EmulationFailure::NoPlugins(qemu.clone()));

        fake(&qemu, "#!/bin/sh\necho qemu-x version 9.9.9 by us, -plugin\n");
        assert!(matches!(available(&places), Err(EmulationFailure::NoPlugin(..))));

        let plugin = folder.path().join("bin/libcolocate_tracer.so");
        fake(&plugin, "");
        let found = available(&places).unwrap();
        assert_eq!(found, Emulator { qemu, plugin, version: "9.9.9".into() });
    }

    #[test]
    fn of_two_builds_the_newer_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        let [debug, release] = ["debug", "release"].map(|kind| folder.path().join(kind));
        let places = SearchPaths { beside: Some(debug.clone()), ..SearchPaths::default() };
        let build = |kind: &Path, age_s: u64| {
            let plugin = kind.join("libcolocate_tracer.so");
            fake(&plugin, "");
            let then = SystemTime::now() - Duration::from_secs(age_s);
            std::fs::File::open(&plugin).unwrap().set_modified(then).unwrap();
        };
        let first = || places.plugins()[0].canonicalize().unwrap().parent().unwrap().to_owned();
        build(&debug, 200);
        assert_eq!(first(), debug.canonicalize().unwrap());
        build(&release, 100);
        assert_eq!(first(), release.canonicalize().unwrap());
        build(&debug, 50);
        assert_eq!(first(), debug.canonicalize().unwrap());
    }

    #[test]
    fn the_cache_folder_is_the_scripts() {
        let cache = |pairs: &[(&str, &str)]| {
            let find = |name: &str| pairs.iter().find(|p| p.0 == name).map(|p| p.1.into());
            SearchPaths::from_env(find).cache
        };
        assert_eq!(cache(&[("HOME", "/h")]), Some("/h/.cache/colocate".into()));
        assert_eq!(cache(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]), Some("/x/colocate".into()));
        assert_eq!(cache(&[("HOME", "/h"), ("COLOCATE_CACHE", "/c")]), Some("/c".into()));
        assert_eq!(
            cache(&[("HOME", "/h"), ("COLOCATE_CACHE", "")]),
            Some("/h/.cache/colocate".into())
        );
        assert_eq!(cache(&[]), None);
    }
}
