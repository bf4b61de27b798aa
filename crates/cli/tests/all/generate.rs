//! `colocate generate`: manual pages and completions.

use colocate_testing::skip;
use std::path::Path;
use std::process::{Command, Output};

fn generate(folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_colocate")).arg("generate").arg(folder).output().unwrap()
}

/// One page for each command, and completions that name the commands.
#[test]
fn pages_and_completions() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("share");
    assert!(generate(&folder).status.success());
    let text = |path: &str| std::fs::read_to_string(folder.join(path)).expect(path);
    for command in ["topo", "profile", "doctor", "plan", "run", "restore", "pages-move", "compare"]
    {
        let page = text(&format!("man/man1/colocate-{command}.1"));
        assert!(page.contains(".TH") && page.contains("\\-\\-help"), "{command}: {page}");
    }
    for page in std::fs::read_dir(folder.join("man/man1")).unwrap() {
        let path = page.unwrap().path();
        let page = std::fs::read_to_string(&path).unwrap();
        for section in ["EXAMPLES", "FILES", "EXIT STATUS"] {
            assert!(
                page.contains(&format!(".SH \"{section}\"\n")),
                "{section} in {}",
                path.display()
            );
        }
    }
    assert!(text("man/man1/colocate.1").contains("colocate\\-compare(1)"));
    for file in [
        "bash-completion/completions/colocate.bash",
        "zsh/site-functions/_colocate",
        "fish/vendor_completions.d/colocate.fish",
    ] {
        let text = text(file);
        let pids = ["compgen -W \"$(ps -eo pid=)\"", ":_pids", "(__fish_complete_pids)"];
        assert!(pids.iter().any(|completed| text.contains(completed)), "{file}");
        assert!(!text.contains("compopt -o plusdirs") && !text.contains("_users"), "{file}");
        assert!(
            text.contains("compare") && text.contains("--policy") | text.contains("l policy"),
            "{file}"
        );
    }
}

const POLICIES_HEAD: &str = "\
# Policies

A test writes this page from the table of policies (`the_docs_have_the_table_of_policies`, `UPDATE_EXPECT=1`).
`run`, `attach` and `plan` take the policies that decide once, `schedule` those that decide each quantum. A setting
follows the name: `random:seed=7`. [schedule.md](schedule.md) and [pages.md](pages.md) have the rules of some policies,
the heads of the files in `crates/policy/src` those of all.

";

/// The page of policies is their table, which `colocate generate --policies` prints.
#[test]
fn the_docs_have_the_table_of_policies() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_colocate")).args(["generate", "--policies"]).output();
    let table = String::from_utf8(output.unwrap().stdout).unwrap();
    expect_test::expect_file![root().join("docs/reference/policies.md")]
        .assert_eq(&format!("{POLICIES_HEAD}{table}"));
}

/// The root of the sources.
fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files below a folder.
fn files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

/// Below DESTDIR only, with the pages that the book lists; nothing stays after the removal but what others have there.
#[test]
fn installed_and_removed() {
    let (scratch, binary) = (tempfile::tempdir().unwrap(), env!("CARGO_BIN_EXE_colocate"));
    let script = |what: &str| {
        let mut command = Command::new(root().join("scripts/install-files"));
        let done = command.args([what, "/opt/some prefix"]).arg(scratch.path()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    script(binary);
    let prefix = scratch.path().join("opt/some prefix");
    let doc = prefix.join("share/doc/colocate");
    let summary = std::fs::read_to_string(doc.join("docs/SUMMARY.md")).unwrap();
    let named = summary.split("](").skip(1).filter_map(|it| it.split(')').next());
    let pages: Vec<&str> = named.collect();
    let is_copied = |page: &&str| doc.join("docs").join(page).is_file();
    assert!(pages.len() > 32 && pages.iter().all(is_copied), "{pages:?}");
    assert!(prefix.join("share/man/man1/colocate-run.1").is_file());
    let [built, installed] = [Path::new(binary), &prefix.join("bin/colocate")]
        .map(|path| std::fs::metadata(path).unwrap().len());
    let can_strip = Command::new("strip").arg("--version").output().is_ok();
    // Symbols alone are a third of it; debug information is as much again.
    assert!(!can_strip || installed * 4 < built * 3, "{installed} bytes of {built}");

    std::fs::write(prefix.join("bin/another"), "").unwrap();
    script(binary);
    script("--remove");
    assert_eq!(files(scratch.path()), 1, "only what another program has there");
    assert!(!doc.exists());
}

/// As packagers write it, in the environment.
#[test]
fn destdir_of_the_environment_is_heeded() {
    let mut make = Command::new("make");
    make.args(["-n", "install", "BUILT=/bin/true"]).current_dir(root());
    make.env("DESTDIR", "/nowhere").env_remove("MAKEFLAGS").env_remove("PREFIX");
    let Ok(done) = make.output() else {
        skip!(Tools, "make is not installed");
    };
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(said.contains("\"/usr/local\" \"/nowhere\""), "{said}");
}

#[test]
fn a_folder_that_cannot_be_made() {
    let output = generate(Path::new("/proc/share"));
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("colocate: cannot make /proc/share: ") && said.lines().count() == 1,
        "{said}"
    );
}
