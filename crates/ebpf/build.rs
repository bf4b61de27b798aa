//! Compiles the eBPF program if a clang is found. Without clang the crate builds as well, and
//! `EbpfProgram::start` returns an error.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_program)");
    println!("cargo::rerun-if-changed=src/watch.bpf.c");
    println!("cargo::rerun-if-changed=src/types.bpf.h");
    println!("cargo::rerun-if-env-changed=CLANG");
    if std::env::var_os("CARGO_FEATURE_LOAD").is_none() {
        return;
    }
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    // From libbpf-sys, whose headers belong to the libbpf that loads the program.
    let headers = std::env::var("DEP_BPF_INCLUDE").expect("libbpf-sys sets it");
    let architecture = match std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "-D__TARGET_ARCH_x86",
        Ok("aarch64") => "-D__TARGET_ARCH_arm64",
        other => return println!("cargo::warning=no eBPF program for architecture {other:?}"),
    };
    let compiled = Command::new(&clang)
        // `-g` writes the type information that CO-RE needs.
        .args(["-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", architecture, "-I"])
        .arg(&headers)
        .args(["-c", "src/watch.bpf.c", "-o"])
        .arg(Path::new(&out).join("watch.bpf.o"))
        .status();
    match compiled {
        Ok(status) if status.success() => println!("cargo::rustc-cfg=has_program"),
        Ok(status) => println!("cargo::warning=no eBPF program: {clang} ended with {status}"),
        Err(why) => println!("cargo::warning=no eBPF program: {clang}: {why}"),
    }
}
