//! The library that watches OpenMP programs from inside: where it is, and how a program gets it.

use crate::launch::own_folder;
use anyhow::Context;
use colocate_files::{Dir, MaxSize};
use colocate_omp::env;
use colocate_omp::report::{Reported, read};
use std::cmp::Reverse;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The library, and a folder for what it reports.
pub struct Library {
    file: PathBuf,
    folder: (TempDir, Dir),
}

/// Most bytes of a report. Chosen: a KiB for each of 16,384 parallel regions.
const REPORT: MaxSize = MaxSize::mib(16);

/// Most reports that are read at a time, one of each process. Chosen.
const REPORTS: usize = 10_000;

impl Library {
    /// Finds it: where cargo puts it, beside the program, the newest first, then where an installed program has it.
    pub fn find() -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("cannot find our own executable")?;
        let beside = own.parent().unwrap_or(Path::new("/"));
        let built = ["", "deps", "../release", "../debug"]
            .map(|folder| beside.join(folder).join(env::LIBRARY));
        let mut built: Vec<PathBuf> = built.into_iter().filter(|path| path.is_file()).collect();
        built.sort_by_key(|path| Reverse(path.metadata().and_then(|found| found.modified()).ok()));
        let installed = beside.join("../lib/colocate").join(env::LIBRARY);
        let found = built.into_iter().next().or_else(|| installed.is_file().then_some(installed));
        let file = found.with_context(|| {
            let (library, beside) = (env::LIBRARY, beside.display());
            format!("expected {library} in {beside} or {beside}/../lib/colocate, found none: cargo build -p colocate-omp makes it")
        })?;
        let file = file.canonicalize().with_context(|| file.display().to_string())?;
        // The loader takes both for the end of a name.
        let strange = file.to_str().is_none_or(|path| path.contains([' ', ':']));
        anyhow::ensure!(
            !strange,
            "expected a path without blanks and colons, found {}",
            file.display()
        );
        Ok(Self { file, folder: own_folder("threads-")? })
    }

    /// Lets `command` load it, before what it would load anyway, with at most so many threads.
    pub fn preload(&self, command: &mut Command, most: u32, apply: bool) {
        let mut list = self.file.clone().into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            list.push(":");
            list.push(others);
        }
        let number = OsString::from(most.to_string());
        command
            .env("LD_PRELOAD", list)
            .env(env::REPORT, self.folder.0.path())
            .env(env::MOST, number);
        command.env(env::APPLY, if apply { "1" } else { "0" });
    }

    /// What processes have reported since it was asked last. A program can put anything there: only plain files are
    /// read, no link is followed.
    pub fn reports(&self) -> Vec<Reported> {
        let dir = &self.folder.1;
        let mut names = dir.names(REPORTS).unwrap_or_default();
        names.sort();
        let texts = names.iter().filter_map(|name| {
            let text = dir.read_text(name, REPORT);
            let _ = dir.remove(name);
            read(&text.ok()?)
        });
        texts.flatten().collect()
    }
}
