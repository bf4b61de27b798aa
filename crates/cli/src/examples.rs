//! Examples of manual pages.

use crate::generate::Examples;

/// Examples of each command.
pub const EXAMPLES: &Examples = &[
    ("colocate", "Check what works here", "colocate doctor"),
    ("colocate", "Run two programs placed", "colocate run -- 7zz b ::: openssl speed"),
    ("colocate-topo", "This machine", "colocate topo"),
    ("colocate-topo", "A described one", "colocate topo --machine epyc-7301"),
    (
        "colocate-profile",
        "A program, to a file and as a table",
        "colocate profile --table -o 7zip.json -- 7zz b 1",
    ),
    ("colocate-profile", "Five seconds of a running one", "colocate profile --for 5 -p 4711"),
    ("colocate-doctor", "What works here, and what remedies there are", "colocate doctor"),
    (
        "colocate-plan",
        "Two profiled programs on this machine",
        "colocate plan --profile 7zip.json --profile openssl.json",
    ),
    (
        "colocate-plan",
        "32 threads of one on another machine",
        "colocate plan --profile 7zip.json:threads=32 --machine epyc-7301",
    ),
    ("colocate-run", "Two programs", "colocate run -- 7zz b ::: openssl speed"),
    (
        "colocate-run",
        "A server, and a client that starts when it is ready",
        "colocate run --ready tcp:6379 -- redis-server ::: redis-benchmark -c 1",
    ),
    (
        "colocate-run",
        "With the reason of each place",
        "colocate run --explain --policy mix -- ./solver",
    ),
    (
        "colocate-attach",
        "A database for a minute",
        "colocate attach --for 60 --cgroup /sys/fs/cgroup/system.slice/redis-server.service",
    ),
    ("colocate-attach", "Two processes, until Ctrl-C", "colocate attach -p 4711,4712"),
    (
        "colocate-schedule",
        "The programs of a file",
        "colocate schedule workload.toml --quantum 200ms",
    ),
    (
        "colocate-schedule",
        "Three programs, one waits at a time on two PUs",
        "colocate schedule -- ./a ::: ./b ::: ./c",
    ),
    ("colocate-top", "The busiest programs, each two seconds", "colocate top -d 2"),
    ("colocate-top", "Which threads of a process communicate", "colocate top --matrix -p 4711"),
    ("colocate-restore", "Masks that a killed colocate has left", "colocate restore --dry-run"),
    ("colocate-pages", "Where the memory of a process is", "colocate pages 4711"),
    ("colocate-pages-move", "All of it to node 1", "colocate pages move 4711 --all --to 1"),
    ("colocate-calibrate", "On an idle machine", "colocate calibrate"),
    ("colocate-calibrate", "How fast each core is", "colocate calibrate --only speeds"),
    ("colocate-calibrate", "What is kept of it", "colocate calibrate --show"),
    (
        "colocate-compare",
        "Three policies, ten runs each",
        "colocate compare --policies os,auto,mix -- ./a ::: ./b",
    ),
    (
        "colocate-compare",
        "Go on after an interruption",
        "colocate compare --resume -o colocate-compare",
    ),
    (
        "colocate-cc",
        "A program that moves its pages to its threads",
        "colocate cc -O2 -fopenmp -o solver solver.c",
    ),
    ("colocate-c++", "The same for C++", "colocate c++ -O2 -o solver solver.cpp"),
    ("colocate-fc", "The same for Fortran", "colocate fc -O2 -o solver solver.f90"),
    (
        "colocate-advise-threads",
        "The best number of threads",
        "colocate advise-threads -- ./solver --threads {threads}",
    ),
];
