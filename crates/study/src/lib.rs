//! Workloads x policies x repetitions: figures with confidence intervals.
