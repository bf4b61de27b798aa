//! `colocate cc`, `colocate c++`, `colocate fc`: LLVM's compilers, for programs that move their pages to where they use them.

use crate::exit::{self, no_capability};
use std::env::consts::ARCH;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Compiles C as clang does; the program moves its pages to where it uses them
///
/// Runs clang with its arguments as they are, the compiler pass, and the runtime. Programs get calls before loops, with what these
/// loops access; on machines with several NUMA nodes the runtime moves pages to the node of the thread that is about to use them, if
/// that pays (docs/spm.md). -Rpass=spm says where calls are, -Rpass-missed=spm why not. Exit status: clang's.
#[derive(clap::Args)]
pub struct CArgs {
    /// What clang gets
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARG")]
    args: Vec<OsString>,
}

/// Compiles C++ as clang++ does; the program moves its pages to where it uses them
///
/// As colocate cc.
#[derive(clap::Args)]
pub struct CxxArgs {
    /// What clang++ gets
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARG")]
    args: Vec<OsString>,
}

/// Compiles Fortran as flang does; the program moves its pages to where it uses them
///
/// As colocate cc.
#[derive(clap::Args)]
pub struct FortranArgs {
    /// What flang gets
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARG")]
    args: Vec<OsString>,
}

/// Majors of LLVM for which there may be a plugin, the first choice first.
const MAJORS: [u32; 6] = [19, 20, 21, 18, 17, 16];
const RUNTIME: &str = "libcolocate_spm_rt.a";

/// Runs `colocate cc`.
pub fn c(args: &CArgs) -> anyhow::Result<ExitCode> {
    compile(&["clang"], &args.args)
}

/// Runs `colocate c++`.
pub fn cxx(args: &CxxArgs) -> anyhow::Result<ExitCode> {
    compile(&["clang++"], &args.args)
}

/// Runs `colocate fc`.
pub fn fortran(args: &FortranArgs) -> anyhow::Result<ExitCode> {
    compile(&["flang", "flang-new"], &args.args)
}

fn compile(names: &[&str], args: &[OsString]) -> anyhow::Result<ExitCode> {
    let found = find(names)?;
    let mut command = Command::new(&found.compiler);
    command.arg(joined("-fpass-plugin=", &found.plugin)).args(args);
    if links(args) {
        let is_thin = args.iter().any(|arg| arg == "-flto=thin");
        command.args(link_args(&found, is_thin));
    }
    let why = command.exec();
    Err(exit::Failure {
        code: exit::CANNOT_EXECUTE,
        message: format!("{}: {why}", found.compiler.display()),
    }
    .into())
}

/// What a linker gets beside the program's own. With thin link-time optimisation it is the linker that runs the pass.
fn link_args(found: &Found, is_thin: bool) -> Vec<OsString> {
    let mut args = vec![joined("-Wl,", &found.runtime)];
    if is_thin {
        args.push(joined("-Wl,--load-pass-plugin=", &found.plugin));
    }
    args
}

/// Whether a compiler with these arguments links a program.
fn links(args: &[OsString]) -> bool {
    let stops = |arg: &OsString| {
        let stops = ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "-###", "-emit-ast"];
        arg.to_str().is_some_and(|arg| stops.contains(&arg))
    };
    let has_input = args.iter().any(|arg| !arg.as_encoded_bytes().starts_with(b"-"));
    has_input && !args.iter().any(stops)
}

fn joined(option: &str, path: &Path) -> OsString {
    let mut arg = OsString::from(option);
    arg.push(path);
    arg
}

struct Found {
    compiler: PathBuf,
    plugin: PathBuf,
    runtime: PathBuf,
}

/// A compiler, the plugin for its major, and the runtime.
fn find(names: &[&str]) -> anyhow::Result<Found> {
    let own = std::env::current_exe()?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    // Where an installed program has them, and where they are built.
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
                return Ok(Found { compiler, plugin, runtime });
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

    #[test]
    fn what_links() {
        let links = |args: &[&str]| links(&args.iter().map(OsString::from).collect::<Vec<_>>());
        for (args, expected) in [
            (&["-O2", "a.c", "-o", "a"][..], true),
            (&["a.o", "-lm"], true),
            (&["-c", "a.c"], false),
            (&["-O2", "-S", "a.c"], false),
            (&["-M", "a.c"], false),
            (&["--version"], false),
            (&[], false),
        ] {
            assert_eq!(links(args), expected, "{args:?}");
        }
    }
}
