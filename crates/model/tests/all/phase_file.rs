//! Files of demand vectors: both forms round-trip and fit the schema, and the schema refuses all
//! texts that the reader refuses.

use colocate_machine::Bytes;
use colocate_machine::performance::WorkKind;
use colocate_model::phase::{Known, MeasuredCycles, Phase, PhaseFile, PortWork};
use colocate_model::{Class, MissCurve, Mix, Share};
use proptest::prelude::*;
use serde_json::{Value, json};

const SCHEMA: &str = include_str!("../../../../docs/schemas/demand.json");

fn schema() -> jsonschema::Validator {
    jsonschema::validator_for(&serde_json::from_str(SCHEMA).unwrap()).unwrap()
}

fn known<T: std::fmt::Debug + Clone>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Known<T>> {
    let source = "[a-z\"\\\\é\n]{0,5}[a-z]";
    let known = (value, source).prop_map(|(value, source)| Known::new(value, source));
    prop_oneof![1 => Just(Known::Unknown), 3 => known]
}

fn any_work() -> impl Strategy<Value = PortWork> {
    let kinds = prop::array::uniform9(prop::option::of(0.0..10.0)).prop_map(|counts| {
        let counts = WorkKind::ALL.into_iter().zip(counts);
        PortWork::Kinds(counts.filter_map(|(kind, count)| Some((kind, count?))).collect())
    });
    let mix = prop::array::uniform5(prop::option::of(0.0..=1.0)).prop_map(|shares| {
        let mut mix = Mix::default();
        for class in Class::ALL {
            mix.set(class, shares[class as usize].and_then(Share::new));
        }
        PortWork::Classes(mix)
    });
    let group = (prop::collection::vec("[A-Za-z0-9]{1,6}", 0..4), 0.0..10.0);
    let divisions = prop::option::of(0.0..10.0).prop_map(|count| match count {
        Some(count) => vec![(WorkKind::FloatDiv, count)],
        None => Vec::new(),
    });
    let ports = ("[a-z0-9]{1,8}", prop::collection::vec(group, 0..4), divisions)
        .prop_map(|(llvm_cpu, groups, kinds)| PortWork::Ports { llvm_cpu, groups, kinds });
    prop_oneof![kinds, mix, ports]
}

fn any_curve() -> impl Strategy<Value = MissCurve> {
    prop::collection::btree_map(0_u64..1 << 40, 0.0..0.5, 1..6).prop_map(|points| {
        let mut misses: Vec<f64> = points.values().copied().collect();
        misses.sort_by(|a, b| b.total_cmp(a));
        MissCurve::new(points.into_keys().map(Bytes).zip(misses)).unwrap()
    })
}

fn any_phase() -> impl Strategy<Value = Phase> {
    let amounts = prop::array::uniform5(known(prop_oneof![0.0..1e3, Just(0.0), Just(1e6)]));
    let parts = (known(0.0..=1.0), known(0.0..=1.0), known(1.0..100.0));
    let cycles = (any::<String>(), 0.01..1e3)
        .prop_map(|(processor, cycles)| MeasuredCycles { processor, cycles });
    (any::<String>(), amounts, parts, known(any_work()), known(any_curve()), known(cycles))
        .prop_map(
            |(
                name,
                amounts,
                (branch_misses, written_back, parallel_misses),
                work,
                misses,
                cycles,
            )| {
                let [slots, dependent_cycles, divided, stall_cycles, shared_lines] = amounts;
                Phase {
                    name,
                    slots,
                    work,
                    dependent_cycles,
                    dependent_cycles_divided: divided,
                    stall_cycles,
                    branch_misses,
                    misses,
                    parallel_misses,
                    written_back,
                    shared_lines,
                    cycles,
                }
            },
        )
}

proptest! {
    #[test]
    fn written_and_read(phases in prop::collection::vec(any_phase(), 0..4)) {
        let file = PhaseFile::new(phases);
        let json = file.to_json();
        prop_assert_eq!(PhaseFile::from_json(&json).unwrap(), file.clone());
        prop_assert_eq!(PhaseFile::from_toml(&file.to_toml()).unwrap(), file);
        let json: Value = serde_json::from_str(&json).unwrap();
        prop_assert!(schema().is_valid(&json), "{json}");
    }

    #[test]
    fn any_text_is_read_or_refused_in_one_line(text in "version = 1\n(.{0,40}\n?){0,4}") {
        if let Err(error) = PhaseFile::from_toml(&text) {
            prop_assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}

/// One wrong thing at a time, refused by the reader and by the schema.
#[test]
fn reader_and_schema_agree() {
    let schema = schema();
    let file = |phase: Value| json!({ "version": 1, "phase": [phase] });
    let figure = |value: Value| json!({ "value": value, "source": "made up" });
    let good = [
        json!({}),
        json!({ "name": "a", "slots": "unknown" }),
        json!({ "slots": figure(json!(1)) }),
        json!({ "work": figure(json!({ "kinds": {} })) }),
        json!({ "cycles": figure(json!({ "processor": "made up", "cycles": 0.5 })) }),
    ];
    for phase in good {
        let text = file(phase).to_string();
        PhaseFile::from_json(&text).unwrap();
        assert!(schema.is_valid(&serde_json::from_str(&text).unwrap()), "{text}");
    }
    let wrong = [
        file(json!({ "slots": null })),
        file(json!({ "slots": 1.0 })),
        file(json!({ "slots": { "value": 1.0 } })),
        file(json!({ "slots": { "value": 1.0, "source": "  " } })),
        file(json!({ "slots": { "value": 1.0, "source": "s", "unit": "slots" } })),
        file(json!({ "slots": figure(json!(-1.0)) })),
        file(json!({ "slots": figure(json!(2e6)) })),
        file(json!({ "branch-misses": figure(json!(1.5)) })),
        file(json!({ "parallel-misses": figure(json!(0.0)) })),
        file(json!({ "slosts": figure(json!(1.0)) })),
        file(json!({ "work": figure(json!({ "kinds": { "add": 1.0 } })) })),
        file(json!({ "work": figure(json!({ "kinds": { "int": -1.0 } })) })),
        file(json!({ "work": figure(json!({ "classes": { "int": 1.5 } })) })),
        file(json!({ "work": figure(json!({ "classes": { "ints": 0.5 } })) })),
        file(json!({ "work": figure(json!({ "ports": { "llvm-cpu": "znver1" } })) })),
        file(json!({ "work": figure(json!({ "kinds": {}, "classes": {} })) })),
        file(json!({ "misses": figure(json!([])) })),
        file(json!({ "misses": figure(json!([["1 kB", 0.1]])) })),
        file(json!({ "misses": figure(json!([["1 KiB", -0.1]])) })),
        file(json!({ "misses": figure(json!([["1 KiB", 1e4]])) })),
        file(json!({ "cycles": figure(json!(0.5)) })),
        file(json!({ "cycles": figure(json!({ "cycles": 0.5 })) })),
        file(json!({ "cycles": figure(json!({ "processor": "made up", "cycles": 0.0 })) })),
        json!({ "version": 1 }),
        json!({ "version": 2, "phase": [] }),
        json!({ "version": 1, "phase": [], "phases": [] }),
    ];
    for file in wrong {
        assert!(PhaseFile::from_json(&file.to_string()).is_err(), "{file}");
        assert!(!schema.is_valid(&file), "{file}");
    }
}
