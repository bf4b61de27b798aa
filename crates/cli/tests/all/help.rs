//! Every character of the help. `UPDATE_EXPECT=1` accepts what changed; read the difference.

use colocate_testing::help;
use expect_test::expect_file;
use std::path::Path;

const PROGRAM: &str = env!("CARGO_BIN_EXE_colocate");
const HEADINGS: &[&str] = &["Commands:", "Look:", "Place:", "Tune:", "Undo:"];

#[test]
fn help_is_as_it_was_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let texts = help::all(PROGRAM, HEADINGS);
    let page = help::page("colocate", &texts);
    expect_file![folder.join("../../../../docs/reference/commands/colocate.md")].assert_eq(&page);
    let mut names = Vec::new();
    for (words, text) in texts {
        let name = format!("{}.txt", [&["colocate".to_owned()], &words[..]].concat().join("-"));
        expect_file![folder.join(&name)].assert_eq(&text);
        names.push(name);
    }
    names.sort();
    assert_eq!(help::files(&folder), names);
}

/// Units and ranges belong into the help of whatever takes a number.
#[test]
fn every_option_has_a_text() {
    for (words, text) in help::all(PROGRAM, HEADINGS) {
        assert_eq!(help::undescribed(&text), [""; 0], "{words:?}");
    }
}

/// A screen has 24 lines of 80 columns at least; one of 40 is common.
#[test]
fn help_fits_one_screen() {
    let (_, text) = help::all(PROGRAM, &[]).remove(0);
    assert!(text.lines().count() <= 40, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn earlier_names_say_the_new_one() {
    for (earlier, now) in [
        ("simulate", "`colocate-study simulate` now (`make study` builds it)"),
        ("move", "`colocate pages move` now"),
    ] {
        for words in [[earlier, "--help"], ["help", earlier]] {
            let output = std::process::Command::new(PROGRAM).args(words).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert_eq!(said, format!("colocate: `colocate {earlier}` is {now}\n"));
        }
    }
}
