//! A training set on this machine: each group runs in its own process.
//!
//! A host forks, and takes over signals and priorities for good, so a process serves one group.

use super::CpiModelArgs;
use anyhow::{Context, anyhow, ensure};
use colocate_cli::children;
use colocate_cli::exit::{no_capability, stopped};
use colocate_cli::input;
use colocate_cli::launch::own_folder;
use colocate_cli::output::{self, Bar};
use colocate_cli::schedule::workload::Workload;
use colocate_cli::stop::stop_flag;
use colocate_files::{FileMode, MaxSize};
use colocate_linux::sys;
use colocate_machine::read::{self, Sysfs};
use colocate_machine::{Machine, Nanos, PuIdx, PuNr};
use colocate_model::CpiModel;
use colocate_model::stack::StackParts;
use colocate_model::symbiosis::file::counted_components;
use colocate_observe::pmu::{CounterSet, Counters};
use colocate_study::replication::StudyError;
use colocate_study::train::{
    ModelMetadata, Subject, Track, TrainingBench, TrainingSettings, runs, train_on,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// Default settings on this machine. Chosen: intervals of half a quantum, so that the cost of
/// reading counters is small, and two seconds of each program.
pub const SETTINGS: TrainingSettings =
    TrainingSettings { interval: Nanos::from_millis(100), intervals: 20, groups: 300, seed: 0 };

/// Greatest size of a group's result. Chosen: 1,000 intervals of eight programs take a tenth of it.
const LIMIT: MaxSize = MaxSize::mib(16);

/// Trains with the jobs of a workload file on the siblings of a core of this machine.
pub fn trained(args: &CpiModelArgs, path: &Path, date: &str) -> anyhow::Result<CpiModel> {
    let workload = Workload::read(path)?;
    let machine = read::live()?;
    let parts = parts(args.pretend)?;
    let siblings = siblings(&machine, args.pretend)?;
    let subject = Subject {
        machine: &machine,
        simulated: false,
        siblings: siblings.len(),
        parts: parts.iter().map(|part| (*part).to_owned()).collect(),
        components: counted_components(parts),
        programs: workload.jobs.iter().map(|job| job.name.clone()).collect(),
    };
    let settings = args.settings();
    let pus: Vec<String> = siblings.iter().map(|pu| pu.0.to_string()).collect();
    let data = format!(
        "{} programs of {}, {}, on PUs {}",
        subject.programs.len(),
        path.display(),
        args.intervals(),
        pus.join(" and ")
    );
    let runs = runs(&subject, &settings)?;
    output::remark(&expected_time(runs, &settings));
    let (folder, _) = own_folder("colocate-train-")?;
    let mut bench = LocalCore {
        ourselves: std::env::current_exe().context("cannot find our own executable")?,
        workload: path,
        pus,
        pretend: args.pretend,
        programs: &subject.programs,
        folder,
        stop: stop_flag()?,
        is_stopped: false,
        bar: Bar::new(runs as u64, "{bar:30} {pos}/{len} {wide_msg}", false),
    };
    let stamp = ModelMetadata { colocate: env!("CARGO_PKG_VERSION"), date, data: &data };
    let trained = train_on(&mut bench, &subject, &settings, &stamp);
    bench.bar.clear();
    if bench.is_stopped {
        return Err(stopped("stopped: nothing is trained".to_owned()));
    }
    trained.with_context(|| format!("cannot train with {}", path.display()))
}

/// Estimated duration, as a line for the user.
fn expected_time(runs: usize, settings: &TrainingSettings) -> String {
    let each = settings.interval.as_secs_f64() * f64::from(settings.intervals + 1);
    let all = runs as f64 * each;
    let all = if all < 120.0 { format!("{all:.0} s") } else { format!("{:.0} min", all / 60.0) };
    format!("{runs} runs of {each:.1} s each take {all} or more")
}

/// Usable PUs of the first core with most usable PUs.
fn siblings(machine: &Machine, pretend: bool) -> anyhow::Result<Vec<PuNr>> {
    let usable = read::usable(machine, &Sysfs::at(Path::new("/"))).pus;
    let cores = machine.cores.iter().map(|core| -> Vec<PuIdx> {
        core.pus.iter().copied().filter(|pu| usable.contains(pu)).collect()
    });
    // Reversed, because max_by_key returns the last of several maxima.
    let most = cores.rev().max_by_key(Vec::len).unwrap_or_default();
    let found = if pretend { usable.into_iter().take(2).collect() } else { most };
    ensure!(
        found.len() > 1,
        "expected a core with two PUs that may be used, found none on {}: it has no SMT, or it is switched off",
        machine.name
    );
    Ok(found.iter().map(|pu| machine.pus[pu.idx()].os).collect())
}

/// Parts of the CPI stacks that this machine's counters report.
fn parts(pretend: bool) -> anyhow::Result<StackParts> {
    let refused = |why: String| {
        no_capability(format!(
            "expected counters that show where cycles go, found none: {why}; `colocate doctor` names the remedy"
        ))
    };
    let counters = if pretend {
        Counters::pretended()
    } else {
        let found = Counters::find(Path::new("/proc"), Path::new("/sys"), CounterSet::Stacks);
        found.map_err(|why| refused(why.to_string()))?
    };
    counters.stack_parts().ok_or_else(|| refused(counters.no_stacks.unwrap_or_default()))
}

/// A core of this machine.
struct LocalCore<'a> {
    ourselves: PathBuf,
    workload: &'a Path,
    pus: Vec<String>,
    pretend: bool,
    programs: &'a [String],
    folder: TempDir,
    stop: &'static AtomicBool,
    is_stopped: bool,
    bar: Bar,
}

impl TrainingBench for LocalCore<'_> {
    /// Runs a group. A program gets the share of the core that idle siblings leave, for any number
    /// of threads of the core.
    fn run(
        &mut self,
        group: &[usize],
        _: usize,
        step: Nanos,
        samples: u32,
    ) -> Result<Vec<Track>, StudyError> {
        let names: Vec<&str> = group.iter().map(|&job| &*self.programs[job]).collect();
        let names = names.join(" beside ");
        self.bar.say(&names);
        let tracks = self.tracks(group, step, samples);
        self.bar.advance(1);
        tracks.map_err(|why| StudyError::Run(format!("{names}: {why:#}")))
    }
}

impl LocalCore<'_> {
    /// Runs a group in its own process.
    fn tracks(&mut self, group: &[usize], step: Nanos, samples: u32) -> anyhow::Result<Vec<Track>> {
        let [result, log] = ["tracks", "log"].map(|name| self.folder.path().join(name));
        // The result of an earlier group must not be taken for this one's.
        colocate_files::remove_if_exists(&result)?;
        let said = colocate_files::create(&log, FileMode::Private)?;
        let mut command = Command::new(&self.ourselves);
        command.args(["train", "group"]).arg(self.workload).arg("-o").arg(&result);
        command.args(["--step-ns", &step.0.to_string(), "--samples", &samples.to_string()]);
        for (job, pu) in group.iter().zip(&self.pus) {
            command.args(["--job", &job.to_string(), "--pu", pu]);
        }
        command.args(self.pretend.then_some("--pretend"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let child = children::start(&mut command).context("cannot start a run")?;
        let ends = children::wait_all(
            &[child],
            &[],
            self.stop,
            // The process may have ended meanwhile.
            |pid| drop(sys::kill(pid, libc::SIGTERM)),
            || Ok(()),
        )?;
        let Some(ends) = ends else {
            self.is_stopped = true;
            return Err(anyhow!("stopped"));
        };
        if ends.iter().any(|end| end.waited.status != 0) {
            // If the process was killed, its programs run on in its process group.
            children::kill_group(child);
            let said = input::text(&log, input::REPORT)?;
            // The last line of its own is the error.
            let mut own =
                said.lines().rev().filter_map(|line| line.strip_prefix("colocate-study: "));
            return Err(anyhow!("{}", own.next().unwrap_or("the run was killed")));
        }
        serde_json::from_str(&input::text(&result, LIMIT)?).context("expected what a group did")
    }
}
