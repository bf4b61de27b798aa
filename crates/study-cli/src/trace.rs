//! `colocate-study trace`: records the memory accesses of a program's threads.

use anyhow::Context;
use colocate_cli::exit::{self, no_capability, usage};
use colocate_cli::output;
use colocate_cli::run::jobs;
use colocate_figures::table::aligned;
use colocate_files::{Accept, Dir, FileMode, MaxSize};
use colocate_linux::sys;
use colocate_observe::emulate;
use colocate_trace::{Check, ThreadSummary, TraceFile, drmemtrace, form};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Records the memory accesses of a program's threads
///
/// Runs the program unmodified under QEMU and writes what each of its threads reads and writes, and where threads wait for each other,
/// to a file (docs/reference/traces.md). Takes some ten to sixty times as long as the program alone, and two bytes and more
/// for each access. Then checks the trace and says what is in it. Only the first process is recorded. Exit status: the
/// program's.
#[derive(clap::Args)]
pub struct Args {
    /// File for the trace
    #[arg(short, long, value_name = "FILE", required_unless_present = "check")]
    output: Option<PathBuf>,

    /// Check a trace, and print what is in it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "command"])]
    check: Option<PathBuf>,

    /// Traces of DynamoRIO's drmemtrace to write as one, instead of a program to run: a file for each thread, uncompressed;
    /// repeatable
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "command"])]
    drmemtrace: Vec<PathBuf>,

    /// No table on standard error
    #[arg(short, long, conflicts_with = "check")]
    quiet: bool,

    /// The program with its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present_any = ["check", "drmemtrace"])]
    command: Vec<OsString>,
}

/// Runs `colocate-study trace`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.check {
        output::write(None, &table(&checked(path)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = args.output.as_deref().filter(|path| path.as_os_str() != "-");
    let path = path.ok_or_else(|| usage("expected -o FILE for the trace, found -".to_owned()))?;
    let status = if args.drmemtrace.is_empty() {
        record(path, &args.command)?
    } else {
        convert(path, args)?
    };
    let summary = checked(path).with_context(|| format!("exit status {status}"))?;
    if !args.quiet {
        output::aside(&table(&summary));
    }
    // A status has eight bits, as in `profile`.
    Ok(ExitCode::from(u8::try_from(status & 0xff).unwrap_or(exit::OURS)))
}

/// Runs the program, and returns its exit status.
pub fn record(path: &Path, argv: &[OsString]) -> anyhow::Result<i32> {
    let command = jobs::find(argv.to_vec())?;
    let places = emulate::SearchPaths::from_env(|name| std::env::var_os(name));
    let emulator = emulate::available(&places).map_err(|why| no_capability(why.to_string()))?;
    colocate_files::has_place(path)?;
    let header = form::header();
    let mut file = colocate_files::create(path, FileMode::ByUmask)?;
    file.write_all(&header).with_context(|| format!("cannot write {}", path.display()))?;
    let asked = emulate::EmulatedCommand {
        path: &command.path,
        argv: &command.argv,
        scratch: &std::env::temp_dir(),
        ignores_pipe: sys::pipe_was_ignored(),
        stretches: false,
        misses: false,
        phases: None,
        trace: Some(path),
    };
    let ran = emulate::profile(&emulator, asked)?;
    // 128 + N for signal N, as a shell reports it.
    let status = ran.status.code().or(ran.status.signal().map(|signal| 128 + signal)).unwrap_or(0);
    ran.profile.with_context(|| {
        format!("the trace in {} is not whole (exit status {status})", path.display())
    })?;
    Ok(status)
}

/// Converts the recording of another tracer.
fn convert(path: &Path, args: &Args) -> anyhow::Result<i32> {
    let open = |from: &PathBuf| {
        let file = colocate_files::open(from, Accept::FileOrPipe, MaxSize::bytes(u64::MAX))?;
        Ok(BufReader::new(file))
    };
    let files: Vec<BufReader<File>> =
        args.drmemtrace.iter().map(open).collect::<anyhow::Result<_>>()?;
    // A link is followed; what is no file, as a pipe, cannot be replaced.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if path.exists() && !path.is_file() {
        write_converted(&path, files)?;
        return Ok(0);
    }
    let name = path.file_name().context("expected a file for the trace, found a folder")?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = Dir::open(folder.unwrap_or(Path::new(".")))?;
    // Apart until it is whole: the file may hold an earlier trace.
    let mut part = name.to_owned();
    part.push(".part");
    let written = write_converted(&folder.path().join(&part), files)
        .and_then(|()| Ok(folder.rename(&part, name)?));
    if written.is_err() {
        let _ = folder.remove(&part);
    }
    written.map(|()| 0)
}

/// Writes the recordings in `files` as one trace.
fn write_converted(path: &Path, files: Vec<BufReader<File>>) -> anyhow::Result<()> {
    let mut out = BufWriter::new(colocate_files::create(path, FileMode::ByUmask)?);
    let begun = out.write_all(&form::header());
    begun.and_then(|()| drmemtrace::convert(files, &mut out)).context("cannot convert it")?;
    out.flush().with_context(|| format!("cannot write {}", path.display()))
}

/// Opens the trace in a file.
pub fn open(path: &Path) -> anyhow::Result<TraceFile<File>> {
    // No limit: the size grows with the program's run.
    let file = colocate_files::open(path, Accept::File, MaxSize::bytes(u64::MAX))?;
    TraceFile::of(file).with_context(|| path.display().to_string())
}

fn checked(path: &Path) -> anyhow::Result<Vec<ThreadSummary>> {
    let mut trace = open(path)?;
    let mut check = Check::default();
    let mut bytes = Vec::new();
    let what = || path.display().to_string();
    for (thread, block) in trace.in_order() {
        trace.read(thread, block, &mut bytes).with_context(what)?;
        check.block(thread, &bytes).with_context(what)?;
    }
    check.end().with_context(what)
}

fn table(threads: &[ThreadSummary]) -> String {
    let heading = ["thread", "TID", "instructions", "reads", "writes", "waits"].map(str::to_owned);
    let rows = threads.iter().enumerate().map(|(number, of)| {
        [number as u64, of.tid, of.instructions, of.reads, of.writes, of.waits]
            .map(|figure| figure.to_string())
            .to_vec()
    });
    let rows: Vec<Vec<String>> = std::iter::once(heading.to_vec()).chain(rows).collect();
    aligned(&rows)
}
