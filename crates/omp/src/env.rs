//! Names shared by colocate and the library in the program: environment variables, library file.

/// File name of the library.
pub const LIBRARY: &str = "libcolocate_omp.so";
/// Folder for reports: every process with parallel regions writes a file named after its PID.
/// Without this variable nothing is watched.
pub const REPORT: &str = "COLOCATE_OMP_REPORT";
/// Largest number of threads of a region. Unset or no number: as many as the runtime gives.
pub const MOST: &str = "COLOCATE_OMP_MOST";
/// `1`: numbers of threads are changed. Else regions are only watched.
pub const APPLY: &str = "COLOCATE_OMP_APPLY";
