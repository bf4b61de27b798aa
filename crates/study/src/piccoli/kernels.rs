//! The benchmarks' kernels as demand vectors, derived from their loops.
//!
//! # Problem
//! The part of a kernel's accesses that reaches memory depends on the cache and the size. Streams
//! of the published sizes, up to 10^11 accesses, are too long to simulate.
//! # Approach
//! Each loop nest sweeps parts of arrays again and again. An access hits a cache with LRU
//! replacement if the lines used since the last access to the same line, the reuse distance, fit
//! into it. Distances follow from the bounds of the loops.
//! # Terms
//! - `n`: rows of a matrix of 8-byte elements; for `search` and `bucket` the elements of one
//!   thread's part.
//! - `c`: lines of 64 bytes of a cache.
//! # Properties
//! - **As an LRU cache counts**: formulas agree with exact stack distances of the loops. -> test
//!   `formulas_are_what_lru_misses`

use colocate_machine::Bytes;
use colocate_machine::performance::WorkKind;
use colocate_model::phase::{Known, PortWork};
use colocate_model::{MissCurve, Phase};
use serde::Deserialize;

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum BenchmarkKernel {
    /// `A = B C` factorised.
    #[serde(rename = "LU")]
    Lu,
    /// `A = B Bᵀ`.
    Cholesky,
    /// `C = A + B`.
    Add,
    /// `C = A B`, the plain way.
    Product,
    /// Search of a text for each of several queries.
    #[serde(rename = "partitionStringSearch")]
    Search,
    /// Selection sort of a bucket of 4-byte numbers by each thread.
    #[serde(rename = "BucketSort")]
    Bucket,
}

/// Work of a thread on a set of arrays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadWork {
    /// The kernel.
    pub kernel: BenchmarkKernel,
    /// `n` of the loops.
    pub n: f64,
    /// Number of searches of the text; 1 for other kernels.
    pub queries: f64,
}

/// An array of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array {
    /// Name in the program.
    pub name: &'static str,
    /// Size in bytes.
    pub bytes: f64,
    /// Accessed bytes by the compiler pass, in all.
    pub accessed: f64,
    /// The announced range over the array's size.
    pub range: f64,
    /// Whether a programmer would move the array: a bit of `USED` in workloads/numa.
    pub used: bool,
}

const KIB: f64 = 1024.0;
/// Characters of a pattern: `LENGTH` of workloads/numa/search.c.
const PATTERN: f64 = 8.0;

impl ThreadWork {
    /// Arrays of the kernel. Accesses are counted from the loops, times the size of an element, as
    /// if all conditions held.
    pub fn arrays(&self) -> Vec<Array> {
        let n = self.n;
        // Passes of the two inner loops of LU over k and j.
        let inner = (n - 1.0) * n * (2.0 * n - 1.0) / 6.0;
        // The sum of the numbers below n.
        let column = n * (n - 1.0) / 2.0;
        match self.kernel {
            BenchmarkKernel::Lu => vec![
                self.matrix("A", n * n + 3.0 * inner + 2.5 * column, true),
                self.matrix("B", inner + column + n, true),
                self.matrix("C", column + n, false),
            ],
            BenchmarkKernel::Cholesky => vec![
                // Both arms of the condition count.
                self.matrix("A", 2.0 * n * n + n, false),
                self.matrix("B", (n - 1.0) * n * (n + 1.0) / 3.0 + 1.5 * n * (n + 1.0), true),
            ],
            BenchmarkKernel::Add => {
                ["A", "B", "C"].map(|name| self.matrix(name, n * n, true)).to_vec()
            }
            BenchmarkKernel::Product => vec![
                self.matrix("A", n * n * n, true),
                self.matrix("B", n * n * n, true),
                self.matrix("C", n * n, false),
            ],
            // The loop leaves at the first difference, but all characters count as compared.
            BenchmarkKernel::Search => one("text", n, self.queries * PATTERN * n, 1.0),
            // `data[least]` may be any: the range is announced up to twice as long (docs/reference/spm.md).
            BenchmarkKernel::Bucket => one("bucket", 4.0 * n, 4.0 * n * n, 2.0),
        }
    }

    /// A matrix of `n` × `n` elements of 8 bytes, with this many accesses to elements.
    fn matrix(&self, name: &'static str, accesses: f64, used: bool) -> Array {
        let bytes = 8.0 * self.n * self.n;
        Array { name, bytes, accessed: 8.0 * accesses, range: 1.0, used }
    }

    /// Passes of the innermost loop, and instructions of each by kind of work: x86-64, optimised,
    /// without vectors; by hand.
    fn inner(&self) -> (f64, f64, &'static [(WorkKind, f64)]) {
        use WorkKind::{Branch, FloatAdd, FloatMul, Int, Load, Store};
        let n = self.n;
        match self.kernel {
            // load B; mul A[i]; load A[j]; sub; store; inc; cmp; jne
            BenchmarkKernel::Lu => (
                (n - 1.0) * n * (2.0 * n - 1.0) / 6.0,
                8.0,
                &[
                    (Load, 3.0),
                    (FloatMul, 1.0),
                    (FloatAdd, 1.0),
                    (Store, 1.0),
                    (Int, 2.0),
                    (Branch, 1.0),
                ],
            ),
            // load; mul; add; inc; cmp; jne
            BenchmarkKernel::Cholesky => (
                (n - 1.0) * n * (n + 1.0) / 6.0,
                6.0,
                &[(Load, 2.0), (FloatMul, 1.0), (FloatAdd, 1.0), (Int, 2.0), (Branch, 1.0)],
            ),
            // load; add; store; inc; cmp; jne
            BenchmarkKernel::Add => (
                n * n,
                6.0,
                &[(Load, 2.0), (FloatAdd, 1.0), (Store, 1.0), (Int, 2.0), (Branch, 1.0)],
            ),
            // load; mul; add; two places; cmp; jne
            BenchmarkKernel::Product => (
                n * n * n,
                7.0,
                &[(Load, 2.0), (FloatMul, 1.0), (FloatAdd, 1.0), (Int, 3.0), (Branch, 1.0)],
            ),
            // load; cmp; jne; clear; add; inc; cmp; jne
            BenchmarkKernel::Search => {
                (self.queries * n, 8.0, &[(Load, 2.0), (Int, 5.0), (Branch, 2.0)])
            }
            // load; cmp; cmov; inc; cmp; jne
            BenchmarkKernel::Bucket => {
                (n * (n - 1.0) / 2.0, 6.0, &[(Load, 2.0), (Int, 4.0), (Branch, 1.0)])
            }
        }
    }

    /// Instructions of the innermost loops.
    pub fn instructions(&self) -> f64 {
        let (passes, each, _) = self.inner();
        passes * each
    }

    /// Lines of each array that miss a cache of `c` lines, in the order of [`ThreadWork::arrays`].
    pub fn misses(&self, c: f64) -> Vec<f64> {
        match self.kernel {
            BenchmarkKernel::Lu => lu(self.n, c),
            BenchmarkKernel::Cholesky => cholesky(self.n, c),
            // Each line once: nothing is used again.
            BenchmarkKernel::Add => vec![self.n * self.n / 8.0; 3],
            BenchmarkKernel::Product => product(self.n, c),
            BenchmarkKernel::Search => {
                // A line holds 64 characters.
                let part = self.n / 64.0;
                vec![if c < part { self.queries * part } else { part }]
            }
            BenchmarkKernel::Bucket => {
                // All sweeps that are longer than the cache, and the rest once.
                let fits = (16.0 * c).min(self.n);
                // A sweep over k numbers has k / 16 lines, summed up from `fits` to n.
                vec![(self.n * self.n - fits * fits) / 32.0 + fits / 16.0]
            }
        }
    }

    /// The demand vector. An error, if misses are no curve, is a defect of the derivation.
    pub fn phase(&self) -> Result<Phase, String> {
        let (_, each, work) = self.inner();
        let loops = "derived: the kernel's innermost loop (docs/results/piccoli.md)";
        let instructions = self.instructions();
        // From 512 bytes to 64 MiB, four sizes for each doubling.
        let sizes = (0..=68).map(|step| 0.5 * KIB * (f64::from(step) / 4.0).exp2());
        let points = sizes.map(|size| {
            // `misses` takes the size of the cache in lines.
            let lines = self.misses(size / 64.0).iter().sum::<f64>();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // up to 64 MiB
            (Bytes(size as u64), lines / instructions)
        });
        let mut points: Vec<(Bytes, f64)> = points.collect();
        // Rounding must not make misses rise.
        for at in 1..points.len() {
            points[at].1 = points[at].1.min(points[at - 1].1);
        }
        let written_back = match self.kernel {
            BenchmarkKernel::Lu => 1.0,
            // One of the three matrices is written.
            BenchmarkKernel::Add => 1.0 / 3.0,
            _ => 0.0,
        };
        let kinds = work.iter().map(|(kind, count)| (*kind, count / each)).collect();
        Ok(Phase {
            name: self.kernel.name().to_owned(),
            work: Known::new(PortWork::Kinds(kinds), loops),
            dependent_cycles: match self.kernel {
                BenchmarkKernel::Product | BenchmarkKernel::Cholesky => {
                    Known::new(6.0 / each, "one addition after the other, 6 cycles: remembered")
                }
                _ => Known::default(),
            },
            branch_misses: Known::new(0.0, loops),
            misses: Known::new(MissCurve::new(points)?, loops),
            written_back: Known::new(written_back, loops),
            shared_lines: Known::new(0.0, loops),
            ..Phase::default()
        })
    }
}

impl BenchmarkKernel {
    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lu => "LU",
            Self::Cholesky => "Cholesky",
            Self::Add => "Add",
            Self::Product => "Product",
            Self::Search => "partitionStringSearch",
            Self::Bucket => "BucketSort",
        }
    }

    /// Work of a thread on a set, for a size.
    pub fn task(self, size: u32) -> ThreadWork {
        let size = f64::from(size);
        match self {
            // 4 GiB of text.
            Self::Search => ThreadWork { kernel: self, n: KIB * KIB * 64.0, queries: size },
            // `size` is in millions, for all 64 threads.
            Self::Bucket => {
                ThreadWork { kernel: self, n: (size * 1e6 / 64.0).floor(), queries: 1.0 }
            }
            _ => ThreadWork { kernel: self, n: size, queries: 1.0 },
        }
    }
}

/// The only array of a kernel.
fn one(name: &'static str, bytes: f64, accessed: f64, range: f64) -> Vec<Array> {
    vec![Array { name, bytes, accessed, range, used: true }]
}

/// Lines of a part of a row, in elements, that begins or ends with a line. Whole rows do both, as
/// all published `n` are multiples of 8.
fn row(elements: f64) -> f64 {
    (elements / 8.0).ceil()
}

fn product(n: f64, c: f64) -> Vec<f64> {
    // A line holds 8 elements.
    let a_row = n / 8.0;
    let matrix = n * n / 8.0;
    // Between two passes over k: a row of A and a column of B. Between two passes over j: all of B.
    let inner = a_row + n + 1.0;
    let all = matrix + 2.0 * a_row;
    match c {
        c if c < inner => vec![n * matrix, n * n * n, n * n],
        c if c < all => vec![matrix, n * matrix, matrix],
        _ => vec![matrix; 3],
    }
}

fn lu(n: f64, c: f64) -> Vec<f64> {
    let mut a = n * n / 8.0;
    let mut b = 0.0;
    let mut u = 0.0;
    let mut m = n;
    while m >= 1.0 {
        // The pivot row is used again for each of m − 1 rows below. These rows, with the column of
        // B and a row of C, are used again for each i.
        let inner = 2.0 * row(m) + 1.0;
        let all = (m - 1.0) * (row(m) + 1.0) + 3.0 * row(m);
        if c < inner {
            a += (m - 1.0) * row(m);
        }
        if c < all {
            a += m * row(m);
            b += m;
        } else if (n - m) % 8.0 < 0.5 {
            // A column of lines that is new.
            b += m;
        }
        u += row(m);
        m -= 1.0;
    }
    vec![a, b, u]
}

fn cholesky(n: f64, c: f64) -> Vec<f64> {
    let matrix = n * n / 8.0;
    let mut a = matrix;
    let mut b = 0.0;
    // Lines of the rows above; lines of the rows above that still fit beside row i, and the number
    // of these rows.
    let mut triangle = 0.0;
    let mut fitting = 0.0;
    let mut fit = 0.0;
    let mut i = 0.0;
    while i < n {
        let own = row(i + 1.0);
        // Between A's initialisation and its use: the rest of the initialisation, and rows of both
        // matrices.
        if c < (n - i) * n / 8.0 + 2.0 * triangle {
            a += own;
        }
        b += own;
        // The triangle of rows above is used for each i, row i for each j.
        if c < triangle + 2.0 * own {
            b += triangle;
        }
        triangle += own;
        if c >= 2.0 * own + 1.0 {
            fitting = triangle;
            fit = i + 1.0;
        }
        b += triangle - fitting;
        // The line of A is evicted each time, too.
        a += (i + 1.0 - fit) - (own - row(fit));
        i += 1.0;
    }
    vec![a, b]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Misses of each array in LRU caches of `sizes` lines: the stack's places.
    struct Lru {
        stack: Vec<u64>,
        sizes: Vec<usize>,
        misses: Vec<Vec<f64>>,
    }

    impl Lru {
        fn new(arrays: usize, sizes: &[usize]) -> Self {
            let misses = vec![vec![0.0; arrays]; sizes.len()];
            Self { stack: Vec::new(), sizes: sizes.to_vec(), misses }
        }

        /// An access to a byte of an array.
        fn use_byte(&mut self, array: usize, byte: usize) {
            let line = ((array as u64) << 32) | (byte / 64) as u64;
            let depth = self.stack.iter().rev().position(|other| *other == line);
            for (size, misses) in self.sizes.iter().zip(&mut self.misses) {
                if depth.is_none_or(|depth| depth >= *size) {
                    misses[array] += 1.0;
                }
            }
            if let Some(depth) = depth {
                self.stack.remove(self.stack.len() - 1 - depth);
            }
            self.stack.push(line);
        }
    }

    /// The loops of workloads/numa.
    fn run(task: &ThreadWork, cache: &mut Lru) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small
        let (n, queries) = (task.n as usize, task.queries as usize);
        let mut at = |array: usize, i: usize, j: usize| cache.use_byte(array, 8 * (i * n + j));
        match task.kernel {
            BenchmarkKernel::Lu => {
                (0..n * n).for_each(|i| at(0, 0, i));
                for i in 0..n {
                    at(1, i, i);
                    for j in i + 1..n {
                        [(0, j), (0, i), (1, j)]
                            .into_iter()
                            .for_each(|(array, row)| at(array, row, i));
                        for k in i + 1..n {
                            [(0, j, k), (1, j, i), (0, i, k)]
                                .into_iter()
                                .for_each(|(a, i, j)| at(a, i, j));
                        }
                    }
                    for k in i..n {
                        at(0, i, k);
                        at(2, i, k);
                    }
                }
            }
            BenchmarkKernel::Cholesky => {
                (0..n * n).for_each(|i| at(0, 0, i));
                for i in 0..n {
                    for j in 0..=i {
                        for k in 0..j {
                            at(1, i, k);
                            at(1, j, k);
                        }
                        at(0, i, j);
                        at(1, j, j);
                        at(1, i, j);
                    }
                }
            }
            BenchmarkKernel::Add => {
                (0..n * n).for_each(|i| (0..3).for_each(|array| at(array, 0, i)))
            }
            BenchmarkKernel::Product => {
                for i in 0..n {
                    for j in 0..n {
                        for k in 0..n {
                            at(0, i, k);
                            at(1, k, j);
                        }
                        at(2, i, j);
                    }
                }
            }
            BenchmarkKernel::Search => {
                for _ in 0..queries {
                    (0..n).for_each(|byte| cache.use_byte(0, byte));
                }
            }
            BenchmarkKernel::Bucket => {
                for start in 0..n {
                    (start..n).for_each(|other| cache.use_byte(0, 4 * other));
                }
            }
        }
    }

    /// All misses to within 6 %, and each array's share of them.
    #[test]
    fn formulas_are_what_lru_misses() {
        let cases = [
            (BenchmarkKernel::Product, 56.0, 1.0, vec![24, 40, 100, 300, 500, 1400]),
            (BenchmarkKernel::Lu, 56.0, 1.0, vec![6, 10, 60, 200, 400, 600, 1400]),
            (BenchmarkKernel::Cholesky, 64.0, 1.0, vec![8, 14, 60, 120, 250, 450, 1200]),
            (BenchmarkKernel::Add, 40.0, 1.0, vec![8, 100, 1000]),
            (BenchmarkKernel::Search, 6400.0, 5.0, vec![8, 90, 110]),
            (BenchmarkKernel::Bucket, 800.0, 1.0, vec![8, 20, 40, 60]),
        ];
        for (kernel, n, queries, sizes) in cases {
            let task = ThreadWork { kernel, n, queries };
            let mut cache = Lru::new(task.arrays().len(), &sizes);
            run(&task, &mut cache);
            for (size, exact) in sizes.iter().zip(&cache.misses) {
                let found = task.misses(*size as f64);
                let (sum, all): (f64, f64) = (found.iter().sum(), exact.iter().sum());
                assert!(
                    (sum / all - 1.0).abs() < 0.06,
                    "{kernel:?}, {size} lines: {sum} for {all}"
                );
                for (found, exact) in found.iter().zip(exact) {
                    let parts = (found / sum - exact / all).abs();
                    assert!(parts < 0.06, "{kernel:?}, {size} lines: {found} for {exact}");
                }
            }
        }
    }
}
