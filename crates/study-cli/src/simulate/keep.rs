//! Directory with the figures of scenarios.

use super::load::Loaded;
use anyhow::{Context, anyhow};
use colocate_cli::exit::usage;
use colocate_cli::{input, output};
use colocate_files::Dir;
use colocate_machine::printable::json;
use colocate_study::simulate::contender::Contender;
use colocate_study::simulate::figures::Simulated;
use colocate_study::simulate::{picture, table};
use std::path::{Path, PathBuf};

/// A directory with the figures of several scenarios, by the names of their files.
pub struct Folder(PathBuf);

impl Folder {
    /// Opens the directory `dir` for the figures of `scenarios`; makes it if it is missing.
    pub fn open(dir: &Path, scenarios: &[PathBuf]) -> anyhow::Result<Self> {
        let mut stems: Vec<_> = scenarios.iter().map(|path| path.file_stem()).collect();
        stems.sort_unstable();
        if let Some(pair) = stems.windows(2).find(|pair| pair[0] == pair[1]) {
            let name = pair[0].unwrap_or_default().to_string_lossy();
            return Err(usage(format!(
                "expected scenarios of different file names, found two {name}"
            )));
        }
        Dir::open_or_make(dir, 0o777)?;
        Ok(Self(dir.to_owned()))
    }

    fn file(&self, scenario: &Path, ending: &str) -> PathBuf {
        let mut name = scenario.file_stem().unwrap_or_default().to_owned();
        name.push(ending);
        self.0.join(name)
    }

    /// Figures of a scenario that an earlier run has kept.
    pub fn finished(
        &self,
        scenario: &Path,
        loaded: &Loaded,
        resume: bool,
    ) -> anyhow::Result<Option<Simulated>> {
        let file = self.file(scenario, ".json");
        let text = match input::text(&file, input::FIGURES) {
            Err(error) if error.is_missing() => return Ok(None),
            read => read?,
        };
        let refused = |what: &str| {
            Err(anyhow!("{} {what}, or name another directory with -o", file.display()))
        };
        if !resume {
            return refused("is there already: leave it out with --resume");
        }
        let found: Simulated = serde_json::from_str(&text)
            .with_context(|| format!("cannot go on with {}", file.display()))?;
        if found.settings.inputs != loaded.inputs {
            return refused("is of another scenario, machine or setting: remove it");
        }
        Ok(Some(found))
    }

    /// Keeps the figures of a scenario. The JSON is written last: its presence means that all files
    /// are complete.
    pub fn keep(&self, scenario: &Path, loaded: &Loaded, found: &Simulated) -> anyhow::Result<()> {
        let drawn = picture::svg(found).map_err(anyhow::Error::msg)?;
        output::write(Some(&self.file(scenario, ".toml")), &loaded.effective)?;
        if let Some(name) = &loaded.machine_file {
            output::write(Some(&self.0.join(name)), &loaded.machine_json())?;
        }
        output::write(Some(&self.file(scenario, ".txt")), &table::text(found))?;
        output::write(Some(&self.file(scenario, ".svg")), &drawn)?;
        output::write(Some(&self.file(scenario, ".json")), &json(found))
    }

    /// Keeps a picture of the jobs on the PUs over time.
    pub fn keep_gantt(
        &self,
        scenario: &Path,
        policy: &Contender,
        drawn: &str,
    ) -> anyhow::Result<()> {
        let policy = policy.to_string().replace([':', '='], "-");
        output::write(Some(&self.file(scenario, &format!(".{policy}.gantt.svg"))), drawn)
    }
}
