//! What colocate and the library inside the program agree on: names of environment variables and of the library.

/// File name of the library.
pub const LIBRARY: &str = "libcolocate_omp.so";
/// A folder, into which every process with parallel regions writes what it has learnt, in a file named after its number.
/// Without it nothing is watched.
pub const REPORT: &str = "COLOCATE_OMP_REPORT";
/// The most threads that a region may have; without it, or if it is no number, as many as the runtime says.
pub const MOST: &str = "COLOCATE_OMP_MOST";
/// If it is set to `1`, numbers of threads are changed; else regions are only watched.
pub const APPLY: &str = "COLOCATE_OMP_APPLY";
