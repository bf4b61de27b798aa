//! A server and its load: readiness, and ends that decide.

use super::{ANSWERS, answering, run, send};
use crate::run_support::{Scratch, text};
use colocate_testing::skip::installed;
use colocate_testing::{EndsInTime, need};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// A TCP server that begins late, serves until SIGTERM, and then takes a moment.
const SERVER: &str = "
import signal, socket, sys, time
def end(*_):
    time.sleep(1.5)
    open(sys.argv[2], 'w').write('ended')
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
time.sleep(0.5)
server = socket.create_server(('127.0.0.1', int(sys.argv[1])))
while True:
    with server.accept()[0] as client:
        client.sendall(b'hello')
";
/// Its client: fails where the server is not there yet.
const CLIENT: &str = "
import socket, sys
with socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as server:
    print(server.recv(9).decode())
";

/// A port that no server has.
fn free_port() -> String {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    taken.local_addr().unwrap().port().to_string()
}

#[test]
fn clients_begin_when_the_server_is_ready_and_it_ends_with_them() {
    need!(installed("python3"));
    let (scratch, port) = (Scratch::new(), free_port());
    let file = scratch.path("ended").display().to_string();
    let words = ["python3", "-c", SERVER, &port, &file, ":::", "python3", "-c", CLIENT, &port];
    let output = run(&scratch, &["--ready", &format!("tcp:{port}")], &words);
    assert_eq!(text(&output.stdout), "hello\n", "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
    // It had the time to end by itself.
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "ended");
    let report = scratch.report();
    assert_eq!(
        (&report["jobs"][0]["status"], &report["jobs"][1]["status"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn a_server_that_is_never_ready_ends_the_run() {
    let scratch = Scratch::new();
    let file = scratch.path("ready").display().to_string();
    let started = scratch.path("started");
    let probe = format!("file:{file}");
    let options = ["--ready", probe.as_str(), "--ready-s", "0.3"];
    let words = ["sleep", "600", ":::", "touch", started.to_str().unwrap()];
    let output = run(&scratch, &options, &words);
    assert_eq!(output.status.code(), Some(125));
    let expected = format!(
        "colocate: sleep is not ready: found no {probe} within 300.0 ms (No such file or directory (os error 2)); the other \
         programs were not started\n"
    );
    assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
    assert!(!started.exists());
}

#[test]
fn a_server_that_fails_ends_the_run() {
    let scratch = Scratch::new();
    let output = run(&scratch, &["--ready", "tcp:1"], &["sh", "-c", "exit 7", ":::", "echo", "a"]);
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(7), ""));
    let said = text(&output.stderr);
    assert!(
        said.contains("sh is not ready: ended with status 7; the other programs were"),
        "{said}"
    );
}

/// The server gets the signal and ends as it does; the program that was held is not started.
#[test]
fn a_signal_ends_a_run_that_waits_for_readiness() {
    let scratch = Scratch::new();
    let mut command = scratch.run(&["--ready", "tcp:1"]);
    let mut colocate = answering(command.args(ANSWERS).args([
        ":::",
        "touch",
        scratch.path("a").to_str().unwrap(),
    ]));
    send("-TERM", colocate.id());
    assert_eq!(colocate.ended().code(), Some(143));
    let report = scratch.report();
    assert_eq!(
        (&report["jobs"][0]["status"], &report["jobs"][1]["status"]),
        (&0.into(), &143.into())
    );
    assert!(!scratch.path("a").exists());
}

#[test]
fn what_is_ready_before_the_start_is_refused() {
    let scratch = Scratch::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let probe = format!("tcp:{}", other.local_addr().unwrap().port());
    let output = run(&scratch, &["--ready", &probe], &["sleep", "600", ":::", "true"]);
    assert_eq!(output.status.code(), Some(125));
    let expected = format!(
        "colocate: expected no {probe} before sleep is started, found one: it is in use, or left from an earlier run\n"
    );
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn the_others_end_with_the_program_that_decides() {
    let scratch = Scratch::new();
    let begun = Instant::now();
    let words = ["sleep", "600", ":::", "sh", "-c", "exit 3", ":::", "sleep", "600"];
    let output = run(&scratch, &["--until", "1"], &words);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(begun.elapsed() < Duration::from_secs(60));
    for (options, words) in [
        (["--until", "1"], &["true"] as &[&str]),
        (["--ready", "tcp:1"], &["true"]),
        (["--ready", "6379"], &["true", ":::", "true"]),
    ] {
        assert_eq!(run(&scratch, &options, words).status.code(), Some(2), "{options:?}");
    }
}

/// A server that goes to the background at once, and is not ready by then.
const DAEMON: &str = "
import os, signal, socket, sys, time
if os.fork():
    sys.exit(0)
os.setsid()
def end(*_):
    open(sys.argv[2], 'w').write('ended')
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
time.sleep(0.3)
server = socket.create_server(('127.0.0.1', int(sys.argv[1])))
while True:
    with server.accept()[0] as client:
        client.sendall(b'hello')
";

#[test]
fn a_server_that_goes_to_the_background_ends_with_its_clients() {
    need!(installed("python3"));
    let (scratch, port) = (Scratch::new(), free_port());
    let file = scratch.path("ended").display().to_string();
    let words = ["python3", "-c", DAEMON, &port, &file, ":::", "python3", "-c", CLIENT, &port];
    let output = run(&scratch, &["--ready", &format!("tcp:{port}")], &words);
    assert_eq!(text(&output.stdout), "hello\n", "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "ended");
}
