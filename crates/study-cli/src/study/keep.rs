//! Finished pieces of a study in a file, so that a stopped study can continue.
//!
//! A line a piece, written at once: its number and its figures, `-` for a missing figure, in the
//! order of policy, seed and metric. Rust writes numbers with enough digits to read them back
//! exactly. A truncated last line, as after `kill -9`, does not count.
//!
//! Lines are appended whole, so that two commands with the same file lose no pieces.

use anyhow::{Context, bail};
use colocate_cli::input;
use colocate_files::{Accept, FileMode};
use colocate_study::replication::PolicyRuns;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// File of finished pieces.
pub(super) struct Kept {
    path: PathBuf,
    file: Mutex<File>,
    done: HashMap<usize, PolicyRuns>,
}

impl Kept {
    /// Opens the file at `path`, or makes it. `head` is the name of a study, a digest of its inputs
    /// and the identity of the program. `shape` gives the numbers of policies, seeds and metrics of
    /// a piece; `None` if the piece does not exist.
    pub fn open(
        path: &Path,
        head: &str,
        shape: impl Fn(usize) -> Option<[usize; 3]>,
    ) -> anyhow::Result<Self> {
        let text = match colocate_files::read_text(path, Accept::File, input::PIECES) {
            Err(error) if error.is_missing() => String::new(),
            read => read?,
        };
        let head = format!("colocate-study-{head}\n");
        // Text after the last end of a line was cut short.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let mut done = HashMap::new();
        if let Some(lines) = whole.strip_prefix(&head) {
            // Two commands that started at the same time have both written the head.
            let pieces = lines.lines().zip(2..).filter(|(line, _)| *line != head.trim_end());
            for (line, number) in pieces {
                let piece = parse(line, &shape);
                let (piece, runs) = piece.with_context(|| {
                    format!(
                        "{}: line {number}: expected a piece of the study, found {line:?}",
                        path.display()
                    )
                })?;
                done.insert(piece, runs);
            }
        } else if !text.is_empty() && !head.starts_with(&text) {
            bail!(
                "{} is of another study, machine, setting or build of colocate-study: remove it, or name another file \
                 with --keep",
                path.display()
            );
        }
        let cannot = || format!("cannot write {}", path.display());
        let mut file = colocate_files::append(path, FileMode::ByUmask)?;
        // The next piece must begin a line.
        if whole.len() < text.len() {
            file.set_len(whole.len() as u64).with_context(cannot)?;
        }
        // A new file, or a head that was cut short.
        if whole.is_empty() {
            file.write_all(head.as_bytes()).with_context(cannot)?;
        }
        Ok(Self { path: path.to_owned(), file: Mutex::new(file), done })
    }

    /// Result of a piece from an earlier run of the command.
    pub fn get(&self, piece: usize) -> Option<&PolicyRuns> {
        self.done.get(&piece)
    }

    /// Keeps the result of a piece.
    pub fn put(&self, piece: usize, done: &PolicyRuns) -> anyhow::Result<()> {
        let line = line(piece, done);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes())
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// A piece as a line: number, policies, seeds, then the figures.
fn line(piece: usize, done: &PolicyRuns) -> String {
    let seeds = done.first().map_or(0, Vec::len);
    let mut line = format!("{piece} {} {seeds}", done.len());
    for figure in done.iter().flatten().flatten() {
        let _ = match figure {
            Some(figure) => write!(line, " {figure}"),
            None => write!(line, " -"),
        };
    }
    line.push('\n');
    line
}

/// The piece of a line; `None` unless the line has as many figures as `shape` says.
fn parse(line: &str, shape: impl Fn(usize) -> Option<[usize; 3]>) -> Option<(usize, PolicyRuns)> {
    let mut words = line.split(' ');
    let mut number = || words.next()?.parse::<usize>().ok();
    let (piece, counts) = (number()?, [number()?, number()?]);
    let [policies, seeds, metrics] = shape(piece)?;
    let figures = words.map(|word| match word {
        "-" => Some(None),
        word => word.parse::<f64>().ok().filter(|figure| figure.is_finite()).map(Some),
    });
    let figures = figures.collect::<Option<Vec<Option<f64>>>>()?;
    if counts != [policies, seeds] || figures.len() != policies * seeds * metrics {
        return None;
    }
    let runs: Vec<Vec<Option<f64>>> = figures.chunks(metrics).map(<[_]>::to_vec).collect();
    Some((piece, runs.chunks(seeds).map(<[_]>::to_vec).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done() -> PolicyRuns {
        let run = |figure: f64| vec![Some(figure), Some(0.1 + 0.2), None, Some(1e-300), Some(1.0)];
        vec![vec![run(1.0 / 3.0), run(2.5)], vec![run(3.0), run(f64::MAX)]]
    }

    /// Three pieces of two policies, two seeds and five metrics.
    fn two(piece: usize) -> Option<[usize; 3]> {
        (piece < 3).then_some([2, 2, 5])
    }

    #[test]
    fn figures_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let kept = Kept::open(&path, "ab", two).unwrap();
        kept.put(2, &done()).unwrap();
        kept.put(0, &done()).unwrap();
        // Cut short: does not count, and is written over.
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("1 2 2 0.5");
        std::fs::write(&path, text).unwrap();
        let again = Kept::open(&path, "ab", two).unwrap();
        assert_eq!(
            (again.get(2), again.get(0), again.get(1)),
            (Some(&done()), Some(&done()), None)
        );
        again.put(1, &done()).unwrap();
        assert_eq!(Kept::open(&path, "ab", two).unwrap().get(1), Some(&done()));
    }

    /// Both started at the same time: both found nothing, and both wrote the head.
    #[test]
    fn two_with_one_file_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let [one, other] = [(), ()].map(|()| Kept::open(&path, "ab", two).unwrap());
        one.put(0, &done()).unwrap();
        other.put(1, &done()).unwrap();
        one.put(2, &done()).unwrap();
        let head = "colocate-study-ab\n";
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen(head, &head.repeat(2), 1)).unwrap();
        let again = Kept::open(&path, "ab", two).unwrap();
        assert!((0..3).all(|piece| again.get(piece) == Some(&done())));
    }

    #[test]
    fn what_is_not_of_this_study_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        Kept::open(&path, "ab", two).unwrap();
        let error = Kept::open(&path, "cd", two).err().unwrap().to_string();
        assert!(error.ends_with("name another file with --keep"), "{error}");
        let lines = [
            format!("3 2 2{}", " 1".repeat(20)),
            format!("0 2 2{}", " 1".repeat(19)),
            format!("0 1 2{}", " 1".repeat(10)),
            format!("0 2 2{} NaN", " 1".repeat(19)),
            "0 0 0".to_owned(),
        ];
        for line in lines {
            std::fs::write(&path, format!("colocate-study-ab\n{line}\n")).unwrap();
            let error = Kept::open(&path, "ab", two).err().unwrap().to_string();
            assert!(error.contains("line 2: expected a piece of the study"), "{error}");
        }
        let before = std::fs::read_to_string(&path).unwrap();
        assert!(Kept::open(&path, "cd", two).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    }
}
