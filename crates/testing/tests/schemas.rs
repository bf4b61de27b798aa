//! Schemas of formats, generated from their types. `UPDATE_EXPECT=1` accepts changes; read the difference.

use colocate_cli::formats;
use colocate_cli::measure::scenarios;
use colocate_figures::{comparison::Comparison, state::StudyState};
use colocate_machine::exact::Exact;
use colocate_model::{profile::Profile, symbiosis::CpiModel};
use colocate_observe::doctor::Diagnosis;
use colocate_policy::plan::Plan;
use colocate_study::{
    coherence, contention, patterns, piccoli, replication, simulate::figures::Simulated,
};
use colocate_study_cli::Bandwidth;
use expect_test::expect_file;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

#[test]
fn schemas_follow_types() {
    // Fields that may be left out in a file that is read are optional in its schema.
    let read = SchemaSettings::draft2020_12().for_deserialize();
    check::<Exact>("machine", &read);
    check::<Plan>("plan", &read);
    check::<Profile>("profile", &read);
    check::<StudyState>("state", &read);
    let written = SchemaSettings::draft2020_12().for_serialize();
    check::<Bandwidth>("bench-bandwidth", &written);
    check::<scenarios::SmtBenchReport>("bench-smt", &written);
    check::<Comparison>("comparison", &written);
    check::<CpiModel>("cpi-model", &written);
    check::<Diagnosis>("doctor", &written);
    check::<formats::Moved>("move", &written);
    check::<formats::Pages>("pages", &written);
    check::<coherence::CoherenceReport>("replay", &written);
    check::<formats::Report>("report", &written);
    check::<Vec<formats::Restored>>("restore", &written);
    check::<Simulated>("simulated", &written);
    check::<replication::report::StudyReport>("study", &written);
    check::<patterns::PatternReport>("study-communication", &written);
    check::<contention::ContentionReport>("study-contention", &written);
    check::<piccoli::PiccoliReport>("study-piccoli", &written);
    check::<formats::Threads>("threads", &written);
    check::<formats::MatrixRecord>("top-matrix", &written);
    check::<formats::TopTable>("top", &written);
}

/// Compares the schema of `T` with `docs/schemas/{name}.json`.
fn check<T: JsonSchema>(name: &str, settings: &SchemaSettings) {
    let mut schema = settings.clone().into_generator().into_root_schema_for::<T>().to_value();
    schema["title"] = name.into();
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
            parts.values_mut().for_each(close);
            if parts.contains_key("properties") {
                let closing = if let Some(Value::Array(alternatives)) = parts.get_mut("oneOf") {
                    alternatives.iter_mut().for_each(open);
                    "unevaluatedProperties"
                } else {
                    "additionalProperties"
                };
                parts.entry(closing).or_insert(false.into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// Permits the fields of the object that `alternative` is a part of.
fn open(alternative: &mut Value) {
    if let Value::Object(parts) = alternative {
        parts.remove("additionalProperties");
    }
}
