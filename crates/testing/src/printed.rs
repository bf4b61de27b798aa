//! Output of commands that end by themselves.

use serde_json::Value;
use std::process::Output;

/// Standard output of a command that succeeded.
///
/// # Panics
/// If it failed.
pub fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Standard error of a command that ended with `code`.
///
/// # Panics
/// If it ended with another one.
pub fn refusal(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Fails unless `found` is as the text of a schema says.
///
/// # Panics
/// With each place that is not.
pub fn conforms(found: &Value, schema: &str) {
    let schema: Value = serde_json::from_str(schema).unwrap();
    let wrong: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(found)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{found:#}");
}
