//! The tests that SECURITY.md names exist.

use std::path::Path;

#[test]
fn every_promise_has_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let (_, promises) = text.split_once("\n## Promises\n").unwrap();
    let table = promises.split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| **"));
    let mut wrong = Vec::new();
    let mut tests = 0;
    // After the heading.
    for row in rows.skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let named: Vec<&str> = cells.last().unwrap().split('`').skip(1).step_by(2).collect();
        if cells.len() != 2 || named.is_empty() {
            wrong.push(format!("expected a promise and its tests, found {row}"));
        }
        for name in named {
            tests += 1;
            let found = name.split_once("::").and_then(|(path, test)| {
                let source = std::fs::read_to_string(root.join(path)).ok()?;
                let lines: Vec<&str> = source.lines().map(str::trim).collect();
                let head = format!("fn {test}() {{");
                let at = lines.iter().position(|line| *line == head)?;
                // Attributes of a test stand right above it.
                let mut above = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
                above.any(|line| *line == "#[test]").then_some(())
            });
            if found.is_none() {
                wrong.push(format!("no test {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(tests > 0, "no promise is there");
}
