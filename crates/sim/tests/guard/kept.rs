//! Results in a file, one line each, so that the study can go on where it was ended.

use super::study::Found;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

/// Where results go, as they come; nowhere, if nobody named a file.
#[derive(Debug)]
pub struct Kept(Option<Mutex<File>>);

impl Kept {
    /// Goes on with a file, and what is in it already: by scheduler, workloads of which all is known.
    ///
    /// # Panics
    /// If it cannot be read or written, or holds something else.
    pub fn open(path: Option<&Path>, schedulers: usize) -> (Self, BTreeMap<String, Vec<Found>>) {
        let Some(path) = path else { return (Self(None), BTreeMap::new()) };
        let text =
            if path.exists() { std::fs::read_to_string(path).unwrap() } else { String::new() };
        // A line without an end was being written when the study was ended.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let lines: Vec<(String, Found)> =
            whole.map(|line| parse(line.trim_end()).expect("a line of ours")).collect();
        let mut known: BTreeMap<u64, usize> = BTreeMap::new();
        lines.iter().for_each(|(_, found)| *known.entry(found.seed).or_default() += 1);
        let mut by_name: BTreeMap<String, Vec<Found>> = BTreeMap::new();
        for (name, found) in lines.into_iter().filter(|(_, f)| known[&f.seed] == schedulers) {
            by_name.entry(name).or_default().push(found);
        }
        let whole = by_name.iter().flat_map(|(name, all)| all.iter().map(|f| line(name, f)));
        std::fs::write(path, whole.collect::<String>()).unwrap();
        let file = OpenOptions::new().append(true).open(path).unwrap();
        (Self(Some(Mutex::new(file))), by_name)
    }

    /// Adds what was found of a scheduler.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn add(&self, name: &str, found: &Found) {
        if let Self(Some(file)) = self {
            file.lock().unwrap().write_all(line(name, found).as_bytes()).unwrap();
        }
    }
}

/// Name, workload, and the figures, with tabs between; all digits, so that a table is the same from the file.
fn line(name: &str, found: &Found) -> String {
    let both =
        |both: Option<(f64, f64)>| both.map_or("-\t-".to_owned(), |(a, b)| format!("{a}\t{b}"));
    let Found { seed, free, guarded, controls, above, gain } = found;
    format!("{name}\t{seed}\t{free}\t{guarded}\t{controls}\t{}\t{}\n", both(*above), both(*gain))
}

fn parse(line: &str) -> Option<(String, Found)> {
    let fields: Vec<&str> = line.split('\t').collect();
    let &[name, seed, free, guarded, controls, above, luck, alone, kept] = &fields[..] else {
        return None;
    };
    let both = |a: &str, b: &str| match (a, b) {
        ("-", "-") => Some(None),
        _ => Some(Some((a.parse().ok()?, b.parse().ok()?))),
    };
    let found = Found {
        seed: seed.parse().ok()?,
        free: free.parse().ok()?,
        guarded: guarded.parse().ok()?,
        controls: controls.parse().ok()?,
        above: both(above, luck)?,
        gain: both(alone, kept)?,
    };
    Some((name.to_owned(), found))
}

/// A workload of which a line is missing or half written is done anew.
#[test]
fn a_study_goes_on() {
    let found = |seed, above| Found {
        seed,
        free: 0.1 + 0.2,
        guarded: -1.0 / 3.0,
        controls: 0.5,
        above,
        gain: Some((-0.03, -1e-9)),
    };
    let path = std::env::temp_dir().join(format!("guard-study-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let (kept, before) = Kept::open(Some(&path), 2);
    assert!(before.is_empty());
    kept.add("bas", &found(7, None));
    kept.add("one PU", &found(7, Some((0.02, 0.001))));
    kept.add("bas", &found(8, None));
    kept.add("bas", &found(9, None));
    kept.add("one PU", &found(9, None));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.trim_end()).unwrap();
    let (_, again) = Kept::open(Some(&path), 2);
    std::fs::remove_file(&path).unwrap();
    let shown = format!("{again:?}");
    let expected = BTreeMap::from([
        ("bas".to_owned(), vec![found(7, None)]),
        ("one PU".to_owned(), vec![found(7, Some((0.02, 0.001)))]),
    ]);
    assert_eq!(shown, format!("{expected:?}"));
}
