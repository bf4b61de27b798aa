//! Finds the code around a place where a thread was seen, and has it judged.

use super::loops::{Code, Drawn, Verdict, Work, gives_way, relaxes};
use super::{Question, Seen};
use crate::sample::image::Image;
use crate::sample::live;
use colocate_isa::{Decoded, Isa, system};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A longer function is taken to have wrong bounds. Chosen: functions with loops of waiting are short; of a longer one
/// the code around the place is looked at.
const LONGEST_FUNCTION_B: u64 = 1 << 16;

/// Functions whose loops are kept. Chosen: more than a program spends its time in; some 100 KB each at most.
const KEPT: usize = 256;

/// Where code is to be found.
#[derive(Clone, Debug)]
pub enum Source {
    /// In a file, so many bytes from its start.
    File(PathBuf, u64),
    /// Here: what was in memory around the address, and the address of its first byte.
    Memory {
        /// Address of the first byte.
        start: u64,
        /// The bytes.
        bytes: Vec<u8>,
        /// The address that was seen.
        ip: u64,
    },
}

/// Judges code; keeps files that it has opened and functions that it has taken apart.
#[derive(Debug, Default)]
pub struct Judge {
    images: HashMap<PathBuf, Option<Image>>,
    functions: HashMap<(PathBuf, u64), Drawn>,
}

impl Judge {
    /// What a thread does that was seen there. `None` if there is no code to be read.
    ///
    /// Opens and reads files, some milliseconds for one that it has not seen.
    pub fn judge(&mut self, question: &Question) -> Option<Verdict> {
        match question.site.seen {
            Seen::Running => self.running(&question.source),
            // What else it does there was asked for by its program.
            Seen::Calling if self.gives_way(&question.source) => Some(Verdict::Yields),
            Seen::Calling => Some(Verdict::Works(Work::Kernel)),
        }
    }

    fn running(&mut self, source: &Source) -> Option<Verdict> {
        match source {
            Source::File(path, offset_b) => self.in_file(path, *offset_b),
            Source::Memory { start, bytes, ip } => {
                let code = Code { isa: Isa::native()?, start: *start, bytes };
                around(code, *ip, &|_| false)
            }
        }
    }

    /// Whether a thread that is in the kernel, and goes on there, gives its PU to others.
    fn gives_way(&mut self, source: &Source) -> bool {
        let most = system::LONGEST_CALL_B;
        let before = match source {
            Source::File(path, offset_b) => self.image(path).and_then(|image| {
                let ip = image.address(*offset_b)?;
                Some((image.isa(), image.bytes(ip.saturating_sub(most as u64)..ip)))
            }),
            Source::Memory { start, bytes, ip } => Isa::native().and_then(|isa| {
                let end = usize::try_from(ip.checked_sub(*start)?).ok()?;
                Some((isa, bytes.get(end.saturating_sub(most)..end)?.to_vec()))
            }),
        };
        before.is_some_and(|(isa, bytes)| system::gives_way(isa, &bytes))
    }

    fn image(&mut self, path: &Path) -> Option<&Image> {
        let open = || Image::open(path);
        self.images.entry(path.to_owned()).or_insert_with(open).as_ref()
    }

    fn in_file(&mut self, path: &Path, offset_b: u64) -> Option<Verdict> {
        self.image(path)?;
        let image = self.images.get(path)?.as_ref()?;
        let ip = image.address(offset_b)?;
        let relaxed = |target: u64| is_relaxed(image, target);
        let function = image.function(ip);
        let Some(range) = function.filter(|range| range.end - range.start <= LONGEST_FUNCTION_B)
        else {
            let start = ip.saturating_sub(live::BEHIND_B as u64);
            let bytes = image.bytes(start..ip.saturating_add(live::AHEAD_B as u64));
            return around(Code { isa: image.isa(), start, bytes: &bytes }, ip, &relaxed);
        };
        if is_relaxed(image, range.start) {
            return Some(Verdict::Hints);
        }
        if is_short(image, range.start, gives_way) {
            return Some(Verdict::Yields);
        }
        if self.functions.len() >= KEPT {
            self.functions.clear();
        }
        let draw = || {
            let bytes = image.bytes(range.clone());
            Drawn::of(Code { isa: image.isa(), start: range.start, bytes: &bytes }, ip)
        };
        let key = (path.to_owned(), range.start);
        let drawn = self.functions.entry(key).or_insert_with(draw);
        if let Some(verdict) = drawn.judge(ip, &relaxed) {
            return Some(verdict);
        }
        // A part that nothing known leads to, but that runs.
        *drawn = draw();
        Some(drawn.judge(ip, &relaxed).unwrap_or(Verdict::Works(Work::NoLoop)))
    }
}

/// Whether the function at an address of a file does little more than hint.
fn is_relaxed(image: &Image, address: u64) -> bool {
    is_short(image, address, relaxes)
}

/// Whether a short function begins at an address of a file, of which something holds.
fn is_short(image: &Image, address: u64, holds: impl Fn(Code<'_>) -> bool) -> bool {
    let whole = |range: &Range<u64>| range.start == address && range.end - range.start <= 64;
    let Some(range) = image.function(address).filter(whole) else { return false };
    let bytes = image.bytes(range.clone());
    holds(Code { isa: image.isa(), start: range.start, bytes: &bytes })
}

/// Judges by the smallest piece of code around the place that jumps back to its beginning.
fn around(code: Code<'_>, ip: u64, relaxed: &dyn Fn(u64) -> bool) -> Option<Verdict> {
    let body: Vec<Decoded> = live::code_around(code.isa, code.start, code.bytes, ip);
    let (first, last) = (body.first()?, body.last()?);
    let range = usize::try_from(first.ip.checked_sub(code.start)?).ok()?
        ..usize::try_from(last.next_ip().checked_sub(code.start)?).ok()?;
    let code = Code { isa: code.isa, start: first.ip, bytes: code.bytes.get(range)? };
    let verdict = Drawn::of(code, ip).judge(ip, relaxed);
    Some(verdict.unwrap_or(Verdict::Works(Work::NoLoop)))
}
