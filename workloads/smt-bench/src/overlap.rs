//! Speed of several threads during the time in which all of them ran.
//!
//! Every thread works in chunks of equally many iterations and reads two clocks after each chunk.
//! If the wall clock advanced further than the thread's CPU clock, the thread waited for its PU. Of
//! the other chunks, those within undisturbed times of all other threads are compared. So other
//! load on the machine costs chunks, not correctness.

use std::ops::Range;

/// Two clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// Wall time in nanoseconds, by a clock common to all threads.
    pub wall_ns: u64,
    /// CPU time of the thread in nanoseconds.
    pub cpu_ns: u64,
}

/// Record of one thread.
#[derive(Clone, Debug)]
pub struct Trail {
    /// Iterations between two stamps.
    pub chunk: u64,
    /// Clocks at the start and after every chunk.
    pub stamps: Vec<ClockPair>,
}

/// Speed of a thread while all ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadSpeed {
    /// Nanoseconds per iteration: the median of the chunks.
    pub iteration_ns: f64,
    /// Total time of the chunks, in nanoseconds.
    pub together_ns: u64,
}

/// Greatest waiting time within an undisturbed chunk, in nanoseconds: the clocks are read one after
/// the other, and a timer interrupt takes a few microseconds. Chosen; a time slice is never below
/// 100 µs (`sysctl_sched_base_slice` of Linux is 0.7 ms and more).
const SLACK_NS: u64 = 5_000;

/// Interval of wall time, in nanoseconds.
type WallInterval = Range<u64>;

/// Wall time from `a` to `b` in which the thread did not run, in nanoseconds.
fn waited(a: ClockPair, b: ClockPair) -> u64 {
    // The clocks are read one after the other, so the CPU time can be ahead.
    (b.wall_ns - a.wall_ns).saturating_sub(b.cpu_ns.saturating_sub(a.cpu_ns))
}

impl Trail {
    /// Chunks in which the thread ran throughout.
    fn undisturbed(&self) -> impl Iterator<Item = WallInterval> {
        self.stamps.windows(2).filter_map(|pair| {
            let ran = waited(pair[0], pair[1]) <= SLACK_NS;
            ran.then(|| pair[0].wall_ns..pair[1].wall_ns)
        })
    }

    /// Maximal spans in which the thread ran throughout, in ascending order.
    fn running(&self) -> Vec<WallInterval> {
        let mut spans: Vec<WallInterval> = Vec::new();
        for span in self.undisturbed() {
            match spans.last_mut() {
                Some(last) if last.end == span.start => last.end = span.end,
                _ => spans.push(span),
            }
        }
        spans
    }

    /// Share of time in which the thread had its PU, in 0 ..= 1; `None` without a chunk.
    #[must_use]
    pub fn share_of_pu(&self) -> Option<f64> {
        let first = self.stamps.first()?;
        let last = self.stamps.last()?;
        let wall = last.wall_ns.saturating_sub(first.wall_ns);
        let cpu = last.cpu_ns.saturating_sub(first.cpu_ns);
        // As in `waited`, the CPU time can be ahead.
        (wall > 0).then(|| (cpu as f64 / wall as f64).min(1.0))
    }
}

/// Speed of each of `trails` while all ran, in their order; `None` for a trail without a chunk in
/// such a time.
#[must_use]
pub fn paces(trails: &[Trail]) -> Vec<Option<ThreadSpeed>> {
    let running: Vec<Vec<WallInterval>> = trails.iter().map(Trail::running).collect();
    let paces = trails.iter().enumerate().map(|(own, trail)| {
        let shared = trail.undisturbed().filter(|span| {
            let mut others = running.iter().enumerate().filter(|(other, _)| *other != own);
            others.all(|(_, spans)| is_within_one(spans, span))
        });
        pace_of(trail.chunk, shared)
    });
    paces.collect()
}

/// True if one of the ascending spans contains `span`.
fn is_within_one(ascending: &[WallInterval], span: &WallInterval) -> bool {
    let after = ascending.partition_point(|candidate| candidate.start <= span.start);
    // Spans do not overlap: only the last one that begins before can contain `span`.
    after > 0 && span.end <= ascending[after - 1].end
}

fn pace_of(chunk: u64, spans: impl Iterator<Item = WallInterval>) -> Option<ThreadSpeed> {
    let mut lengths: Vec<u64> = spans.map(|span| span.end - span.start).collect();
    lengths.sort_unstable();
    let middle = *lengths.get(lengths.len() / 2)?;
    Some(ThreadSpeed {
        iteration_ns: middle as f64 / chunk as f64,
        together_ns: lengths.iter().sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A trail from a picture: one letter per 100 µs, `#` runs, `.` waits. A chunk is 100 µs of
    /// running (10 iterations) and ends when it has had them, whatever the wall clock says.
    fn trail(picture: &str) -> Trail {
        let mut stamps = vec![ClockPair { wall_ns: 0, cpu_ns: 0 }];
        let mut cpu_ns = 0;
        for (column, letter) in (1_u64..).zip(picture.chars()) {
            if letter == '#' {
                cpu_ns += 100_000;
                stamps.push(ClockPair { wall_ns: column * 100_000, cpu_ns });
            }
        }
        Trail { chunk: 10, stamps }
    }

    fn together_us(pictures: &[&str]) -> Vec<Option<u64>> {
        let trails: Vec<Trail> = pictures.iter().map(|picture| trail(picture)).collect();
        paces(&trails).iter().map(|pace| pace.map(|pace| pace.together_ns / 1_000)).collect()
    }

    #[test]
    fn undisturbed_threads_count_in_full() {
        assert_eq!(together_us(&["####", "####"]), [Some(400), Some(400)]);
        assert_eq!(together_us(&["####"]), [Some(400)]);
    }

    /// A chunk that was interrupted ends with the `#` after the dots and is dropped whole.
    #[test]
    fn waiting_costs_the_chunk_of_both() {
        //  second thread: chunks 0-100, 100-200, then one of 300 µs in which it waited 200.
        assert_eq!(together_us(&["######", "##..##"]), [Some(300), Some(300)]);
    }

    #[test]
    fn alternating_threads_were_never_together() {
        assert_eq!(together_us(&["##....##....", "....##....##"]), [None, None]);
    }

    #[test]
    fn three_threads_need_all_three() {
        // Together: columns 1 and 2 (all), then the third waits through 3-5; column 6 is lost to
        // its long chunk; 7 and 8 are clean for all.
        let pictures = ["########", "########", "##...###"];
        assert_eq!(together_us(&pictures), [Some(400), Some(400), Some(400)]);
    }

    #[test]
    fn a_thread_that_did_nothing_has_no_pace() {
        assert_eq!(together_us(&["", "###"]), [None, None]);
        assert_eq!(trail("").share_of_pu(), None);
        assert_eq!(trail("#.#.").share_of_pu(), Some(2.0 / 3.0));
    }

    /// 10 iterations in 100 µs; a chunk of 10 µs more or less does not move the median.
    #[test]
    fn the_pace_is_the_median() {
        let mut noisy = trail("#####");
        noisy.stamps[2].wall_ns += 4_000;
        let pace = paces(&[noisy])[0].unwrap();
        assert!((pace.iteration_ns - 10_000.0).abs() < 1e-9, "{pace:?}");
    }

    proptest! {
        /// Nothing that a picture shows as alone is counted as together.
        #[test]
        fn together_is_at_most_the_common_columns(
            a in prop::collection::vec(prop::bool::ANY, 0..60),
            b in prop::collection::vec(prop::bool::ANY, 0..60),
        ) {
            let draw = |runs: &[bool]| -> String {
                runs.iter().map(|&run| if run { '#' } else { '.' }).collect()
            };
            let common = a.iter().zip(&b).filter(|(a, b)| **a && **b).count() as u64 * 100;
            for together in together_us(&[&draw(&a), &draw(&b)]).into_iter().flatten() {
                prop_assert!(together <= common, "{} > {}", together, common);
            }
        }
    }
}
