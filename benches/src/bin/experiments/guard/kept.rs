//! Results in a file, one line each, so that the study can go on where it was ended.

use super::study::Found;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

/// Where results go, as they come; nowhere, if no file was named.
#[derive(Debug)]
pub struct Kept(Option<Mutex<File>>);

impl Kept {
    /// Goes on with a file, and what is in it already of these schedulers: by name, workloads of which all of them
    /// are known. What the file holds of others stays in it.
    ///
    /// # Panics
    /// If it cannot be read or written, or holds something else.
    pub fn open(
        path: Option<&Path>,
        schedulers: &[String],
    ) -> (Self, BTreeMap<String, Vec<Found>>) {
        let Some(path) = path else { return (Self(None), BTreeMap::new()) };
        let text =
            if path.exists() { std::fs::read_to_string(path).unwrap() } else { String::new() };
        // A line without an end was being written when the study was ended.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let known = complete(&text[..whole], schedulers);
        let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.set_len(whole as u64).unwrap();
        (Self(Some(Mutex::new(file))), known)
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

/// By scheduler, workloads of which all these are known. Of a workload that was done anew the last line counts.
fn complete(text: &str, schedulers: &[String]) -> BTreeMap<String, Vec<Found>> {
    let mut by_seed: BTreeMap<u64, BTreeMap<String, Found>> = BTreeMap::new();
    for (name, found) in text.lines().map(|line| parse(line).expect("a line of ours")) {
        by_seed.entry(found.seed).or_default().insert(name, found);
    }
    let mut by_name: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for mut found in by_seed.into_values() {
        if schedulers.iter().all(|name| found.contains_key(name)) {
            let asked = schedulers.iter().filter_map(|name| found.remove_entry(name));
            asked.for_each(|(name, found)| by_name.entry(name).or_default().push(found));
        }
    }
    by_name
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found(seed: u64, above: Option<(f64, f64)>) -> Found {
        Found {
            seed,
            free: 0.1 + 0.2,
            guarded: -1.0 / 3.0,
            controls: 0.5,
            above,
            gain: Some((-0.03, -1e-9)),
        }
    }

    /// The file, and what of it is known of these schedulers.
    fn open(path: &Path, schedulers: &[&str]) -> (Kept, String) {
        let names: Vec<String> = schedulers.iter().map(|&name| name.to_owned()).collect();
        let (kept, known) = Kept::open(Some(path), &names);
        (kept, format!("{known:?}"))
    }

    fn known<const N: usize>(of: [(&str, Found); N]) -> String {
        let all = of.map(|(name, found)| (name.to_owned(), vec![found]));
        format!("{:?}", BTreeMap::from(all))
    }

    /// A workload of which a line is missing or half written is done anew, and then known.
    #[test]
    fn a_study_goes_on() {
        let path = std::env::temp_dir().join(format!("guard-goes-on-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (kept, before) = open(&path, &["bas", "one PU"]);
        assert_eq!(before, known([]));
        kept.add("bas", &found(7, None));
        kept.add("one PU", &found(7, Some((0.02, 0.001))));
        kept.add("bas", &found(8, None));
        kept.add("one PU", &found(8, None));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.trim_end()).unwrap();
        let first = [("bas", found(7, None)), ("one PU", found(7, Some((0.02, 0.001))))];
        let (kept, again) = open(&path, &["bas", "one PU"]);
        assert_eq!(again, known(first));
        kept.add("bas", &found(8, Some((0.03, 0.002))));
        kept.add("one PU", &found(8, None));
        let (_, again) = open(&path, &["bas", "one PU"]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(again.matches("seed: 8").count(), 2);
        assert_eq!(again.matches("0.03, 0.002").count(), 1);
    }

    /// A run for other schedulers loses nothing of what is there, and takes it for nothing else.
    #[test]
    fn others_stay_in_the_file() {
        let path = std::env::temp_dir().join(format!("guard-others-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (kept, _) = open(&path, &["bas", "one PU"]);
        kept.add("bas", &found(7, None));
        kept.add("one PU", &found(7, None));
        let before = std::fs::read_to_string(&path).unwrap();
        let alone = open(&path, &["bas"]).1;
        let neither = open(&path, &["mmas", "idas"]).1;
        let after = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((alone, neither), (known([("bas", found(7, None))]), known([])));
        assert_eq!(after, before);
    }
}
