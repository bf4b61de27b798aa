//! The folder of unpacked Debian packages that guests are made of; `lab/fetch` fills it.

use crate::boot::started;
use anyhow::{Context as _, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The cache folder: `$COLOCATE_CACHE/lab`, else `colocate/lab` in the user's cache folder.
pub struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// Finds the folder, which need not exist yet.
    ///
    /// # Errors
    /// If no environment variable says where it is.
    pub fn find() -> anyhow::Result<Self> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let colocate = variable("COLOCATE_CACHE").map(PathBuf::from).or_else(|| {
            let home = || variable("HOME").map(|home| Path::new(&home).join(".cache"));
            let caches = variable("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
            Some(caches?.join("colocate"))
        });
        let Some(colocate) = colocate else {
            bail!("expected COLOCATE_CACHE, XDG_CACHE_HOME or HOME, found none of them");
        };
        Ok(Self { dir: colocate.join("lab") })
    }

    /// Makes sure that the sets are there, and begins to check that they are what was fetched.
    ///
    /// # Errors
    /// If a set can neither be found nor fetched.
    pub fn require(&self, sets: &BTreeSet<&str>) -> anyhow::Result<Checked> {
        let fetch = concat!(env!("CARGO_MANIFEST_DIR"), "/fetch");
        let mut command = Command::new(fetch);
        // What it says must not be taken for the output of a guest's program.
        command.args(sets).stdin(Stdio::null()).stdout(std::io::stderr());
        let status = command.status().with_context(|| format!("cannot start {fetch}"))?;
        if !status.success() {
            bail!("the lab lacks one of: {}", Vec::from_iter(sets.iter().copied()).join(", "));
        }
        sets.iter().map(|set| self.check(set)).collect::<Result<_, _>>().map(Checked)
    }

    /// Where the packages of a set are unpacked.
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
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let child = started(&mut command)?;
        Ok(Check { set: set.to_owned(), list, child })
    }
}

/// Checks under way: one process a set, beside each other and beside what the caller does.
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
    /// If a file of a set is not what was fetched.
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
