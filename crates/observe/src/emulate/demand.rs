//! Demand of a program from counts under QEMU.

use super::Branches;
use colocate_model::phase::{Known, Phase, PortWork};
use colocate_model::profile::ThreadProfile;
use colocate_model::{MissCounts, Profile};

/// Mean demand per instruction of each thread of `profile`: work by class, and cache misses and
/// branch mispredictions if counted. `misses` and `branches` have the order of the threads. The
/// rest is unknown.
#[must_use]
pub fn phases(
    profile: &Profile,
    misses: &[Option<MissCounts>],
    branches: &[Option<Branches>],
) -> Vec<Phase> {
    let by = profile.processor.as_deref().unwrap_or("QEMU");
    let counts = misses.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    let branches = branches.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    let threads = profile.threads.iter().zip(counts).zip(branches);
    let phases = threads.map(|((thread, counts), branches)| Phase {
        branch_misses: branch_misses(thread, branches, by),
        ..phase(phase_name(profile, thread), thread, counts, by)
    });
    phases.collect()
}

/// Name of a thread's phase: with the thread's order if there are several.
fn phase_name(profile: &Profile, thread: &ThreadProfile) -> String {
    match &profile.threads[..] {
        [_] => thread.name.clone(),
        _ => format!("{} {}", thread.name, thread.order),
    }
}
/// Branch mispredictions per instruction.
fn branch_misses(thread: &ThreadProfile, branches: Option<&Branches>, by: &str) -> Known<f64> {
    let (Some(found), Some(instructions)) = (branches, thread.instructions.filter(|n| *n > 0))
    else {
        return Known::default();
    };
    let share = found.mispredicted as f64 / instructions as f64;
    let source = format!(
        "{} branches guessed under {by} by a TAGE predictor of some 32 KiB, which is no real processor's",
        found.predicted
    );
    Known::new((share * 1e6).round() / 1e6, source)
}

fn phase(name: String, thread: &ThreadProfile, counts: Option<&MissCounts>, by: &str) -> Phase {
    let mut phase = Phase {
        name,
        work: Known::new(PortWork::Classes(thread.mix), format!("counted under {by}")),
        ..Phase::default()
    };
    let Some(counts) = counts else { return phase };
    let source = format!(
        "reuse distances of {} accesses under {by}: a cache that keeps the lines used last",
        counts.accesses()
    );
    if let Some(curve) = thread.instructions.and_then(|instructions| counts.curve(instructions)) {
        phase.misses = Known::new(curve, source);
    }
    if let Some(part) = counts.written_back() {
        let source = format!("written lines among those given up by a cache of 257 KiB under {by}");
        phase.written_back = Known::new((part * 1e4).round() / 1e4, source);
    }
    phase
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::{Bytes, Nanos};
    use colocate_model::mix::Mix;

    fn thread(order: u32, instructions: u64) -> ThreadProfile {
        ThreadProfile {
            order,
            process: 0,
            name: "worker".into(),
            start_ns: Nanos::ZERO,
            end_ns: None,
            cpu_time_ns: None,
            instructions: Some(instructions),
            cycles: None,
            samples: None,
            mix: Mix::from_counts(instructions, [0, 0, instructions, 0, 0]),
        }
    }

    fn profile(threads: Vec<ThreadProfile>) -> Profile {
        Profile {
            version: 1,
            backend: colocate_model::Backend::Emulate,
            program: colocate_model::ProfiledProgram {
                path: "/bin/worker".into(),
                args: vec![],
                identity: "sha256:".into(),
            },
            processor: Some("QEMU 10".into()),
            started_unix_s: 0,
            watched_ns: Nanos::ZERO,
            complete: true,
            threads,
            notes: vec![],
        }
    }

    #[test]
    fn what_was_not_counted_is_unknown() {
        // Lines of 64 bytes: of 10 instructions 5 miss every cache of less than 128 bytes.
        let counts = MissCounts::new(Bytes(64), vec![(0, 5), (1, 5), (2, 0)], 2000, 500);
        let two = profile(vec![thread(0, 10), thread(1, 0)]);
        let branches = [Some(Branches { predicted: 4, mispredicted: 2 }), None];
        let [first, second] = &phases(&two, &[counts, None], &branches)[..] else {
            panic!("two threads")
        };
        let per_instruction = 2.0 / 10.0;
        let found = *first.branch_misses.get().unwrap();
        assert!((found - per_instruction).abs() < 1e-6, "{found}");
        assert_eq!(second.branch_misses.get(), None);
        assert_eq!((&first.name[..], &second.name[..]), ("worker 0", "worker 1"));
        assert_eq!(first.misses.get().unwrap().points(), [(64.0, 0.5), (128.0, 0.0)]);
        assert_eq!(first.written_back.get(), Some(&0.25));
        assert!(first.misses.source().unwrap().contains("QEMU 10"));
        assert!(second.misses.get().is_none() && second.written_back.get().is_none());
        assert_eq!(phases(&profile(vec![thread(0, 1)]), &[], &[])[0].name, "worker");
    }
}
