//! Whole runs of `colocate topo`.

use assert_cmd::Command;
use colocate_testing::need;
use colocate_testing::skip::{Missing, Requirement};
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../machine/tests/corpus")
}

fn topo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
    command.arg("topo").args(args);
    command
}

/// Standard output of a run that must succeed, with nothing on standard error.
fn shown(args: &[&str]) -> String {
    let output = topo(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code and the one line on standard error of a run that must fail.
fn refused(args: &[&str]) -> (i32, String) {
    let output = topo(args).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{args:?}");
    assert_eq!(text.lines().count(), 1, "{text}");
    (output.status.code().unwrap(), text.trim_end().into())
}

/// A file of this content in a directory of its own.
fn file(name: &str, content: &[u8]) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

fn schema() -> jsonschema::Validator {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/machine.json");
    let text = std::fs::read_to_string(path).unwrap();
    jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap()
}

fn assert_matches_schema(validator: &jsonschema::Validator, text: &str, what: &str) {
    let value = serde_json::from_str(text).unwrap();
    let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{what}: {errors:?}");
}

#[test]
fn shows_this_machine() {
    let text = shown(&[]);
    for word in ["package 0", "usable: ", "affinity mask", "cpuset", "CPU quota"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    // Memory may be plugged between two runs; what is usable stays.
    let usable = |text: &str| text[text.find("usable: ").unwrap()..].to_owned();
    assert_eq!(usable(&text), usable(&shown(&["--machine", "live"])));
}

#[test]
fn an_inherited_mask_is_reported() {
    let usable = |command: &mut std::process::Command| {
        let output = command.arg("topo").arg("--json").output().unwrap();
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        value["usable"]["affinity"].as_str().unwrap().to_owned()
    };
    let binary = env!("CARGO_BIN_EXE_colocate");
    let all = usable(&mut std::process::Command::new(binary));
    let first = all.split([',', '-']).next().unwrap().to_owned();
    let mut pinned = std::process::Command::new("taskset");
    assert_eq!(usable(pinned.args(["-c", &first, binary])), first);
}

#[test]
fn described_machines_by_name_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "epyc-7301",
        "xeon-x3320",
        "xeon-e5645",
        "power8-10c",
        "xeon-e5405",
        "opteron-6282se",
        "amp-4x12",
    ] {
        topo(&["--machine", name]).current_dir(dir.path()).assert().success();
    }
    assert!(shown(&["--machine", "epyc-7301"]).contains("L3 8 MiB  [0 32] [8 40]"));
    assert!(!shown(&["--machine", "epyc-7301"]).contains("usable"));
}

#[test]
fn speeds_of_described_machines() {
    let text = shown(&["--machine", "epyc-7301"]);
    assert!(text.contains("\nspeeds\n  core     2.70 GHz · 5 slots a cycle"), "{text}");
    assert!(text.contains("\n    int-div    ZnALU2 and ZnDivider for 41 cycles\n"), "{text}");
    assert!(
        !shown(&[]).contains("speeds")
            && !shown(&["--synthetic", "pack:1 core:2 pu:1"]).contains("speeds")
    );
    let sources = shown(&["--machine", "epyc-7301", "--sources"]);
    assert!(sources.contains("\n  performance.kind[0].llvm-cpu: LLVM's name"), "{sources}");
    let text = shown(&["--machine", "epyc-7301", "--json"]);
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["performance"]["memory"][0]["bandwidth"] = 0.into();
    assert!(!schema().is_valid(&value));
    let (_dir, path) = file("slow.json", value.to_string().as_bytes());
    assert_eq!(
        refused(&["--machine", &path]),
        (
            125,
            format!(
                "colocate: {path}: performance.memory[0].bandwidth: expected above 0 GB/s and up to 1000000 GB/s, found 0.00 GB/s"
            )
        )
    );
}

#[test]
fn wrong_speeds_are_refused_with_file_line_and_reason() {
    let described = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/epyc-7301.toml");
    let text = std::fs::read_to_string(described).unwrap();
    let line = 1 + text.lines().position(|line| line.starts_with("branch-miss")).unwrap();
    let text = text.replace("value = \"18 cycles\"", "value = \"18 ns\"");
    let (_dir, path) = file("wrong.toml", text.as_bytes());
    assert_eq!(
        refused(&["--machine", &path]),
        (
            125,
            format!(
                "colocate: {path}: line {line}: expected cycles like \"17 cycles\", found \"18 ns\""
            )
        )
    );
}

#[test]
fn sources_of_the_figures() {
    let text = shown(&["--machine", "opteron-6282se", "--sources"]);
    assert!(text.contains("\n  shape.nodes: Piccoli, section 4\n"), "{text}");
    assert!(text.starts_with(&shown(&["--machine", "opteron-6282se"])));
    assert!(shown(&["--sources"]).contains("sources: the firmware and the kernel"));
}

#[test]
fn only_what_hwloc_read_comes_from_the_firmware() {
    let said = |spec: &str| {
        let text = shown(&["--machine", spec, "--sources"]);
        text.lines().find_map(|line| line.strip_prefix("sources: ")).unwrap().to_owned()
    };
    let firmware = "the firmware and the kernel, as hwloc reads them";
    assert_eq!(said(corpus().join("hybrid.xml").to_str().unwrap()), firmware);
    assert_eq!(said("synthetic:pack:2 core:2 pu:2"), "the synthetic string alone");
    let exact = shown(&["--machine", "xeon-x3320", "--json"]);
    let (_dir, path) = file("exact.json", exact.as_bytes());
    assert_eq!(said(&path), "not in this file");
}

#[test]
fn sources_neither_drive_a_terminal_nor_add_lines() {
    let hostile = "version = 1\nname = \"a\\u001b[2J\"\n[shape]\npackages = 1\ncores-per-package = 1\n\
                   pus-per-core = { value = 1, source = \"x\\u001b[2J\\ny\" }\n";
    let (_dir, path) = file("hostile.toml", hostile.as_bytes());
    let text = shown(&["--machine", &path, "--sources"]);
    assert!(text.starts_with("a\\x1b[2J\n"), "{text:?}");
    assert!(text.ends_with("\n  shape.pus-per-core: x\\x1b[2J\\x0ay\n"), "{text:?}");
}

#[test]
fn described_machines_by_path() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/epyc-7301.toml");
    assert_eq!(shown(&["--machine", path.to_str().unwrap()]), shown(&["--machine", "epyc-7301"]));
}

#[test]
fn saved_machines_from_xml_whatever_the_name() {
    let xml = corpus().join("hybrid.xml");
    let text = shown(&["--xml", xml.to_str().unwrap()]);
    assert_eq!(text, std::fs::read_to_string(corpus().join("hybrid.txt")).unwrap());
    let (_dir, copy) = file("hybrid", &std::fs::read(&xml).unwrap());
    assert_eq!(shown(&["--xml", &copy]), text);
}

#[test]
fn synthetic_machines() {
    let text = shown(&["--synthetic", "pack:2 core:2 pu:2"]);
    assert!(text.contains("2 packages, 1 node, 4 cores, 8 PUs"), "{text}");
    assert_eq!(text, shown(&["--machine", "synthetic:pack:2 core:2 pu:2"]));
}

#[test]
fn json_matches_the_schema_and_reads_back() {
    let validator = schema();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("machine.json");
    let path = path.to_str().unwrap();
    for spec in ["live", "epyc-7301", "amp-4x12", "power8-10c"] {
        assert_eq!(shown(&["--machine", spec, "--json", "-o", path]), "");
        let text = std::fs::read_to_string(path).unwrap();
        assert_matches_schema(&validator, &text, spec);
        assert_eq!(shown(&["--machine", path, "--json"]), text, "{spec}");
    }
}

#[test]
fn the_corpus_matches_the_schema() {
    let validator = schema();
    let mut seen = 0;
    for entry in std::fs::read_dir(corpus()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read_to_string(&path).unwrap();
            assert_matches_schema(&validator, &text, &path.display().to_string());
            seen += 1;
        }
    }
    assert!(seen >= 12, "the corpus has shrunk to {seen}");
}

#[test]
fn the_schema_refuses_what_we_refuse() {
    let validator = schema();
    let text = shown(&["--machine", "xeon-x3320", "--json"]);
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["machine"]["surprise"] = 1.into();
    assert!(!validator.is_valid(&value));
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["version"] = 2.into();
    assert!(!validator.is_valid(&value));
}

#[test]
fn missing_files_and_names() {
    assert_eq!(
        refused(&["--xml", "/nonexistent/machine.xml"]),
        (125, "colocate: /nonexistent/machine.xml: No such file or directory (os error 2)".into())
    );
    assert_eq!(refused(&["--machine", "/nonexistent/machine.toml"]).0, 125);
    assert_eq!(
        refused(&["--machine", "epyc"]),
        (
            125,
            "colocate: no machine is called \"epyc\": expected live, epyc-7301, xeon-x3320, xeon-e5645, power8-10c, xeon-e5405, opteron-6282se, amp-4x12, a .toml, .json or .xml file, or synthetic:…".into()
        )
    );
    assert_eq!(refused(&["--xml", "/"]).0, 125);
}

#[test]
fn files_that_are_not_machines() {
    for (content, expected) in [
        (&b"not XML"[..], "expected hwloc XML, found a syntax error: "),
        (b"<html/>", "expected hwloc XML with a <topology>, found <html>"),
        (b"\xff\xfe", "expected UTF-8 text, found byte 0xff at offset 0"),
        (b"", "expected hwloc XML, found a syntax error: "),
        (
            b"<topology version=\"1.0\"/>",
            "expected hwloc XML of version 2 or 3, found version \"1.0\"",
        ),
        (
            b"<topology version=\"2.0\"><object type=\"Machine\"/></topology>",
            "expected at least one online CPU, found none",
        ),
    ] {
        let (_dir, path) = file("bad.xml", content);
        let (code, text) = refused(&["--xml", &path]);
        assert_eq!(code, 125);
        assert!(text.starts_with(&format!("colocate: {path}: {expected}")), "{text}");
    }
}

#[test]
fn a_file_without_end_is_refused() {
    let expected = "colocate: /dev/zero: expected a plain file or a pipe, found a device";
    assert_eq!(refused(&["--xml", "/dev/zero"]), (125, expected.into()));
}

#[test]
fn machines_of_another_version() {
    let (_dir, path) = file("new.toml", b"version = 9\nname = \"x\"\n");
    let expected =
        "expected a machine of version 1, found version 9; write it again with this colocate";
    assert_eq!(refused(&["--machine", &path]), (125, format!("colocate: {path}: {expected}")));
    let (_dir, path) = file("new.json", b"{\"version\": 9}");
    assert_eq!(refused(&["--machine", &path]), (125, format!("colocate: {path}: {expected}")));
}

#[test]
fn everything_offline() {
    let text = shown(&["--machine", "xeon-x3320", "--json"]);
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["machine"]["pus"] = serde_json::json!([]);
    let (_dir, path) = file("off.json", value.to_string().as_bytes());
    assert_eq!(
        refused(&["--machine", &path]),
        (125, format!("colocate: {path}: expected at least one online CPU, found none"))
    );
}

#[test]
fn hwloc_pointed_elsewhere_is_not_this_machine() {
    let output = topo(&[]).env("HWLOC_SYNTHETIC", "pack:1 core:64 pu:2").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("expected this machine from hwloc, found another one"), "{text}");
}

#[test]
fn wrong_usage_is_2() {
    for args in [
        &["--nonsense"][..],
        &["--machine"],
        &["--xml", "a", "--synthetic", "b"],
        &["--machine", "live", "--xml", "a"],
    ] {
        assert_eq!(topo(args).output().unwrap().status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn output_that_cannot_be_written() {
    let (code, text) = refused(&["--machine", "epyc-7301", "-o", "/nonexistent/out.txt"]);
    assert_eq!(code, 125);
    assert!(text.starts_with("colocate: cannot write /nonexistent/out.txt"), "{text}");
}

/// A process with these mounts that runs colocate.
fn within(mounts: &str) -> Result<std::process::Command, Missing> {
    let unshare = |script: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "sh", "-ec", script, "sh"]);
        command
    };
    let is_mounted = unshare(mounts).status().is_ok_and(|status| status.success());
    Requirement::Namespaces.if_there(is_mounted, "nothing can be mounted")?;
    let mut command = unshare(&format!("{mounts}\nexec \"$@\""));
    command.arg(env!("CARGO_BIN_EXE_colocate"));
    Ok(command)
}

/// Output and lines on standard error of a run that must succeed, with these mounts.
fn shown_within(mounts: &str, args: &[&str]) -> Result<(String, String), Missing> {
    let output = within(mounts)?.args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ok((text(output.stdout), text(output.stderr)))
}

/// Without a list of PUs, what may be used is.
#[test]
fn without_sys_programs_run() {
    const NO_SYS: &str = "mount -t tmpfs none /sys";
    let line =
        "colocate: cannot read /sys/devices/system/cpu/online: PUs are those of the affinity mask";
    for args in [
        &["topo"][..],
        &["run", "--policy", "os", "--", "echo", "it ran"],
        &["run", "--", "echo", "it ran"],
        &["schedule", "--", "echo", "it ran"],
        &["profile", "--", "echo", "it ran"],
    ] {
        let (out, said) = need!(shown_within(NO_SYS, args));
        assert!(out.contains(if args[0] == "topo" { "usable: " } else { "it ran\n" }), "{out}");
        assert_eq!(
            said.matches(line).count(),
            usize::from(args[0] != "profile"),
            "{args:?}: {said}"
        );
    }
}

/// hwloc 2.9 asserts that there is a node. Other versions may read it.
#[test]
fn an_empty_folder_of_nodes_ends_no_command() {
    const NO_NODES: &str = "mount -t tmpfs none /sys/devices/system/node";
    let (picture, said) = need!(shown_within(NO_NODES, &["topo"]));
    assert!(picture.contains(" 1 node, ") && said.lines().count() <= 1, "{picture}{said}");
    let usual = shown(&[]);
    let cores = |text: &str| text[text.find("caches").unwrap()..].to_owned();
    assert_eq!(cores(&picture), cores(&usual), "the rest is as it was");
    for command in ["run", "schedule"] {
        let ran = shown_within(NO_NODES, &[command, "--", "echo", "it ran"]).unwrap();
        assert!(ran.0.contains("it ran\n"), "{ran:?}");
    }
}

/// Files of `/sys/devices/system` of a machine with 8 PUs in two packages, by core, and nodes of these PUs.
fn eight_pus(nodes: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: String, text: String| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text + "\n").unwrap();
    };
    for name in ["online", "possible", "present"] {
        write(format!("cpu/{name}"), "0-7".into());
        write(format!("node/{name}"), format!("0-{}", nodes.len() - 1));
    }
    for pu in 0..8_u32 {
        let file = |name: &str, text: String| write(format!("cpu/cpu{pu}/topology/{name}"), text);
        file("physical_package_id", (pu / 4).to_string());
        file("core_id", (pu % 4).to_string());
        for name in ["thread_siblings", "core_cpus"] {
            file(name, format!("{:02x}", 1 << pu));
            file(&format!("{name}_list"), pu.to_string());
        }
        for name in ["core_siblings", "package_cpus"] {
            file(name, if pu < 4 { "0f" } else { "f0" }.into());
            file(&format!("{name}_list"), if pu < 4 { "0-3" } else { "4-7" }.into());
        }
    }
    for (node, pus) in nodes.iter().enumerate() {
        let file = |name: &str, text: String| write(format!("node/node{node}/{name}"), text);
        let set = colocate_machine::PuSet::parse_list(pus).unwrap();
        file("cpulist", (*pus).into());
        file("cpumap", format!("{:02x}", set.iter().fold(0, |mask, pu| mask | 1 << pu.0)));
        file("meminfo", format!("Node {node} MemTotal:       1048576 kB"));
        let distance = |other| if other == node { "10" } else { "20" };
        file("distance", (0..nodes.len()).map(distance).collect::<Vec<_>>().join(" "));
    }
    dir
}

/// hwloc has such nodes beside all PUs, and says on standard error that something is wrong.
#[test]
fn nodes_that_cross_packages_have_the_pus_of_the_kernels_lists() {
    let dir = eight_pus(&["0-1,4-5", "2-3,6-7"]);
    let mount = format!("mount --bind {} /sys/devices/system", dir.path().display());
    let (text, said) = need!(shown_within(&mount, &["topo"]));
    assert!(text.contains("\n  node 0   1 GiB  PUs 0-1,4-5  10 20\n"), "{text}");
    assert!(text.contains("\n  node 1   1 GiB  PUs 2-3,6-7  20 10\n"), "{text}");
    assert!(text.contains("\npackage 1\n  node 0  shared by packages\n"), "{text}");
    assert_eq!(said, "");
}

/// hwloc 2.9 aborts on it, or makes a machine of it, by what lies in its memory; others may refuse it. None of that ends us.
#[test]
fn a_synthetic_machine_that_ends_hwloc_is_refused() {
    let text = "node:22(indexes=core:pu) pack:1 l2:4(size=1MB) core:1 pu:1";
    if topo(&["--synthetic", text]).output().unwrap().status.success() {
        return;
    }
    let (code, line) = refused(&["--synthetic", text]);
    assert_eq!(code, 125);
    let expected =
        format!("hwloc cannot make the synthetic machine \"{text}\": it was ended by SIGABRT");
    let refused =
        format!("expected a synthetic machine like \"pack:2 core:8 pu:2\", found \"{text}\"");
    assert!([expected, refused].map(|it| format!("colocate: {it}")).contains(&line), "{line}");
}
