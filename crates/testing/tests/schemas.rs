//! Schemas of formats, generated from their types. `UPDATE_EXPECT=1` accepts changes; read the difference.

use colocate_figures::{comparison, state};
use colocate_machine::exact;
use colocate_model::{profile, symbiosis};
use colocate_policy::plan;
use expect_test::expect_file;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

#[test]
fn schemas_follow_types() {
    // Fields that may be left out in a file that is read are optional in its schema.
    let read = SchemaSettings::draft2020_12().for_deserialize();
    check::<exact::Exact>("machine", exact::VERSION, &read);
    check::<plan::Plan>("plan", plan::VERSION, &read);
    check::<profile::Profile>("profile", profile::VERSION, &read);
    check::<state::State>("state", state::VERSION, &read);
    let written = SchemaSettings::draft2020_12().for_serialize();
    check::<comparison::Comparison>("comparison", comparison::VERSION, &written);
    check::<symbiosis::CpiModel>("cpi-model", symbiosis::file::VERSION, &written);
}

/// Compares the schema of `T` with `docs/schemas/{name}.json`.
fn check<T: JsonSchema>(name: &str, version: u32, settings: &SchemaSettings) {
    let mut schema = settings.clone().into_generator().into_root_schema_for::<T>().to_value();
    schema["title"] = name.into();
    schema["properties"]["version"]["const"] = version.into();
    close(&mut schema);
    let text = serde_json::to_string_pretty(&schema).expect("JSON");
    // Links of doc comments lead nowhere outside of rustdoc, and lines are broken for it.
    let text = text.replace("[`", "`").replace("`]", "`").replace("\\n", " ") + "\n";
    expect_file![format!("../../../docs/schemas/{name}.json")].assert_eq(&text);
}

/// Forbids fields beside the listed ones, and removes formats that no standard has, such as `uint64`.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(parts) => {
            if parts.get("format").is_some_and(Value::is_string) {
                parts.remove("format");
            }
            if parts.contains_key("properties") {
                parts.entry("additionalProperties").or_insert(false.into());
            }
            parts.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}
