//! Policies that move pages, on a machine that is not here, and memory that threads share or fetch.

use crate::common;

use colocate_machine::{Bytes, Nanos, NodeIdx};
use colocate_sim::{
    Fetch, JobSpec, KernelScheduler, MemorySpec, MemoryUse, Outcome, Pages, Scenario, ThreadSpec,
};
use common::{SMALL, STREAM, machine, ms, run, scenario, stretch, thread, together};

/// Threads of a job, each with so many million instructions and memory of 64 MiB that the first one set up; all of them use the last one
/// of the memories, too, with this share.
fn team(threads: usize, millions: u64, shared: f64) -> Scenario {
    let one =
        || ThreadSpec { resident: Bytes(0), ..thread(&[stretch(STREAM, millions * 1_000_000)]) };
    let threads: Vec<_> = (0..threads).map(|_| one()).collect();
    let user =
        |thread, share| MemoryUse { thread, share, writes: 0.5, during: None, fetch: Fetch::No };
    let memory =
        |users| MemorySpec { bytes: Bytes::mib(64), pages: Pages::FirstThread, groups: 4, users };
    let own = (0..threads.len()).map(|thread| memory(vec![user(thread, 1.0 - shared)]));
    let all = (0..threads.len()).map(|thread| user(thread, shared)).collect();
    let memory = own.chain([memory(all)]).collect();
    let job = JobSpec { name: "team".into(), arrives: Nanos::ZERO, threads, barrier: None, memory };
    Scenario {
        kernel: KernelScheduler { numa_balancing: None, ..together() },
        ..scenario(vec![job])
    }
}

fn moved(outcome: &Outcome) -> u64 {
    outcome.tasks.iter().map(|task| task.moves.page_bytes >> 20).sum()
}

fn took(outcome: &Outcome) -> Nanos {
    outcome.jobs[0].took().unwrap()
}

/// Four threads on two nodes of which the first has all memory: the two on the other one have theirs come.
#[test]
fn private_memory_comes() {
    let of = team(4, 500, 0.0);
    let nodes = machine(SMALL).0.nodes.len();
    assert_eq!(nodes, 2);
    let before = run(&of, "first-touch");
    assert_eq!(moved(&before), 0);
    for policy in ["autonuma", "next-touch", "dpp", "carrefour", "kmaf"] {
        let after = run(&of, policy);
        assert_eq!(moved(&after), 128, "{policy}");
        assert!(
            took(&after) + ms(500) < took(&before),
            "{policy}: {} {}",
            took(&after),
            took(&before)
        );
    }
}

/// As many threads as cores, with memory on one node: it comes, or they change places. The memory that all use is spread, and
/// then stays.
#[test]
fn auto_brings_memory_to_threads() {
    let cores = machine(SMALL).0.cores.len();
    let of = team(cores, 500, 0.0);
    let (before, after) = (run(&of, "os"), run(&of, "auto"));
    let far = cores as u64 / 2 * 64;
    assert!((64..=far).contains(&moved(&after)), "{}", moved(&after));
    assert!(took(&after) + ms(500) < took(&before), "{} {}", took(&after), took(&before));
    let of = team(cores, 500, 1.0);
    let (before, after) = (run(&of, "os"), run(&of, "auto"));
    // Half of it has to move, and no more than all of it moves.
    assert!((32..=64).contains(&moved(&after)), "{}", moved(&after));
    assert!(took(&after) < took(&before), "{} {}", took(&after), took(&before));
}

/// One thread, whose memory is on the other node and too large to move at once: it goes there, and nothing else moves.
#[test]
fn auto_sends_a_thread_to_its_memory() {
    let on = |node| {
        let mut of = team(1, 500, 0.0);
        of.jobs[0].memory[0].pages = Pages::On(NodeIdx(node));
        of
    };
    let took_under = |policy, node| {
        let outcome = run(&on(node), policy);
        assert_eq!(moved(&outcome), 0);
        took(&outcome)
    };
    let far = if took_under("os", 0) > took_under("os", 1) { 0 } else { 1 };
    let (before, after) = (took_under("os", far), took_under("auto", far));
    assert!(after + ms(500) < before, "{after} {before}");
}

/// A half of all memory goes to the other node, whichever it is.
#[test]
fn memory_is_interleaved() {
    let after = run(&team(4, 500, 0.0), "interleave");
    assert_eq!(moved(&after), 4 * 32 + 32);
}

/// Memory that all use alike, and that is on all nodes so that none of them ends before the others, is no node's own.
#[test]
fn shared_memory_stays() {
    let mut of = team(4, 300, 1.0);
    of.jobs[0].memory[4].pages = Pages::Interleaved;
    for policy in ["autonuma", "dpp"] {
        assert_eq!(moved(&run(&of, policy)), 0, "{policy}");
    }
}

/// NUMA balancing moves memory that two scans in a row are from one node, and shared memory only then.
#[test]
fn the_kernels_own() {
    let balanced = |shared| {
        let mut of = team(4, 500, shared);
        of.kernel.numa_balancing = KernelScheduler::default().numa_balancing;
        of
    };
    assert!(moved(&run(&balanced(0.0), "os")) >= 128);
}

/// 64 MiB are 16384 pages. They take a second to move at 61 us each, and what follows is near.
#[test]
fn fetching_takes_time() {
    let fetching = |fetch, page_copy| {
        let mut of = team(4, 500, 0.0);
        of.kernel.page_copy = Nanos(page_copy);
        of.jobs[0].memory[..4].iter_mut().for_each(|memory| memory.users[0].fetch = fetch);
        run(&of, "os")
    };
    let (left, free) = (fetching(Fetch::No, 0), fetching(Fetch::Move, 0));
    assert_eq!((moved(&left), moved(&free)), (0, 128));
    assert!(took(&free) + ms(500) < took(&left));
    let paid = fetching(Fetch::Move, 61_035);
    let more = took(&paid).saturating_sub(took(&free));
    assert!((ms(900)..=ms(1100)).contains(&more), "{more}");
    assert_eq!(moved(&fetching(Fetch::MoveAndStay, 0)), 128);
}

/// Of a course of two stretches each has its memory, which is fetched when it begins; or NUMA balancing brings it, that of the
/// second stretch after all of the first's is near.
#[test]
fn memory_of_a_stretch() {
    let mut of = team(2, 100, 0.0);
    let threads = &mut of.jobs[0].threads;
    threads.iter_mut().for_each(|thread| thread.course = vec![stretch(STREAM, 400_000_000); 2]);
    let template = of.jobs[0].memory[1].clone();
    of.jobs[0].memory = Vec::new();
    for during in [0, 1] {
        let mut memory = template.clone();
        let user = MemoryUse { during: Some(during), fetch: Fetch::Move, ..memory.users[0] };
        memory.users = vec![user];
        of.jobs[0].memory.push(memory);
    }
    // Both of thread 1, on the other node than thread 0.
    assert_eq!(moved(&run(&of, "os")), 128);
    of.jobs[0].memory.iter_mut().for_each(|memory| memory.users[0].fetch = Fetch::No);
    assert_eq!(moved(&run(&of, "os")), 0);
    of.kernel.numa_balancing = KernelScheduler::default().numa_balancing;
    assert_eq!(moved(&run(&of, "os")), 128);
}
