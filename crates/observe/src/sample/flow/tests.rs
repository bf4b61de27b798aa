//! Loops, dominance and functions of small graphs.

use super::*;
use colocate_isa::{Class, ClassSet};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Code of four-byte instructions from address 0, one word each: `.` plain, `n` padding,
/// `r` return, `*` jump through a register, `c9` conditional to instruction 9, `j9` jump to it.
pub(in crate::sample) fn code(words: &str) -> Vec<Decoded> {
    let instruction = |(at, word): (u64, &str)| {
        let target = || 4 * word[1..].parse::<u64>().unwrap();
        let flow = match &word[..1] {
            "c" => Flow::Conditional { target: target() },
            "j" => Flow::Jump { target: target() },
            "r" => Flow::Return,
            "*" => Flow::IndirectJump,
            _ => Flow::Next,
        };
        let classes = match word {
            "n" => ClassSet::NONE,
            "." => Class::Int.into(),
            _ => Class::Branch.into(),
        };
        Decoded { ip: 4 * at, len: 4, classes, flow }
    };
    (0..).zip(words.split(' ')).map(instruction).collect()
}

/// More steps than any test takes.
pub(crate) const PLENTY: u64 = 1 << 40;

fn graph_of(code: &[Decoded], seen: &BTreeSet<u64>) -> Graph {
    Graph::of(code, seen, &mut StepBudget::of(PLENTY)).unwrap()
}

pub(crate) fn graph(words: &str) -> Graph {
    graph_of(&code(words), &BTreeSet::new())
}

/// The first instruction of each block, of the innermost loop that it is in.
fn headers(graph: &Graph) -> Vec<Option<u64>> {
    let header = |found: LoopIdx| graph.blocks[graph.loops[found].header].start / 4;
    graph.blocks.iter().map(|block| block.innermost.map(header)).collect()
}

#[test]
fn blocks_end_where_control_may_turn() {
    //                 0 1 2  3 4
    let graph = graph(". . c4 . r");
    let ends: Vec<(u64, u64)> = graph.blocks.iter().map(|b| (b.start / 4, b.end / 4)).collect();
    assert_eq!(ends, [(0, 3), (3, 4), (4, 5)]);
    assert_eq!(graph.blocks[0].next, [2, 1]);
    assert_eq!(graph.blocks[2].before, [0, 1]);
    assert!(graph.blocks[2].leaves && !graph.blocks[1].leaves);
    assert_eq!(graph.block_at(13), Some(1));
    assert_eq!(graph.block_at(20), None);
}

#[test]
fn the_innermost_of_nested_loops() {
    // Outer loop 1 ..= 5 around inner loop 2 ..= 3.
    //                 0 1 2 3  4 5  6
    let graph = graph(". . . c2 . c1 r");
    assert_eq!(headers(&graph), [None, Some(1), Some(2), Some(1), None]);
    assert_eq!(graph.loops.len(), 2);
}

/// As GCC lays out `while (!flag) pause();`, entered at its test and, where that was true once, behind it.
#[test]
fn a_loop_that_is_entered_at_two_places() {
    //                 0  1 2 3  4
    let graph = graph("c3 . . c1 r");
    assert_eq!(headers(&graph), [None, Some(3), Some(3), None]);
}

#[test]
fn padding_before_a_loop_is_no_entry() {
    // Instruction 2 is padding that nothing leads to, right before the loop's head.
    //                 0 1  2 3 4  5
    let graph = graph(". j3 n . c3 r");
    assert_eq!(headers(&graph), [None, None, Some(3), None]);
    assert_eq!(graph.entries, [0]);
}

#[test]
fn code_that_is_entered_from_elsewhere_counts_once_it_was_seen() {
    let words = ". r . c2 r";
    assert_eq!(graph(words).entries, [0]);
    let seen = graph_of(&code(words), &BTreeSet::from([8]));
    assert_eq!(seen.entries, [0, 1]);
    assert_eq!(headers(&seen), [None, Some(2), None]);
}

#[test]
fn a_switch_leads_to_its_cases() {
    // Instruction 1 jumps to the cases 2 and 4 through a table; both go back to 0.
    let graph = graph(". * . j0 . j0 n r");
    assert_eq!(graph.blocks[0].next, [1, 2, 3]);
    assert_eq!(headers(&graph)[..3], [Some(0), Some(0), Some(0)]);
}

#[test]
fn a_jump_away_leaves() {
    let graph = graph("c99 . j77");
    assert!(graph.blocks[0].leaves && graph.blocks[1].leaves);
}

/// Blocks among `part` that can be reached from `from` in one step or more.
fn reached(graph: &Graph, from: BlockIdx, part: &BTreeSet<BlockIdx>) -> BTreeSet<BlockIdx> {
    let (mut rest, mut found) = (vec![from], BTreeSet::new());
    while let Some(block) = rest.pop() {
        let next = graph.blocks[block].next.iter().copied().filter(|next| part.contains(next));
        rest.extend(next.filter(|next| found.insert(*next)));
    }
    found
}

/// When each block is met, depth first.
fn numbers(graph: &Graph) -> BTreeMap<BlockIdx, usize> {
    fn visit(graph: &Graph, block: BlockIdx, numbers: &mut BTreeMap<BlockIdx, usize>) {
        if !numbers.contains_key(&block) {
            numbers.insert(block, numbers.len());
            graph.blocks[block].next.iter().for_each(|next| visit(graph, *next, numbers));
        }
    }
    let mut numbers = BTreeMap::new();
    graph.entries.iter().for_each(|entry| visit(graph, *entry, &mut numbers));
    numbers
}

/// The loops of a part by their headers, as the definition has it.
fn loops_by_definition(
    graph: &Graph,
    part: &BTreeSet<BlockIdx>,
    numbers: &BTreeMap<BlockIdx, usize>,
) -> BTreeMap<BlockIdx, BTreeSet<BlockIdx>> {
    let from: BTreeMap<BlockIdx, BTreeSet<BlockIdx>> =
        part.iter().map(|block| (*block, reached(graph, *block, part))).collect();
    let mut loops = BTreeMap::new();
    for (block, reached) in &from {
        let connected: BTreeSet<BlockIdx> =
            reached.iter().copied().filter(|other| from[other].contains(block)).collect();
        let header = connected.iter().copied().min_by_key(|block| numbers[block]);
        if let Some(header) = header.filter(|header| header == block) {
            let inside = connected.iter().copied().filter(|block| *block != header).collect();
            loops.extend(loops_by_definition(graph, &inside, numbers));
            loops.insert(header, connected);
        }
    }
    loops
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (0..30_u8).prop_map(|to| format!("c{to}")),
        2 => (0..30_u8).prop_map(|to| format!("j{to}")),
        2 => Just(".".to_owned()),
        1 => Just("n".to_owned()),
        1 => Just("r".to_owned()),
        1 => Just("*".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn as_by_connected_parts(
        words in prop::collection::vec(word(), 1..30),
        seen in prop::collection::btree_set(0..30_u64, 0..4),
    ) {
        let seen = seen.into_iter().map(|at| 4 * at).collect();
        let graph = graph_of(&code(&words.join(" ")), &seen);
        let numbers = numbers(&graph);
        let all: BTreeSet<BlockIdx> = numbers.keys().copied().collect();
        prop_assert_eq!(&all, &graph.order.iter().copied().collect());
        let expected = loops_by_definition(&graph, &all, &numbers);
        let bodies: BTreeMap<BlockIdx, BTreeSet<BlockIdx>> = (0..graph.loops.len())
            .map(|of| (graph.loops[of].header, graph.body(of).iter().copied().collect()))
            .collect();
        prop_assert_eq!(&bodies, &expected);
        for block in 0..graph.blocks.len() {
            let around = expected.iter().filter(|(_, body)| body.contains(&block));
            let innermost = around.min_by_key(|(_, body)| body.len()).map(|(header, _)| *header);
            let header = |of: LoopIdx| graph.loops[of].header;
            prop_assert_eq!(graph.blocks[block].innermost.map(header), innermost);
            for of in 0..graph.loops.len() {
                prop_assert_eq!(graph.is_inside(block, of), bodies[&header(of)].contains(&block));
            }
        }
    }
}

/// Functions of `jumps` conditional jumps, chosen so that simple ways take the square of that.
fn hostile(jumps: u64) -> [(&'static str, Vec<Decoded>); 4] {
    let jump = |at: u64, target: u64| Decoded {
        ip: 4 * at,
        len: 4,
        classes: Class::Branch.into(),
        flow: Flow::Conditional { target: 4 * target },
    };
    let all = |target: &dyn Fn(u64) -> u64| (0..jumps).map(|at| jump(at, target(at))).collect();
    [
        // Loops inside of loops: jump n - i goes back to i.
        ("nested", all(&|at| if at < jumps / 2 { at + 1 } else { jumps - at })),
        // Each jump back changes what dominates all that lies before it, once more.
        ("ladder", all(&|at| if at % 2 == 0 { jumps - 1 - at / 2 } else { at.saturating_sub(2) })),
        // Each block leads to the next and to the last, which leads back to the first.
        ("fan", all(&|at| if at + 1 == jumps { 0 } else { jumps - 1 })),
        ("random", all(&|at| (at.wrapping_mul(6_364_136_223_846_793_005) >> 20) % jumps)),
    ]
}

/// Ten times the code takes some ten times the steps, and all of it less than a function may.
#[test]
fn near_linear_on_ladders() {
    let steps = |code: &[Decoded]| {
        let mut budget = StepBudget::of(PLENTY);
        let graph = Graph::of(code, &BTreeSet::new(), &mut budget).unwrap();
        assert!(graph.blocks.len() + 1 >= code.len());
        PLENTY - budget.left()
    };
    let [few, many] = [10_000, 100_000].map(|jumps| hostile(jumps).map(|(_, c)| steps(&c)));
    for (place, (name, _)) in hostile(2).iter().enumerate() {
        assert!(many[place] < 15 * few[place], "{name}: {} {}", few[place], many[place]);
        assert!(many[place] < 100_000_000, "{name}: {}", many[place]);
    }
}

/// More blocks than are visited, and a budget that ends in the midst.
#[test]
fn what_is_over_budget_has_no_graph() {
    let (_, nested) = &hostile(2 * MOST_BLOCKS as u64)[0];
    let mut budget = StepBudget::of(PLENTY);
    assert_eq!(Graph::of(nested, &BTreeSet::new(), &mut budget), None);
    let part = &nested[..1_000];
    let mut budget = StepBudget::of(PLENTY);
    Graph::of(part, &BTreeSet::new(), &mut budget).unwrap();
    for share in 1..20 {
        let mut less = StepBudget::of((PLENTY - budget.left()) * share / 20);
        assert_eq!(Graph::of(part, &BTreeSet::new(), &mut less), None);
    }
}

#[test]
fn nothing_at_all() {
    assert_eq!(graph_of(&[], &BTreeSet::new()), Graph::default());
}
