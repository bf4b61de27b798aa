//! Build of the programs that guests run, in the profile of this program.

use super::Boot;
use anyhow::{Context as _, bail};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::{Command, ExitStatus};

/// The program of crates/study-cli, used by few cases.
pub(super) const STUDY: &str = "colocate-study";

/// Exit status of `lab/cross` where the Rust toolchain has no target aarch64.
const NO_TARGET: i32 = 3;

/// Builds the programs for the architectures of these boots.
///
/// False if a boot needs aarch64 and the toolchain lacks the target; `lab/cross` has printed this.
///
/// # Errors
/// If a build fails.
pub(super) fn all(boots: &[&Boot]) -> anyhow::Result<bool> {
    static_programs(boots)?;
    let kinds: BTreeSet<_> = boots.iter().map(|boot| boot.guest.is_arm64()).collect();
    // x86 first: its build does not depend on the cross target.
    let built =
        kinds.into_iter().try_fold(true, |_, arm64| ours(arm64, has_study(boots, arm64)))?;
    // Last, because it runs the `colocate` that was just built.
    spm_programs(boots)?;
    Ok(built)
}

/// Whether a boot of this architecture takes [`STUDY`] along.
fn has_study(boots: &[&Boot], arm64: bool) -> bool {
    boots.iter().any(|boot| boot.guest.is_arm64() == arm64 && boot.programs.contains(&STUDY))
}

/// Builds `colocate`, `lab-guest` and, if `study`, [`STUDY`] for one architecture; false as for
/// [`all`].
///
/// # Errors
/// If the build fails.
pub fn ours(arm64: bool, study: bool) -> anyhow::Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let cross = concat!(env!("CARGO_MANIFEST_DIR"), "/cross");
    // Only tests run this program in the dev profile, so their workspace build exists already.
    let here = if cfg!(debug_assertions) { AS_TESTED } else { ALONE };
    let (program, which) = if arm64 { (cross.into(), CROSS) } else { (cargo, here) };
    let study: &[&str] = if study { &["--package", "colocate-study-cli"] } else { &[] };
    let status = build(program, which, study)?;
    match status.code() {
        Some(0) => Ok(true),
        Some(NO_TARGET) if arm64 => Ok(false),
        _ => bail!("the guests' programs cannot be built"),
    }
}

/// Packages of the guests' programs.
const ALONE: &str = "--package colocate --package colocate-lab-guest";

/// Packages without eBPF, which needs more of Debian's libraries for aarch64.
const CROSS: &str = "--package colocate --package colocate-lab-guest --no-default-features";

/// Programs with the dependency features of `cargo test --workspace`, whose build is reused.
///
/// A build by package would compile nearly all dependencies again (two minutes of two CPUs). The
/// `--test` target adds the features of dev-dependencies.
const AS_TESTED: &str = "--workspace --bin colocate --bin colocate-study --bin lab-guest --bin colocate-mover --test outside_policy";

fn build(cargo: OsString, which: &str, more: &[&str]) -> anyhow::Result<ExitStatus> {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--profile", profile]).args(which.split(' ')).args(more);
    command.arg("--locked");
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    command.status().context("cannot start cargo")
}

/// Folder of the source and name of a statically linked C program.
///
/// `NAME-static` is `NAME.c` of the tests' programs, `numa-NAME` is `NAME.c` of `workloads/numa`.
/// `None` for other programs.
fn c_source(program: &str) -> Option<(&'static str, &str)> {
    const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cli/tests/programs");
    const NUMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/numa");
    match program.strip_suffix("-static") {
        Some(name) => Some((TESTS, name)),
        None => Some((NUMA, program.strip_prefix("numa-")?)),
    }
}

/// Compiles the C programs of [`c_source`] into the folder of this program.
fn static_programs(boots: &[&Boot]) -> anyhow::Result<()> {
    let beside = std::env::current_exe()?;
    let programs =
        boots.iter().filter(|boot| !boot.guest.is_arm64()).flat_map(|boot| boot.programs);
    for program in programs {
        let Some((source, name)) = c_source(program) else { continue };
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-static", "-pthread"]).arg(format!("{source}/{name}.c"));
        cc.arg("-lm").arg("-o").arg(beside.with_file_name(program));
        if !cc.status().context("cannot start cc")?.success() {
            bail!("{name}.c cannot be compiled");
        }
    }
    Ok(())
}

/// Compiles `spm-NAME` from `workloads/numa/NAME.c` by `colocate cc`, beside this program.
///
/// `NAME-library` is a shared library, `omp-NAME` uses OpenMP.
fn spm_programs(boots: &[&Boot]) -> anyhow::Result<()> {
    let beside = std::env::current_exe()?;
    let workloads = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/numa");
    let programs = boots.iter().flat_map(|boot| boot.programs);
    let names: BTreeSet<_> = programs.filter_map(|program| program.strip_prefix("spm-")).collect();
    if names.is_empty() {
        return Ok(());
    }
    let mut build = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../compiler/spm/build"));
    if !build.status().context("cannot start compiler/spm/build")?.success() {
        bail!("the compiler pass cannot be built");
    }
    for name in names {
        let mut cc = Command::new(beside.with_file_name("colocate"));
        cc.args(["cc", "-O2", "-pthread"]).arg(format!("{workloads}/{name}.c")).arg("-lm");
        if name.ends_with("-library") {
            cc.args(["-shared", "-fPIC"]);
        }
        if name.starts_with("omp-") {
            // Like -fopenmp, but links any major version of the library.
            cc.args(["-Xclang", "-fopenmp", "-l:libomp.so.5"]);
        }
        cc.arg("-o").arg(beside.with_file_name(format!("spm-{name}")));
        if !cc.status().context("cannot start colocate cc")?.success() {
            bail!("{name}.c cannot be compiled");
        }
    }
    Ok(())
}
