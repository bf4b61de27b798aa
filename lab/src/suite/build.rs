//! Builds what the guests run, in the profile that we were built in.

use super::Boot;
use anyhow::{Context as _, bail};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::{Command, ExitStatus};

/// How `lab/cross` ends where the Rust here cannot build for aarch64.
const NO_TARGET: i32 = 3;

/// Builds for the kinds of guests that these boots have.
///
/// False if the Rust here cannot build for aarch64 and one of them needs it; `lab/cross` has said so.
///
/// # Errors
/// If a build fails.
pub(super) fn all(boots: &[&Boot]) -> anyhow::Result<bool> {
    static_programs(boots)?;
    let kinds: BTreeSet<_> = boots.iter().map(|boot| boot.guest.is_arm64()).collect();
    // x86 first: it is always possible.
    let built = kinds.into_iter().try_fold(true, |_, arm64| ours(arm64))?;
    spm_programs(boots)?;
    Ok(built)
}

/// Builds `colocate`, `colocate-study` and `lab-guest` for one kind of guest; false as for [`all`].
///
/// # Errors
/// If the build fails.
pub fn ours(arm64: bool) -> anyhow::Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let cross = concat!(env!("CARGO_MANIFEST_DIR"), "/cross");
    // Tests are run in the profile for development.
    let here = if cfg!(debug_assertions) { AS_TESTED } else { ALONE };
    let status = if arm64 { build(cross.into(), CROSS) } else { build(cargo, here) }?;
    match status.code() {
        Some(0) => Ok(true),
        Some(NO_TARGET) if arm64 => Ok(false),
        _ => bail!("the guests' programs cannot be built"),
    }
}

/// The guests' programs by themselves.
const ALONE: &str = "--package colocate --package colocate-study-cli --package colocate-lab-guest";

/// Without eBPF, which would need more of Debian's libraries for aarch64.
const CROSS: &str = "--package colocate --package colocate-study-cli --package colocate-lab-guest --no-default-features";

/// The same with the features that dependencies have in `cargo test --workspace`, which has built them then: by themselves
/// nearly all would be built once more, two minutes of two CPUs. A test has the features of the dependencies for tests.
const AS_TESTED: &str = "--workspace --bin colocate --bin colocate-study --bin lab-guest --bin colocate-mover --test outside_policy";

fn build(cargo: OsString, which: &str) -> anyhow::Result<ExitStatus> {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--profile", profile]).args(which.split(' ')).arg("--locked");
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    command.status().context("cannot start cargo")
}

/// Compiles the programs called `NAME-static` from the tests' `NAME.c`, and `numa-NAME` from `workloads/numa`, to lie beside us.
fn static_programs(boots: &[&Boot]) -> anyhow::Result<()> {
    let beside = std::env::current_exe()?;
    let programs =
        boots.iter().filter(|boot| !boot.guest.is_arm64()).flat_map(|boot| boot.programs);
    for program in programs {
        const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cli/tests/programs");
        const NUMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/numa");
        let of_tests = program.strip_suffix("-static").map(|name| (TESTS, name));
        let of_numa = || program.strip_prefix("numa-").map(|name| (NUMA, name));
        let Some((source, name)) = of_tests.or_else(of_numa) else { continue };
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-static", "-pthread"]).arg(format!("{source}/{name}.c"));
        cc.arg("-lm").arg("-o").arg(beside.with_file_name(program));
        if !cc.status().context("cannot start cc")?.success() {
            bail!("{name}.c cannot be compiled");
        }
    }
    Ok(())
}

/// Compiles the programs called `spm-NAME` from `workloads/numa/NAME.c` by `colocate cc`, to lie beside us. `NAME-library` is a shared
/// library, `omp-NAME` has OpenMP.
fn spm_programs(boots: &[&Boot]) -> anyhow::Result<()> {
    let beside = std::env::current_exe()?;
    let workloads = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/numa");
    let programs = boots.iter().flat_map(|boot| boot.programs);
    let names: BTreeSet<_> = programs.filter_map(|program| program.strip_prefix("spm-")).collect();
    if names.is_empty() {
        return Ok(());
    }
    let mut build = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/build-compiler"));
    if !build.status().context("cannot start build-compiler")?.success() {
        bail!("the compiler pass cannot be built");
    }
    for name in names {
        let mut cc = Command::new(beside.with_file_name("colocate"));
        cc.args(["cc", "-O2", "-pthread"]).arg(format!("{workloads}/{name}.c")).arg("-lm");
        if name.ends_with("-library") {
            cc.args(["-shared", "-fPIC"]);
        }
        if name.starts_with("omp-") {
            // As -fopenmp, but for any major of the library.
            cc.args(["-Xclang", "-fopenmp", "-l:libomp.so.5"]);
        }
        cc.arg("-o").arg(beside.with_file_name(format!("spm-{name}")));
        if !cc.status().context("cannot start colocate cc")?.success() {
            bail!("{name}.c cannot be compiled");
        }
    }
    Ok(())
}
