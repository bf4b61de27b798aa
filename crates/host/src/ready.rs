//! Readiness: the first job is a server, and the others are held until it is ready.
//!
//! A probe may have to look a name up or wait for a connection, so a thread of its own makes it.

use colocate_linux::clock::now;
use colocate_machine::{Nanos, printable};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

/// Exit status of a job after a failed launch or relaunch.
pub(crate) const NOT_LAUNCHED: i32 = 125;

/// Time between two probes. Chosen: short beside the start of a server.
const EVERY: Duration = Duration::from_millis(20);

/// Timeout of a connection attempt. Chosen: a connection to another machine takes less.
const CONNECTS_WITHIN: Duration = Duration::from_secs(1);

/// A probe for readiness, written `tcp:PORT`, `tcp:HOST:PORT`, `unix:PATH` or `file:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// TCP port that accepts connections. Without a host the addresses are 127.0.0.1 and `::1`.
    Tcp {
        /// Name or address of the host.
        host: Option<String>,
        /// Port.
        port: u16,
    },
    /// Path of a Unix socket that accepts connections.
    Unix(PathBuf),
    /// Path of an existing file.
    File(PathBuf),
}

impl Probe {
    /// Probes once; may take up to a second.
    ///
    /// # Errors
    /// Reason of the failed probe, from the kernel or the name services.
    pub fn check(&self) -> io::Result<()> {
        match self {
            Self::Tcp { host: Some(host), port } => {
                connect(&(host.as_str(), *port).to_socket_addrs()?.collect::<Vec<_>>())
            }
            Self::Tcp { host: None, port } => connect(&[
                SocketAddr::from((Ipv4Addr::LOCALHOST, *port)),
                SocketAddr::from((Ipv6Addr::LOCALHOST, *port)),
            ]),
            Self::Unix(path) => UnixStream::connect(path).map(drop),
            Self::File(path) => path.metadata().map(drop),
        }
    }

    /// Probes repeatedly until success, for `within` at most.
    ///
    /// # Errors
    /// Reason of the last failed probe, in one line.
    pub fn wait(&self, within: Nanos) -> Result<(), String> {
        let end = now() + within;
        loop {
            let Err(why) = self.check() else { return Ok(()) };
            if now() >= end {
                return Err(format!("found no {self} within {within} ({why})"));
            }
            std::thread::sleep(EVERY);
        }
    }
}

/// Connects to the first address that accepts; on failure of all, the error of the first.
fn connect(addresses: &[SocketAddr]) -> io::Result<()> {
    let mut failed = None;
    for address in addresses {
        match TcpStream::connect_timeout(address, CONNECTS_WITHIN) {
            Ok(_) => return Ok(()),
            Err(why) => failed = failed.or(Some(why)),
        }
    }
    // A name can have no address at all.
    Err(failed.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host: Some(host), port } => write!(f, "tcp:{}:{port}", printable(host)),
            Self::Tcp { host: None, port } => write!(f, "tcp:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", printable(&path.to_string_lossy())),
            Self::File(path) => write!(f, "file:{}", printable(&path.to_string_lossy())),
        }
    }
}

impl FromStr for Probe {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || match text.split_once(':')? {
            ("tcp", at) => {
                // The last colon: an address of IPv6 has colons, too.
                let (host, port) =
                    at.rsplit_once(':').map_or((None, at), |(host, port)| (Some(host), port));
                // An address of IPv6 is written in brackets, as in URLs.
                let host = host.map(|it| it.trim_matches(['[', ']']).to_owned());
                let port = port.parse().ok().filter(|port| *port > 0)?;
                (host.as_deref() != Some("")).then_some(Self::Tcp { host, port })
            }
            (_, "") => None,
            ("unix", path) => Some(Self::Unix(path.into())),
            ("file", path) => Some(Self::File(path.into())),
            _ => None,
        };
        read().ok_or_else(|| {
            format!("expected tcp:PORT, tcp:HOST:PORT, unix:PATH or file:PATH, found {text:?}")
        })
    }
}

/// Readiness check of the first job. The other jobs are held until it succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Probe for readiness.
    pub probe: Probe,
    /// Time limit.
    pub within: Nanos,
}

/// Probes under way.
#[derive(Debug)]
pub(crate) struct Probing {
    outcome: Receiver<Result<(), String>>,
    /// Closed by the thread on completion.
    over: io::PipeReader,
}

impl Probing {
    /// Starts the probes on a thread.
    pub fn start(readiness: Readiness) -> io::Result<Self> {
        let (over, open) = io::pipe()?;
        let (sender, outcome) = channel();
        std::thread::Builder::new().name("colocate-ready".into()).spawn(move || {
            let _ = sender.send(readiness.probe.wait(readiness.within));
            // After the outcome is sent, as the closed pipe announces it.
            drop(open);
        })?;
        Ok(Self { outcome, over })
    }

    /// File descriptor that becomes readable on completion.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.over.as_fd()
    }

    /// Outcome, once there is one.
    pub fn outcome(&self) -> Option<Result<(), String>> {
        match self.outcome.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err("the probe has ended".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn probes_are_read_back() {
        for text in ["tcp:6379", "tcp:db.local:5432", "unix:/run/s", "file:ready"] {
            assert_eq!(text.parse::<Probe>().unwrap().to_string(), text);
        }
        assert_eq!(
            "tcp:[::1]:80".parse(),
            Ok(Probe::Tcp { host: Some("::1".to_owned()), port: 80 })
        );
        for wrong in ["", "6379", "tcp:", "tcp:0", "tcp:65536", "tcp::80", "unix:", "http://a"] {
            let expected = format!(
                "expected tcp:PORT, tcp:HOST:PORT, unix:PATH or file:PATH, found {wrong:?}"
            );
            assert_eq!(wrong.parse::<Probe>(), Err(expected));
        }
    }

    #[test]
    fn ready_once_there_is_something() {
        let said = Probe::File("/none".into()).wait(Nanos::from_millis(1)).unwrap_err();
        assert!(said.starts_with("found no file:/none within 1.0 ms (No such file"), "{said}");
        assert_eq!(Probe::File("/proc/self/stat".into()).wait(Nanos::ZERO), Ok(()));

        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        assert!(Probe::Tcp { host: None, port }.check().is_ok());
        drop(server);
        assert!(Probe::Tcp { host: None, port }.check().is_err());
    }
}
