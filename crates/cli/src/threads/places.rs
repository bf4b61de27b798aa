//! Places of parallel regions in the program's source, by its debug information.

use crate::children::POLL;
use colocate_linux::sys;
use colocate_omp::report::Reported;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Most time for all look-ups. Chosen: debug information of 1 GB takes some seconds.
const TIME: Duration = Duration::from_secs(10);

/// Most bytes of an answer: a path of the longest length for each of the most regions.
const ANSWER: u64 = 64 << 20;

/// Places of regions as `FILE:LINE`, by object and address in it.
#[derive(Default)]
pub struct RegionLocations {
    found: HashMap<(String, u64), String>,
    /// Whether the time was over before all objects.
    is_cut: bool,
}

impl RegionLocations {
    /// Looks up the regions without a name by the compiler: once for each object, within [`TIME`],
    /// and until `is_stopped`.
    pub fn of(reported: &[Reported], is_stopped: &dyn Fn() -> bool) -> Self {
        let until = Instant::now() + TIME;
        let is_late = || Instant::now() >= until || is_stopped();
        let mut places = Self::default();
        for (object, addresses) in addresses(reported) {
            let addresses: Vec<u64> = addresses.into_iter().collect();
            let text = addr2line(object, &addresses, &is_late).unwrap_or_default();
            if is_late() {
                places.is_cut = true;
                break;
            }
            for (address, line) in addresses.iter().zip(text.lines()) {
                if let Some(place) = place(line) {
                    places.found.insert((object.to_owned(), *address), place);
                }
            }
        }
        places
    }

    /// A note if not all objects were looked up.
    pub fn note(&self) -> Option<String> {
        self.is_cut.then(|| {
            format!(
                "not every region has its line: a signal ended addr2line, or all of it took more than {} s",
                TIME.as_secs()
            )
        })
    }

    /// File and line where known, else object and address.
    pub fn place(&self, reported: &Reported) -> String {
        let object = reported.object.as_deref().unwrap_or("unknown");
        said(reported)
            .or_else(|| self.found.get(&(object.to_owned(), reported.address)).cloned())
            .unwrap_or_else(|| format!("{object}+{:#x}", reported.address))
    }
}

/// The place that the compiler has written into the program, if any.
fn said(reported: &Reported) -> Option<String> {
    // The `psource` of OpenMP's `ident_t`: `;FILE;FUNCTION;LINE;COLUMN;;`.
    let mut fields = reported.said.as_deref()?.split(';').skip(1);
    let file = fields.next()?;
    let function = fields.next()?;
    let line = fields.next()?;
    let line: u32 = line.parse().ok().filter(|line| *line > 0)?;
    Some(format!("{file}:{line} ({function})"))
}

/// Addresses to look up, by object.
fn addresses(reported: &[Reported]) -> BTreeMap<&str, BTreeSet<u64>> {
    let mut all: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for region in reported.iter().filter(|region| said(region).is_none()) {
        // The program wrote the object's name: binutils take `@FILE` for a file of arguments.
        let object = region.object.as_deref().filter(|object| Path::new(object).is_absolute());
        if let Some(object) = object {
            all.entry(object).or_default().insert(region.address);
        }
    }
    all.retain(|object, _| Path::new(object).is_file());
    all
}

/// A line for each address from `addr2line` of binutils; `None` if not installed or `is_late`.
fn addr2line(object: &str, addresses: &[u64], is_late: &dyn Fn() -> bool) -> Option<String> {
    if is_late() {
        return None;
    }
    let mut command = Command::new("addr2line");
    command.args(["-e", object]).args(addresses.iter().map(|address| format!("{address:#x}")));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    sys::ends_with_us(&mut command);
    let mut child = command.spawn().ok()?;
    let text = answer(&mut child).and_then(|answer| {
        loop {
            match answer.recv_timeout(POLL) {
                Ok(text) => return Some(text),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if is_late() => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    });
    // Fails for a child that has ended; it only has to be reaped then.
    let _ = child.kill();
    let _ = child.wait();
    text
}

/// Output of a child, read by a separate thread and sent after the child's end.
fn answer(child: &mut Child) -> Option<Receiver<String>> {
    let stdout = child.stdout.take()?;
    let (send, answer) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        if stdout.take(ANSWER).read_to_end(&mut text).is_ok() {
            // The receiver is gone if the answer took too long.
            let _ = send.send(String::from_utf8_lossy(&text).into_owned());
        }
    });
    Some(answer)
}

/// `FILE:LINE`, without a folder, in a line of `addr2line`; `None` for question marks.
fn place(line: &str) -> Option<String> {
    let found = line.split_whitespace().next().filter(|found| !found.starts_with('?'))?;
    let (file, line) = found.rsplit_once(':')?;
    let line = line.parse::<u32>().ok().filter(|line| *line > 0)?;
    let file = Path::new(file).file_name()?.to_string_lossy();
    Some(format!("{file}:{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::regions::tests::reported;

    #[test]
    fn places_as_well_as_they_are_known() {
        let places = RegionLocations::default();
        assert_eq!(places.place(&reported(Some(";a.c;main;7;3;;"))), "a.c:7 (main)");
        for unknown in [None, Some(";unknown;unknown;0;0;;"), Some("strange")] {
            assert_eq!(places.place(&reported(unknown)), "unknown+0x1270");
        }
    }

    #[test]
    fn lines_by_hand() {
        assert_eq!(place("/a/b.c:12"), Some("b.c:12".to_owned()));
        assert_eq!(place("/a/b.c:12 (discriminator 3)"), Some("b.c:12".to_owned()));
        for unknown in ["??:0", "??:?", "/a/b.c:?", ""] {
            assert_eq!(place(unknown), None, "{unknown}");
        }
    }

    fn in_object(object: &Path, address: u64) -> Reported {
        Reported { object: object.to_str().map(str::to_owned), address, ..reported(None) }
    }

    /// Places are addresses where a signal has come.
    #[test]
    fn a_signal_ends_it() {
        let own = std::env::current_exe().unwrap();
        let regions: Vec<Reported> =
            (0..16_384).map(|address| in_object(&own, 0x1000 + address)).collect();
        let places = RegionLocations::of(&regions, &|| true);
        assert!(places.note().is_some() && places.found.is_empty());
        assert!(places.place(&regions[0]).ends_with("+0x1000"));
    }

    /// One process an object, whatever the number of regions: a thousand of this test's own file take as long as a few.
    #[test]
    fn an_object_is_looked_at_once() {
        let own = std::env::current_exe().unwrap();
        let regions: Vec<Reported> =
            (0..1_000).map(|address| in_object(&own, 0x1000 + address)).collect();
        let twice = [&regions[..], &regions].concat();
        let all = addresses(&twice);
        assert_eq!(all.len(), 1);
        assert_eq!(all.values().map(BTreeSet::len).sum::<usize>(), 1_000);
        let relative = in_object(Path::new("@arguments"), 1);
        assert!(addresses(&[relative]).is_empty());
    }
}
