//! Values of a scenario file, checked where their line is known.

use super::form::Text;
use super::{Lines, MAX_NAME};
use colocate_machine::Nanos;
use colocate_machine::printable::is_unprintable;
use toml::Spanned;

/// Shortest quantum or slice. Chosen: shorter than any kernel could keep.
const LEAST_STEP: Nanos = Nanos(1_000);

impl Lines {
    /// Checks that a name fits on a line.
    pub(super) fn name(&self, name: &Spanned<String>) -> Result<(), String> {
        let text = name.get_ref();
        let length = text.chars().count();
        if text.trim().is_empty() || length > MAX_NAME || text.chars().any(is_unprintable) {
            let expected = format!("a name of 1 to {MAX_NAME} characters on one line");
            return Err(self.misfit(name, expected, format!("{length} characters")));
        }
        Ok(())
    }

    /// A time above 0.
    pub(super) fn time(
        &self,
        time: Option<&Spanned<Text<Nanos>>>,
        default: Nanos,
    ) -> Result<Nanos, String> {
        let Some(time) = time else { return Ok(default) };
        let found = time.get_ref().0;
        if found == Nanos::ZERO {
            return Err(self.misfit(time, "a time above 0", "0"));
        }
        Ok(found)
    }

    /// A time between decisions or slices: with a shorter one the simulation would take for ever.
    pub(super) fn step(
        &self,
        time: Option<&Spanned<Text<Nanos>>>,
        default: Nanos,
    ) -> Result<Nanos, String> {
        match time.filter(|time| time.get_ref().0 < LEAST_STEP) {
            Some(short) => {
                let found = format!("{} ns", short.get_ref().0.0);
                Err(self.misfit(short, "a time of 1 us or more", found))
            }
            None => self.time(time, default),
        }
    }

    /// A count from 1 to `most`.
    pub(super) fn count(
        &self,
        count: Option<&Spanned<u32>>,
        default: u32,
        most: u32,
    ) -> Result<u32, String> {
        let Some(count) = count else { return Ok(default) };
        let found = *count.get_ref();
        if !(1..=most).contains(&found) {
            return Err(self.misfit(count, format!("1 to {most}"), found));
        }
        Ok(found)
    }

    /// A number of instructions above 0.
    pub(super) fn some(&self, instructions: &Spanned<u64>) -> Result<u64, String> {
        match *instructions.get_ref() {
            0 => Err(self.misfit(instructions, "at least one instruction", "0")),
            found => Ok(found),
        }
    }
}
