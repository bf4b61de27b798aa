//! `colocate-study generate`: manual pages and completions.

use std::process::Command;

/// One page for each command with all its sections, and completions under the program's own name.
#[test]
fn pages_and_completions() {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
    assert!(command.arg("generate").arg(scratch.path()).status().unwrap().success());
    let pages = scratch.path().join("man/man1");
    for name in ["", "-simulate", "-bench-smt", "-train-cpi-model", "-study"] {
        let page = std::fs::read_to_string(pages.join(format!("colocate-study{name}.1"))).unwrap();
        for section in ["EXAMPLES", "FILES", "EXIT STATUS"] {
            assert!(page.contains(&format!(".SH \"{section}\"\n")), "{section} in {name}");
        }
    }
    for file in [
        "bash-completion/completions/colocate-study.bash",
        "zsh/site-functions/_colocate-study",
        "fish/vendor_completions.d/colocate-study.fish",
    ] {
        let text = std::fs::read_to_string(scratch.path().join(file)).unwrap();
        assert!(text.contains("simulate"), "{file}");
    }
}
