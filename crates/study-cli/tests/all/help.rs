//! Every character of the help. `UPDATE_EXPECT=1` accepts what changed; read the difference.

use colocate_testing::help;
use expect_test::expect_file;
use std::path::Path;

const PROGRAM: &str = env!("CARGO_BIN_EXE_colocate-study");
const HEADINGS: &[&str] = &["Commands:"];

#[test]
fn help_is_as_it_was_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let texts = help::all(PROGRAM, HEADINGS);
    let page = help::page("colocate-study", &texts);
    expect_file![folder.join("../../../../docs/reference/commands/colocate-study.md")]
        .assert_eq(&page);
    let mut names = Vec::new();
    for (words, text) in texts {
        let name =
            format!("{}.txt", [&["colocate-study".to_owned()], &words[..]].concat().join("-"));
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
