//! The cache of unpacked Debian packages for guests, filled by `lab/fetch`.

use crate::boot::started;
use anyhow::{Context as _, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The cache folder: `$COLOCATE_CACHE/lab`, else `colocate/lab` in the user's cache folder.
pub struct CacheFolder {
    dir: PathBuf,
}

/// `below` in the folder of an environment variable; `None` if the variable is unset or empty.
fn folder_in(variable: &str, below: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable).filter(|value| !value.is_empty())?;
    Some(Path::new(&folder).join(below))
}

impl CacheFolder {
    /// Finds the folder, which need not exist yet.
    ///
    /// # Errors
    /// If none of `COLOCATE_CACHE`, `XDG_CACHE_HOME` and `HOME` is set.
    pub fn find() -> anyhow::Result<Self> {
        let colocate = folder_in("COLOCATE_CACHE", "")
            .or_else(|| folder_in("XDG_CACHE_HOME", "colocate"))
            .or_else(|| folder_in("HOME", ".cache/colocate"));
        let Some(colocate) = colocate else {
            bail!("expected COLOCATE_CACHE, XDG_CACHE_HOME or HOME, found none of them");
        };
        Ok(Self { dir: colocate.join("lab") })
    }

    /// Fetches missing sets, and starts to compare the files of all sets with their hashes.
    ///
    /// # Errors
    /// If a set is missing and cannot be fetched.
    pub fn require(&self, sets: &BTreeSet<&str>) -> anyhow::Result<Checked> {
        let fetch = concat!(env!("CARGO_MANIFEST_DIR"), "/fetch");
        let mut command = Command::new(fetch);
        // Standard output is for the guest's program alone.
        command.args(sets).stdin(Stdio::null()).stdout(std::io::stderr());
        let status = command.status().with_context(|| format!("cannot start {fetch}"))?;
        if !status.success() {
            bail!("the lab lacks one of: {}", Vec::from_iter(sets.iter().copied()).join(", "));
        }
        sets.iter().map(|set| self.check(set)).collect::<Result<_, _>>().map(Checked)
    }

    /// Folder of a set's unpacked packages.
    #[must_use]
    pub fn root(&self, set: &str) -> PathBuf {
        self.dir.join(set)
    }

    /// The folder itself.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.dir
    }

    fn check(&self, set: &str) -> anyhow::Result<Check> {
        let list = self.dir.join(format!("{set}.sha256"));
        let mut command = Command::new("sha256sum");
        command.args(["--check", "--quiet", "--strict"]).arg(&list).current_dir(self.root(set));
        // Standard output names the files that differ.
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let child = started(&mut command)?;
        Ok(Check { set: set.to_owned(), list, child })
    }
}

/// Running checks, one process per set, parallel to the caller.
#[must_use]
pub struct Checked(Vec<Check>);

struct Check {
    set: String,
    list: PathBuf,
    child: Child,
}

impl Checked {
    /// Waits for the checks.
    ///
    /// # Errors
    /// If a file of a set has changed since it was fetched.
    pub fn wait(self) -> anyhow::Result<()> {
        self.0.into_iter().try_for_each(Check::wait)
    }
}

impl Check {
    fn wait(self) -> anyhow::Result<()> {
        let output = self.child.wait_with_output().context("sha256sum cannot be waited for")?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let first = said.lines().next().unwrap_or("a list of hashes without lines").to_owned();
        let Self { set, list, .. } = self;
        bail!(
            "{}: changed since it was fetched: {first}; run lab/fetch --again {set}",
            list.display()
        )
    }
}
