//! `colocate cc`, `colocate c++`, `colocate fc`: LLVM's compilers, for programs that move pages to
//! the nodes that use them.

use crate::exit::{self, no_capability};
use std::env::consts::ARCH;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

// The commands say what they do: they differ in the compiler only.
#[derive(clap::Args)]
pub struct Args {
    /// What clang gets
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARG")]
    args: Vec<OsString>,
}

/// Major versions of LLVM with a possible plugin, in the order of preference.
const MAJORS: [u32; 6] = [19, 20, 21, 18, 17, 16];
const RUNTIME: &str = "libcolocate_spm_rt.a";

/// Runs the newest compiler of one of these `names`.
pub fn main(names: &[&str], args: &Args) -> anyhow::Result<ExitCode> {
    let args = &args.args;
    let found = find(names)?;
    let jobs = jobs(&found, args);
    let mut command = Command::new(&found.compiler);
    if jobs.iter().any(DriverJob::takes_plugin) {
        command.arg(joined(PLUGIN, &found.plugin));
    }
    match jobs.iter().find(|job| job.links_a_program()) {
        // Options are appended, so they must not come after `--`.
        Some(job) => command.args(open_ended(&found, args, &jobs)).args(link_args(&found, job)),
        None => command.args(args),
    };
    // Returns only on failure.
    let why = command.exec();
    let message = format!("{}: {why}", found.compiler.display());
    Err(exit::Failure { code: exit::CANNOT_EXECUTE, message }.into())
}

/// Compiler option to load the pass.
const PLUGIN: &str = "-fpass-plugin=";

/// Option passed by compilers to their linker only: a folder that does not exist.
const MARKER: &str = "-L/colocate/marker";

/// One job of a compiler driver: a program and its arguments.
#[derive(Debug, PartialEq)]
struct DriverJob(Vec<String>);

/// Jobs of a compiler with these arguments, as printed by the compiler (`-###`); empty if the
/// arguments are rejected.
///
/// The compiler runs no job and writes no file.
fn jobs(found: &Toolchain, args: &[OsString]) -> Vec<DriverJob> {
    let mut command = Command::new(&found.compiler);
    command.args(["-###", MARKER]).arg(joined(PLUGIN, &found.plugin));
    if !found.is_flang() {
        // With -Werror, an option that no job takes is an error.
        command.arg("-Qunused-arguments");
    }
    let asked = command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).output();
    match asked {
        // `-###` writes to standard error.
        Ok(asked) if asked.status.success() => {
            String::from_utf8_lossy(&asked.stderr).lines().filter_map(DriverJob::of_line).collect()
        }
        _ => Vec::new(),
    }
}

impl DriverJob {
    /// Parses a job from a line like ` "/usr/bin/ld" "-o" "a \"b\""`; `None` for other lines.
    fn of_line(line: &str) -> Option<Self> {
        // Lines of jobs begin with a space, others such as the version do not.
        let mut rest = line.strip_prefix(' ')?.trim_end();
        let mut words = Vec::new();
        while !rest.is_empty() {
            let (word, after) = quoted(rest)?;
            words.push(word);
            rest = after.trim_start();
        }
        Some(Self(words))
    }

    fn has(&self, arg: &str) -> bool {
        self.0.iter().any(|word| word == arg)
    }

    fn takes_plugin(&self) -> bool {
        self.0.iter().any(|word| word.starts_with(PLUGIN))
    }

    /// Whether the job is a linker's, and its output is not an object file for another link.
    fn links_a_program(&self) -> bool {
        // `-i` is GNU ld's other name for `-r`.
        self.has(MARKER) && !["-r", "-i", "--relocatable"].iter().any(|option| self.has(option))
    }

    /// Whether the job is LLVM's linker with thin link-time optimisation.
    fn is_thin(&self) -> bool {
        // GNU ld takes the same option, but cannot load a pass.
        self.has("-plugin-opt=thinlto") && self.0[0].contains("lld")
    }
}

/// The quoted word at the start of a text, unescaped, and the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let inside = text.strip_prefix('"')?;
    let mut chars = inside.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((word, &inside[at + 1..])),
            '\\' => word.push(chars.next()?.1),
            c => word.push(c),
        }
    }
    None
}

/// The arguments without `--`, to append options. `--` stays if it is the value of an option, as in
/// `-o --`: without the word, the compiler would have other jobs.
fn open_ended(found: &Toolchain, args: &[OsString], jobs: &[DriverJob]) -> Vec<OsString> {
    let open = without_separator(args).filter(|open| {
        let open_jobs = self::jobs(found, open);
        open_jobs.iter().map(|job| job.0.len()).eq(jobs.iter().map(|job| job.0.len()))
    });
    open.unwrap_or_else(|| args.to_vec())
}

/// The arguments without the first `--`; `None` if `--` is missing.
fn without_separator(args: &[OsString]) -> Option<Vec<OsString>> {
    let at = args.iter().position(|arg| arg == "--")?;
    // After `--` even a name with a dash is a file.
    let files = args[at + 1..].iter().map(|arg| match arg.as_encoded_bytes() {
        [b'-', ..] => joined("./", Path::new(arg)),
        _ => arg.clone(),
    });
    Some(args[..at].iter().cloned().chain(files).collect())
}

/// Additional arguments for a link. With thin link-time optimisation, the linker runs the pass.
fn link_args(found: &Toolchain, job: &DriverJob) -> Vec<OsString> {
    let runtime = found.runtime.clone().into_os_string();
    if found.is_flang() {
        // flang has no -Xlinker, and -Wl ends at a comma.
        return vec![runtime];
    }
    let mut args = vec!["-Xlinker".into(), runtime];
    if job.is_thin() {
        args.extend(["-Xlinker".into(), joined("--load-pass-plugin=", &found.plugin)]);
    }
    args
}

fn joined(option: &str, path: &Path) -> OsString {
    let mut arg = OsString::from(option);
    arg.push(path);
    arg
}

struct Toolchain {
    compiler: PathBuf,
    plugin: PathBuf,
    runtime: PathBuf,
}

impl Toolchain {
    fn is_flang(&self) -> bool {
        let name = self.compiler.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b"flang")
    }
}

/// Finds a compiler, the plugin for its major version, and the runtime.
fn find(names: &[&str]) -> anyhow::Result<Toolchain> {
    let own = std::env::current_exe()?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    // The folder of an installed program, then the build folders.
    let folders =
        ["../lib/colocate", "", "../spm", "../release", "../debug"].map(|it| beside.join(it));
    let ours = |name: &str| folders.iter().map(|folder| folder.join(name)).find(|it| it.is_file());
    let missing = |what: &str| {
        no_capability(format!(
            "expected {what} in {} or beside {}, found none; build it with `make compiler`",
            folders[0].display(),
            own.display()
        ))
    };
    let runtime = ours(RUNTIME).ok_or_else(|| missing(RUNTIME))?;
    let plugins = MAJORS.map(|major| Some((major, ours(&format!("spm-{major}.so"))?)));
    let mut plugins = plugins.into_iter().flatten().peekable();
    if plugins.peek().is_none() {
        return Err(missing("spm-19.so"));
    }
    let mut looked = Vec::new();
    for (major, plugin) in plugins {
        for name in names {
            let name = format!("{name}-{major}");
            if let Some(compiler) = in_path(&name) {
                return Ok(Toolchain { compiler, plugin, runtime });
            }
            looked.push(name);
        }
    }
    let looked = looked.join(" or ");
    Err(no_capability(format!("expected {looked} in PATH, found none; install it ({ARCH})")))
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(OsStr::new(name))).find(|it| it.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(line: &str) -> DriverJob {
        DriverJob::of_line(line).unwrap()
    }

    /// Lines of `clang-19 -###`, shortened.
    #[test]
    fn jobs_by_hand() {
        let compiles = job(
            r#" "/usr/bin/clang" "-cc1" "-emit-obj" "-fpass-plugin=/a b/spm-19.so" "-x" "c" "a.c""#,
        );
        assert!(compiles.takes_plugin() && !compiles.links_a_program());
        let assembles = job(r#" "/usr/bin/clang" "-cc1as" "-filetype" "obj" "s.s""#);
        assert!(!assembles.takes_plugin() && !assembles.links_a_program());
        let links = job(r#" "/usr/bin/ld" "-o" "a.out" "-L/colocate/marker" "a.o""#);
        assert!(links.links_a_program() && !links.takes_plugin() && !links.is_thin());
        let joins = job(r#" "/usr/bin/ld" "-o" "b.o" "-L/colocate/marker" "-r" "a.o""#);
        assert!(!joins.links_a_program());
        let thin = r#"-L/colocate/marker" "-plugin-opt=thinlto" "a.o""#;
        assert!(job(&format!(r#" "/usr/bin/ld.lld" "{thin}"#)).is_thin());
        assert!(!job(&format!(r#" "/usr/bin/ld" "{thin}"#)).is_thin());
        let words = job(r#" "/bin/x" "a \"b\" \\ \$c" """#);
        assert_eq!(words, DriverJob(["/bin/x", r#"a "b" \ $c"#, ""].map(str::to_owned).to_vec()));
        for other in ["Thread model: posix", " (in-process)", r#" "open"#, "", r#" "a" b"#] {
            assert_eq!(DriverJob::of_line(other), None, "{other}");
        }
    }

    #[test]
    fn files_after_a_separator() {
        let of = |args: &[&str]| {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            without_separator(&args).map(|args| args.join(OsStr::new(" ")).into_string().unwrap())
        };
        assert_eq!(of(&["-O2", "--", "a.c", "-b.c"]).as_deref(), Some("-O2 a.c ./-b.c"));
        assert_eq!(of(&["-O2", "a.c"]), None);
    }
}
