//! Examples of manual pages.

use colocate_cli::generate::Examples;

/// Examples of each command.
pub const EXAMPLES: &Examples = &[
    (
        "colocate-study",
        "Two loops on a described machine",
        "colocate-study simulate examples/float-beside-integer.toml",
    ),
    (
        "colocate-study-trace",
        "What a program reads and writes",
        "colocate-study trace -o sort.trace -- sort words",
    ),
    (
        "colocate-study-bench",
        "Kernels beside each other on two PUs",
        "colocate-study bench smt --cpus 0,1",
    ),
    (
        "colocate-study-bench-smt",
        "Kernels beside each other on two PUs",
        "colocate-study bench smt --cpus 0,1 --matrix",
    ),
    (
        "colocate-study-bench-bandwidth",
        "What a program loses beside memory traffic",
        "colocate-study bench bandwidth -- ./solver",
    ),
    (
        "colocate-study-simulate",
        "A scenario",
        "colocate-study simulate examples/float-beside-integer.toml",
    ),
    (
        "colocate-study-replay",
        "A trace on the caches of a machine",
        "colocate-study replay sort.trace --machine xeon-x3320",
    ),
    (
        "colocate-study-map",
        "Threads by a matrix of their communication",
        "colocate-study map matrix.csv",
    ),
    ("colocate-study-study", "A published study, simulated", "colocate-study study serpa"),
    (
        "colocate-study-train",
        "Coefficients of another machine",
        "colocate-study train cpi-model --machine power8-10c -o model.json",
    ),
    (
        "colocate-study-train-cpi-model",
        "Coefficients of another machine",
        "colocate-study train cpi-model --machine power8-10c -o model.json",
    ),
];
