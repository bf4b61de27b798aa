//! Reads the file of counts that the plugin leaves for one process ([`colocate_isa::counts`]).

use colocate_isa::{ClassCounts, Isa};
use colocate_machine::Bytes;
use colocate_model::MissCounts;
use serde::Deserialize;
use thiserror::Error;

use colocate_isa::counts::Misses;
pub use colocate_isa::counts::{
    BlockSequence, Branches, CodeBlock, ExecutionCounts, ProcessCounts as Trace, ThreadCounts,
    VERSION,
};

/// Longest name of a thread in the kernel, in bytes.
const LONGEST_NAME: usize = 15;
/// Longest instruction of any architecture, in bytes.
const LONGEST_INSTRUCTION: usize = 15;

/// Reason why a file is not a valid file of counts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// File that ends before its JSON does, as after a kill of the process.
    #[error("expected a whole file, found its end too early")]
    Truncated,
    /// File of another version of the plugin.
    #[error("expected counts of version {VERSION}, found version {0}; run `make tracer` again")]
    Version(u64),
    /// File in another format.
    #[error("{0}")]
    Malformed(String),
    /// File with impossible values.
    #[error("expected {0}, found others")]
    Implausible(&'static str),
}

/// Reads a file of counts.
///
/// # Errors
/// [`TraceError`].
pub fn parse(content: &[u8]) -> Result<Trace, TraceError> {
    // An empty file is left to the parser, which reports its end.
    if content.last().is_some_and(|last| *last != b'}') {
        return Err(TraceError::Truncated);
    }
    let trace: Trace = serde_json::from_slice(content).map_err(|error| refusal(content, &error))?;
    if trace.version != VERSION {
        return Err(TraceError::Version(trace.version.into()));
    }
    let wrong = trace.threads.iter().find_map(wrong_thread).or_else(|| wrong_process(&trace));
    wrong.map_or(Ok(trace), |expected| Err(TraceError::Implausible(expected)))
}

fn refusal(content: &[u8], error: &serde_json::Error) -> TraceError {
    #[derive(Deserialize)]
    struct CountsHeader {
        version: u64,
    }
    match serde_json::from_slice::<CountsHeader>(content) {
        _ if error.is_eof() => TraceError::Truncated,
        Ok(CountsHeader { version }) if version != u64::from(VERSION) => {
            TraceError::Version(version)
        }
        _ => TraceError::Malformed(error.to_string()),
    }
}

/// Violated expectation on a thread; `None` if valid.
fn wrong_thread(thread: &ThreadCounts) -> Option<&'static str> {
    let ThreadCounts { counts, undecoded, .. } = thread;
    if thread.start_ns > thread.end_ns {
        Some("threads that end after they start")
    } else if *undecoded > counts.instructions {
        Some("counts of which none exceeds the instructions")
    } else if thread.name.len() > LONGEST_NAME {
        Some("names of at most 15 bytes")
    } else {
        wrong_counts(*counts, thread.misses.as_ref(), thread.branches)
    }
}

/// Violated expectation on counts; `None` if valid.
fn wrong_counts(
    counts: ClassCounts,
    misses: Option<&Misses>,
    branches: Option<Branches>,
) -> Option<&'static str> {
    let ClassCounts { instructions, of } = counts;
    if of.into_iter().max() > Some(instructions) {
        Some("counts of which none exceeds the instructions")
    } else if misses.is_some_and(|misses| miss_counts(misses).is_none()) {
        Some("lines of a cache that rise from 0, and misses that do not rise")
    } else if branches.is_some_and(|b| b.mispredicted > b.predicted || b.predicted > instructions) {
        Some("no more branches than instructions, and no more wrong predictions")
    } else {
        None
    }
}

fn wrong_process(trace: &Trace) -> Option<&'static str> {
    let mut places = trace.stretches.iter().flat_map(|stretch| &stretch.blocks);
    if !matches!(&trace.target[..], "x86_64" | "aarch64") {
        Some("a target that is x86_64 or aarch64")
    } else if trace.start_ns > trace.end_ns {
        Some("a process that ends after it starts")
    } else if trace.begun != trace.threads.len() as u64 {
        Some("the counts of all threads that began; run it again")
    } else if !trace.unsupported.iter().all(|one| is_whole(&one.bytes))
        || !trace.blocks.iter().all(is_block)
    {
        Some("instructions of 1 to 15 bytes")
    } else if places.any(|place| *place >= trace.blocks.len()) {
        Some("stretches of blocks that are there")
    } else {
        let mut parts = trace.stretches.iter().filter_map(|stretch| stretch.ran.as_ref());
        parts.find_map(|part| wrong_counts(part.counts, part.misses.as_ref(), part.branches))
    }
}

fn is_whole(instruction: &[u8]) -> bool {
    (1..=LONGEST_INSTRUCTION).contains(&instruction.len())
}

fn is_block(block: &CodeBlock) -> bool {
    !block.instructions.is_empty() && block.instructions.iter().all(|bytes| is_whole(bytes))
}

/// Miss counts of the model; `None` if the values are impossible.
#[must_use]
pub fn miss_counts(misses: &Misses) -> Option<MissCounts> {
    let Misses { line_b, by_lines, left, left_written } = misses.clone();
    MissCounts::new(Bytes(line_b), by_lines, left, left_written)
}

/// Instruction set of a trace.
#[must_use]
pub fn isa(trace: &Trace) -> Isa {
    if trace.target == "x86_64" { Isa::X86_64 } else { Isa::Aarch64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_isa::ClassCounts;
    use colocate_isa::counts::ExecutionCounts;
    use expect_test::{Expect, expect};

    const GOOD: &str = r#"{"version":5,"target":"x86_64","pid":40,"parent":39,"start_ns":1000,"end_ns":9000,"threads":[
{"tid":40,"start_ns":1000,"end_ns":9000,"counts":{"instructions":700,"of":[100,50,300,200,60]},"undecoded":1,
"name":[109,97,105,110],"misses":{"line_b":64,"by_lines":[[0,260],[1,40],[16,7]],"left":9,"left_written":4},
"branches":{"predicted":90,"mispredicted":12}},
{"tid":41,"start_ns":2000,"end_ns":3000,"counts":{"instructions":7,"of":[1,0,3,2,1]},"undecoded":0,"name":[],
"misses":null,"branches":null}],"unsupported":[{"address":93824992244080,"bytes":[98,241,245,72,88,208]}],
"blocks":[{"address":21845,"instructions":[[144],[49,192]]},{"address":21848,"instructions":[[195]]}],
"stretches":[{"tid":41,"blocks":[0,1,0],"ran":{"counts":{"instructions":5,"of":[1,0,2,2,1]},"misses":null,"branches":null}}],"handlers":2,"begun":2}"#;

    fn check(good: &str, wrong: &str, expected: &Expect) {
        assert!(GOOD.contains(good), "{good}");
        let error = parse(GOOD.replacen(good, wrong, 1).as_bytes()).expect_err("it is wrong");
        expected.assert_eq(&error.to_string());
    }

    #[test]
    fn what_the_plugin_writes() {
        let trace = parse(GOOD.as_bytes()).expect("it is right");
        assert_eq!((trace.pid, trace.parent, trace.handlers), (40, 39, 2));
        assert_eq!((trace.start_ns, trace.end_ns), (1000, 9000));
        let main = &trace.threads[0];
        assert_eq!(main.counts, ClassCounts { instructions: 700, of: [100, 50, 300, 200, 60] });
        assert_eq!((main.undecoded, &main.name[..]), (1, &b"main"[..]));
        let misses = MissCounts::new(Bytes(64), vec![(0, 260), (1, 40), (16, 7)], 9, 4);
        assert_eq!(main.branches, Some(Branches { predicted: 90, mispredicted: 12 }));
        let of_main = main.misses.as_ref().and_then(miss_counts);
        assert!(of_main == misses && trace.threads[1].misses.is_none(), "{trace:?}");
        assert!(trace.threads[1].name.is_empty());
        assert_eq!((trace.blocks[0].address, trace.blocks.len()), (0x5555, 2));
        assert_eq!(trace.blocks[0].instructions, [vec![0x90], vec![0x31, 0xc0]]);
        let counts = ClassCounts { instructions: 5, of: [1, 0, 2, 2, 1] };
        let ran = Some(ExecutionCounts { counts, misses: None, branches: None });
        assert_eq!(trace.stretches, [BlockSequence { tid: 41, blocks: vec![0, 1, 0], ran }]);
        assert_eq!(trace.unsupported[0].bytes, [0x62, 0xf1, 0xf5, 0x48, 0x58, 0xd0]);
        let text = serde_json::to_vec(&trace).expect("every field has a JSON form");
        assert_eq!(parse(&text), Ok(trace));
    }

    #[test]
    fn a_file_that_was_cut_anywhere_is_refused() {
        for len in 0..GOOD.len() {
            let error = parse(&GOOD.as_bytes()[..len]).expect_err("it was cut");
            assert_eq!(error, TraceError::Truncated, "after {len} bytes");
        }
    }

    #[test]
    fn one_changed_byte_is_refused_or_another_value() {
        let good = parse(GOOD.as_bytes()).expect("it is right");
        for place in 0..GOOD.len() {
            let mut changed = GOOD.as_bytes().to_vec();
            // Another space is no change.
            if changed[place] != b'\n' {
                changed[place] ^= 1;
                assert_ne!(parse(&changed).ok().as_ref(), Some(&good), "at {place}");
            }
        }
    }

    #[test]
    fn each_kind_of_error() {
        let version = "expected counts of version 5, found version 2; run `make tracer` again";
        assert_eq!(parse(br#"{"version":2,"more":{}}"#).unwrap_err().to_string(), version);
        check(
            "n\":5",
            "n\":6",
            &expect!["expected counts of version 5, found version 6; run `make tracer` again"],
        );
        check(
            "begun\":2",
            "begun\":3",
            &expect!["expected the counts of all threads that began; run it again, found others"],
        );
        check(
            "x86_64",
            "mips",
            &expect!["expected a target that is x86_64 or aarch64, found others"],
        );
        check(
            "1000",
            "9001",
            &expect!["expected a process that ends after it starts, found others"],
        );
        check("2000", "9001", &expect!["expected threads that end after they start, found others"]);
        check(
            "700",
            "250",
            &expect!["expected counts of which none exceeds the instructions, found others"],
        );
        check(
            "109,",
            "1,2,3,4,5,6,7,8,9,1,2,3,4,",
            &expect!["expected names of at most 15 bytes, found others"],
        );
        check("[195]", "[]", &expect!["expected instructions of 1 to 15 bytes, found others"]);
        check("[[195]]", "[]", &expect!["expected instructions of 1 to 15 bytes, found others"]);
        check(
            "[0,1,0]",
            "[0,2,0]",
            &expect!["expected stretches of blocks that are there, found others"],
        );
        for (good, wrong) in [("4}", "10}"), ("[16,7]", "[16,300]"), ("[0,260]", "[1,260]")] {
            check(
                good,
                wrong,
                &expect![
                    "expected lines of a cache that rise from 0, and misses that do not rise, found others"
                ],
            );
        }
        check(
            "\"mispredicted\":12",
            "\"mispredicted\":91",
            &expect![
                "expected no more branches than instructions, and no more wrong predictions, found others"
            ],
        );
        check(
            "\"handlers\":2",
            "\"handlers\":-2",
            &expect!["invalid value: integer `-2`, expected u64 at line 8 column 138"],
        );
        check(
            "\"begun\":2}",
            "\"begun\":2}}",
            &expect!["trailing characters at line 8 column 149"],
        );
        check(
            "\"begun\":2}",
            "\"begun\":2,\"more\":1}",
            &expect![
                "unknown field `more`, expected one of `version`, `target`, `pid`, `parent`, `start_ns`, `end_ns`, `threads`, `unsupported`, `blocks`, `stretches`, `handlers`, `begun` at line 8 column 154"
            ],
        );
    }
}
