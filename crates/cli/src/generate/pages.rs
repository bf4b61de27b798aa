//! Manual pages: what clap_mangen makes of the arguments, and after that examples, files and exit status.

use clap::Command;
use clap_mangen::Man;
use std::fmt::Write;
use std::io;

/// Examples of each command: what for, and the line to type.
const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "colocate",
        &[
            ("Check what works here", "colocate doctor"),
            ("Run two programs placed", "colocate run -- 7zz b ::: openssl speed"),
        ],
    ),
    (
        "colocate-topo",
        &[
            ("This machine", "colocate topo"),
            ("A described one", "colocate topo --machine epyc-7301"),
        ],
    ),
    (
        "colocate-profile",
        &[
            (
                "A program, to a file and as a table",
                "colocate profile --table -o 7zip.json -- 7zz b 1",
            ),
            ("Five seconds of a running one", "colocate profile --for 5 -p 4711"),
        ],
    ),
    (
        "colocate-trace",
        &[("What a program reads and writes", "colocate trace -o sort.trace -- sort words")],
    ),
    ("colocate-doctor", &[("What works here, and what remedies there are", "colocate doctor")]),
    (
        "colocate-plan",
        &[
            (
                "Two profiled programs on this machine",
                "colocate plan --profile 7zip.json --profile openssl.json",
            ),
            (
                "32 threads of one on another machine",
                "colocate plan --profile 7zip.json:threads=32 --machine epyc-7301",
            ),
        ],
    ),
    (
        "colocate-run",
        &[
            ("Two programs", "colocate run -- 7zz b ::: openssl speed"),
            (
                "A server, and a client that starts when it is ready",
                "colocate run --ready tcp:6379 -- redis-server ::: redis-benchmark -c 1",
            ),
            ("With the reason of each place", "colocate run --explain --policy mix -- ./solver"),
        ],
    ),
    (
        "colocate-attach",
        &[
            (
                "A database for a minute",
                "colocate attach --for 60 --cgroup /sys/fs/cgroup/system.slice/postgresql.service",
            ),
            ("Two processes, until Ctrl-C", "colocate attach -p 4711,4712"),
        ],
    ),
    (
        "colocate-schedule",
        &[
            ("The programs of a file", "colocate schedule workload.toml --quantum 200ms"),
            (
                "Three programs, one waits at a time on two PUs",
                "colocate schedule -- ./a ::: ./b ::: ./c",
            ),
        ],
    ),
    (
        "colocate-top",
        &[
            ("The busiest programs, each two seconds", "colocate top -d 2"),
            ("Which threads of a process communicate", "colocate top --matrix -p 4711"),
        ],
    ),
    (
        "colocate-restore",
        &[("Masks that a killed colocate has left", "colocate restore --dry-run")],
    ),
    ("colocate-pages", &[("Where the memory of a process is", "colocate pages 4711")]),
    ("colocate-move", &[("All of it to node 1", "colocate move 4711 --all --to 1")]),
    ("colocate-bench", &[("How fast each core is", "colocate bench cores")]),
    (
        "colocate-bench-smt",
        &[("Kernels beside each other on two PUs", "colocate bench smt --cpus 0,1 --matrix")],
    ),
    (
        "colocate-bench-bandwidth",
        &[("What a program loses beside memory traffic", "colocate bench bandwidth -- ./solver")],
    ),
    (
        "colocate-bench-cores",
        &[("For schedule --core-speeds", "colocate bench cores --json -o cores.json")],
    ),
    (
        "colocate-calibrate",
        &[
            ("On an idle machine", "colocate calibrate"),
            ("What is kept of it", "colocate calibrate --show"),
        ],
    ),
    (
        "colocate-compare",
        &[
            (
                "Three policies, ten runs each",
                "colocate compare --policies os,auto,mix -- ./a ::: ./b",
            ),
            ("Go on after an interruption", "colocate compare --resume -o colocate-compare"),
        ],
    ),
    (
        "colocate-simulate",
        &[("A scenario", "colocate simulate examples/float-beside-integer.toml")],
    ),
    (
        "colocate-replay",
        &[(
            "A trace on the caches of a machine",
            "colocate replay sort.trace --machine xeon-x3320",
        )],
    ),
    ("colocate-map", &[("Threads by a matrix of their communication", "colocate map matrix.csv")]),
    (
        "colocate-cc",
        &[(
            "A program that moves its pages to its threads",
            "colocate cc -O2 -fopenmp -o solver solver.c",
        )],
    ),
    ("colocate-c++", &[("The same for C++", "colocate c++ -O2 -o solver solver.cpp")]),
    ("colocate-fc", &[("The same for Fortran", "colocate fc -O2 -o solver solver.f90")]),
    ("colocate-study", &[("A published study, simulated", "colocate study serpa")]),
    (
        "colocate-train",
        &[(
            "Coefficients of another machine",
            "colocate train cpi-model --machine power8-10c -o model.json",
        )],
    ),
    (
        "colocate-train-cpi-model",
        &[(
            "Coefficients of another machine",
            "colocate train cpi-model --machine power8-10c -o model.json",
        )],
    ),
    (
        "colocate-advise-threads",
        &[(
            "The best number of threads",
            "colocate advise-threads -- ./solver --threads {threads}",
        )],
    ),
];

/// Files that several commands read and write.
const FILES: [(&str, &str); 5] = [
    (
        "$XDG_CACHE_HOME/colocate/profiles, ~/.cache/colocate/profiles",
        "Profiles of programs that run has watched.",
    ),
    (
        "$XDG_STATE_HOME/colocate, ~/.local/state/colocate, /var/lib/colocate",
        "Measurements that calibrate has made.",
    ),
    (
        "$XDG_RUNTIME_DIR/colocate, /run/colocate, /tmp/colocate-UID",
        "Journals, by which restore undoes what a killed colocate has left.",
    ),
    ("PREFIX/share/doc/colocate/docs", "Documents on each command, on policies and on files."),
    ("PREFIX/share/doc/colocate/docs/schemas", "JSON schemas of what is read and written."),
];

/// Exit status, as the module `exit` has it.
const STATUS: [(&str, &str); 6] = [
    ("N", "run, profile: the program's own; 128 + S if signal S killed it. Else 0."),
    ("2", "Wrong usage."),
    ("3", "A capability that was requested by name is missing here; doctor names the remedy."),
    ("125", "colocate itself failed."),
    ("126", "A program was found but cannot be executed."),
    ("127", "A program was not found."),
];

/// The pages of a command and of those below it: name of the file and text.
pub fn all(command: Command) -> io::Result<Vec<(String, String)>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, pages: &mut Vec<(String, String)>) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        add(inner, pages)?;
    }
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    let name = man.get_filename();
    let page = String::from_utf8_lossy(&page);
    let text = with_usage(&page, &mut command.clone()) + &sections(&name);
    pages.push((name, text));
    Ok(())
}

/// The page with the usage line of `--help` as its synopsis: clap_mangen's lists every option and leaves out values and `--`.
fn with_usage(page: &str, command: &mut Command) -> String {
    let Some((before, rest)) = page.split_once(".SH SYNOPSIS\n") else { return page.to_owned() };
    let after = rest.find("\n.SH ").map_or("", |at| &rest[at + 1..]);
    let usage = command.render_usage().to_string();
    let lines: Vec<String> = usage
        .trim_start_matches("Usage:")
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(escaped)
        .collect();
    format!("{before}.SH SYNOPSIS\n{}\n{after}", lines.join("\n.br\n"))
}

/// The sections that are not made of arguments.
fn sections(page: &str) -> String {
    let examples = EXAMPLES.iter().find(|(name, _)| page.strip_suffix(".1") == Some(name));
    let mut text = String::new();
    for (heading, list) in [
        ("EXAMPLES", examples.map_or(&[][..], |(_, list)| list)),
        ("FILES", &FILES),
        ("EXIT STATUS", &STATUS),
    ] {
        if list.is_empty() {
            continue;
        }
        let _ = writeln!(text, ".SH \"{heading}\"");
        for (first, second) in list {
            let _ = writeln!(text, ".TP\n{}\n{}", escaped(first), escaped(second));
        }
    }
    text
}

/// Text as roff(7) takes it; no line begins with a control character.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('-', "\\-")
}
