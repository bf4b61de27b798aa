//! Eight kernels that each load one execution unit (after Serpa et al.).
