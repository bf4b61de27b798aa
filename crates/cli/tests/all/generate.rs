//! `colocate generate`: manual pages and completions.

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
    for command in
        ["topo", "profile", "doctor", "plan", "run", "restore", "bench-smt", "compare", "simulate"]
    {
        let page = text(&format!("man/man1/colocate-{command}.1"));
        assert!(page.contains(".TH") && page.contains("\\-\\-help"), "{command}: {page}");
    }
    assert!(text("man/man1/colocate.1").contains("colocate\\-compare(1)"));
    for file in [
        "bash-completion/completions/colocate.bash",
        "zsh/site-functions/_colocate",
        "fish/vendor_completions.d/colocate.fish",
    ] {
        let text = text(file);
        assert!(
            text.contains("compare") && text.contains("--policy") | text.contains("l policy"),
            "{file}"
        );
    }
}

/// What the docs say of policies is what their table says: `colocate generate --policies` prints both pieces.
#[test]
fn the_docs_have_the_table_of_policies() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_colocate")).args(["generate", "--policies"]).output();
    let printed = String::from_utf8(output.unwrap().stdout).unwrap();
    let (table, list) = printed.split_once("\n\n").unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (file, piece) in [("docs/schedule.md", table), ("README.md", list)] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        assert!(text.contains(piece), "expected in {file}:\n{piece}");
    }
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
