//! Flow graphs of arbitrary code: none makes the analysis panic, hang or go over its budget.
#![no_main]

use colocate_isa::{Decoded, Decoder, Isa};
use colocate_observe::sample::budget::StepBudget;
use colocate_observe::sample::flow::Graph;
use colocate_observe::sample::live;
use colocate_observe::sample::rates::flows;
use colocate_observe::spin::loops::{CodeBytes, AnalysedCode};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;

/// Steps that one function may take, about a tenth of a second without instrumentation.
const MOST_STEPS: u64 = 100_000_000;

fn check(graph: &Graph) {
    let order: BTreeSet<usize> = graph.order.iter().copied().collect();
    assert_eq!(order.len(), graph.order.len());
    for (place, found) in graph.loops.iter().enumerate() {
        assert!(found.inside.start == place && found.inside.end <= graph.loops.len());
        assert_eq!(graph.blocks[found.header].innermost, Some(place));
        assert!(order.contains(&found.header));
        // Those behind it begin inside of it or are apart from it.
        let next = graph.loops.get(place + 1);
        assert!(next.is_none_or(|next| {
            next.inside.end <= found.inside.end || next.inside.start >= found.inside.end
        }));
    }
    for (block, found) in graph.blocks.iter().enumerate() {
        assert!(found.innermost.is_none_or(|of| graph.is_inside(block, of)));
        assert!(found.innermost.is_none_or(|of| graph.body(of).contains(&block)) || block > 1_000);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((head, code)) = data.split_first_chunk::<10>() else { return };
    let [kind, start @ .., hit] = *head;
    let isa = if kind & 1 == 0 { Isa::X86_64 } else { Isa::Aarch64 };
    // Addresses at both ends, too.
    let start = u64::from_le_bytes(start);
    let decoded: Vec<Decoded> = Decoder::new(isa, code, start).collect();
    let at = decoded.get(usize::from(hit) * decoded.len() / 256).map_or(start, |one| one.ip);
    let seen = BTreeSet::from([start, at]);
    let mut budget = StepBudget::of(MOST_STEPS);
    if let Some(graph) = Graph::of(&decoded, &seen, &mut budget) {
        check(&graph);
        let hits: Vec<u64> = (0..graph.blocks.len() as u64).map(|place| place % 7).collect();
        if let Some(flows) = flows(&graph, &hits, &mut budget) {
            assert!(flows.blocks.iter().all(|rate| *rate >= 0.0 && rate.is_finite()));
        }
    }
    let mut budget = StepBudget::of(MOST_STEPS);
    let judged = CodeBytes { isa, start, bytes: code };
    if let Some(mut drawn) = AnalysedCode::of(judged, at, &mut budget) {
        let _ = drawn.judge(at, &|target| target & 1 == 0, &mut budget);
    }
    let _ = live::code_around(judged, at, &mut StepBudget::of(live::MOST_STEPS));
});
