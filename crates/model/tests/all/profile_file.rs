//! Profile files: profiles round-trip, and malformed texts are refused with a message of one line.

use colocate_machine::Nanos;
use colocate_model::{Backend, Class, Mix, Profile, ProfiledProgram, Share, ThreadProfile};
use proptest::prelude::*;

const GOLDEN: &str = include_str!("../golden/profile.json");

fn golden() -> Profile {
    Profile::from_json(GOLDEN).expect("the golden profile is one")
}

fn refusal(text: &str) -> String {
    Profile::from_json(text).expect_err("it is odd").to_string()
}

fn any_mix() -> impl Strategy<Value = Mix> {
    prop::array::uniform5(prop::option::of(0.0..=1.0)).prop_map(|shares: [Option<f64>; 5]| {
        let mut mix = Mix::default();
        for class in Class::ALL {
            mix.set(class, shares[class as usize].and_then(Share::new));
        }
        mix
    })
}

fn any_thread() -> impl Strategy<Value = ThreadProfile> {
    let counts = prop::array::uniform3(prop::option::of(any::<u64>()));
    let times = (any::<u64>(), prop::option::of(any::<u64>()), prop::option::of(any::<u64>()));
    (any::<u32>(), any::<String>(), times, counts, any_mix()).prop_map(
        |(process, name, (start, life, cpu_time), [instructions, cycles, samples], mix)| {
            ThreadProfile {
                order: 0,
                process,
                name,
                start_ns: Nanos(start),
                end_ns: life.map(|life| Nanos(start) + Nanos(life)),
                cpu_time_ns: cpu_time.map(Nanos),
                instructions,
                cycles,
                samples,
                mix,
            }
        },
    )
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let program = (any::<String>(), prop::collection::vec(any::<String>(), 0..4), any::<String>());
    let threads = prop::collection::vec(any_thread(), 0..8);
    let backend = prop::sample::select(vec![Backend::Pmu, Backend::Sample, Backend::Emulate]);
    (program, threads, backend, any::<u64>(), any::<bool>(), prop::option::of(any::<String>()))
        .prop_map(|((path, args, identity), mut threads, backend, time, complete, processor)| {
            for (thread, order) in threads.iter_mut().zip(0..) {
                thread.order = order;
            }
            Profile {
                version: colocate_model::profile::VERSION,
                backend,
                program: ProfiledProgram { path, args, identity },
                processor,
                started_unix_s: time,
                watched_ns: Nanos(time),
                complete,
                threads,
                notes: vec!["a note".to_owned()],
            }
        })
}

proptest! {
    #[test]
    fn what_is_written_reads_back(profile in any_profile()) {
        prop_assert_eq!(Profile::from_json(&profile.to_json()).unwrap(), profile);
    }

    /// One byte changed anywhere: read or refused, never a panic.
    #[test]
    fn any_byte_may_be_wrong(at in 0..GOLDEN.len(), byte in 0_u8..128) {
        let mut bytes = GOLDEN.as_bytes().to_vec();
        bytes[at] = byte;
        if let Ok(text) = String::from_utf8(bytes) {
            let _ = Profile::from_json(&text);
        }
    }

    #[test]
    fn cut_short_is_refused(at in 0..GOLDEN.len() - 2) {
        prop_assert!(GOLDEN.is_char_boundary(at) && Profile::from_json(&GOLDEN[..at]).is_err());
    }
}

#[test]
fn golden_is_written_as_it_is() {
    assert_eq!(golden().to_json(), GOLDEN);
}

#[test]
fn refuses_another_version_whatever_else_it_holds() {
    let line = "expected a profile of version 1, found version 9; profile again";
    assert_eq!(refusal(r#"{ "version": 9, "anything": [1, 2] }"#), line);
    assert_eq!(refusal(&GOLDEN.replace(r#""version": 1"#, r#""version": 9"#)), line);
}

#[test]
fn refuses_numbers_out_of_range() {
    let with = |from: &str, to: &str| refusal(&GOLDEN.replacen(from, to, 1));
    assert!(with("0.38", "1.38").contains("expected a share from 0 to 1, found 1.38"));
    assert!(with("0.38", "-0.1").contains("expected a share from 0 to 1, found -0.1"));
    assert!(with("0.38", "1e999").contains("number out of range"));
    assert!(with("0.38", "NaN").contains("expected"));
    assert!(with(r#""watched_ns": 10000000000"#, r#""watched_ns": 1e30"#).contains("expected u64"));
    assert!(with(r#""process": 0"#, r#""process": 4294967296"#).contains("expected u32"));
}

#[test]
fn refuses_fields_twice_and_unknown_ones() {
    let twice = GOLDEN.replacen(r#""complete": true"#, r#""complete": true, "complete": false"#, 1);
    assert!(refusal(&twice).contains("duplicate field `complete`"));
    let twice = GOLDEN.replacen(r#""version": 1"#, r#""version": 1, "version": 1"#, 1);
    assert!(refusal(&twice).contains("duplicate field `version`"));
    let unknown = GOLDEN.replacen(r#""complete": true"#, r#""complete": true, "colour": "red""#, 1);
    assert!(refusal(&unknown).contains("unknown field `colour`"));
}

#[test]
fn refuses_threads_out_of_order_or_out_of_time() {
    let swapped = GOLDEN.replacen(r#""order": 1"#, r#""order": 7"#, 1);
    assert_eq!(
        refusal(&swapped),
        "expected threads numbered 0, 1, 2, … in order, found order 7 at place 1"
    );
    let backwards = GOLDEN.replacen(r#""end_ns": 9000000000"#, r#""end_ns": 5"#, 1);
    assert_eq!(
        refusal(&backwards),
        "expected threads that end after they start, found thread 1 from 1.0 ms to 5 ns"
    );
}

#[test]
fn refuses_more_threads_than_any_program_has() {
    let thread =
        |order| format!(r#"{{"order":{order},"process":0,"name":"","start_ns":0,"mix":{{}}}}"#);
    let many: Vec<String> = (0..=Profile::MAX_THREADS).map(thread).collect();
    let (head, rest) = GOLDEN.split_once(r#""threads": ["#).unwrap();
    let (_, tail) = rest.split_once("],\n  \"notes\"").unwrap();
    let text = format!("{head}\"threads\": [{}],\n  \"notes\"{tail}", many.join(","));
    assert_eq!(refusal(&text), "expected a profile of at most 100000 threads, found 100001");
    let long = " ".repeat(Profile::MAX_BYTES + 1);
    assert_eq!(
        refusal(&long),
        format!("expected a profile of at most {} bytes, found {}", Profile::MAX_BYTES, long.len())
    );
}

/// Size of the longest possible thread in a file.
#[test]
fn the_most_threads_fit_the_longest_text() {
    let long = Nanos(u64::MAX);
    let mut mix = Mix::default();
    Class::ALL.into_iter().for_each(|class| mix.set(class, Share::new(1.234_567_890_123_456_7e-5)));
    let thread = ThreadProfile {
        order: u32::MAX,
        process: u32::MAX,
        name: "\u{1}".repeat(15),
        start_ns: long,
        end_ns: Some(long),
        cpu_time_ns: Some(long),
        instructions: Some(u64::MAX),
        cycles: Some(u64::MAX),
        samples: Some(u64::MAX),
        mix,
    };
    let with = |threads| Profile { threads, ..golden() }.to_json().len();
    let each = with(vec![thread.clone(), thread.clone()]) - with(vec![thread]);
    assert!(each * Profile::MAX_THREADS + 100_000 < Profile::MAX_BYTES, "{each} bytes");
}

#[test]
fn refuses_a_changed_binary() {
    let profile = golden();
    assert!(profile.matches("build-id:4a6f").is_ok());
    assert_eq!(
        profile.matches("build-id:77").unwrap_err().to_string(),
        "profile is of /usr/bin/example with build-id:4a6f, found build-id:77; profile again"
    );
}
