//! What a process has learnt, as text from the library in it to colocate: a line for each region, fields with a tab between
//! them. Both are of the same build; the first line says which form it is.

#![allow(unsafe_code)] // what the loader says of an address

use crate::learn::{Learnt, Sums};
use crate::real;
use crate::region::Region;
use std::ffi::{CStr, c_void};

/// First line.
const HEAD: &str = "colocate-omp 2";

/// A region as reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Reported {
    /// File of the program or library that has it; `None` if the loader does not know.
    pub object: Option<String>,
    /// Its address there, as in the file's symbols.
    pub address: u64,
    /// `;file;function;line;column;;`, where the compiler has said it.
    pub said: Option<String>,
    /// Whether the program sets its number of threads, or relies on the number that it was answered.
    pub explicit: bool,
    /// The most threads that it may have.
    pub most: u32,
    /// How many it has, what is only tried left out.
    pub threads: u32,
    /// What was learnt.
    pub learnt: Learnt,
    /// Whether within executions, by windows of them. Then [`Sums`] are of windows.
    pub windows: bool,
    /// Time of all executions when it was settled, in ns; `None` where nothing was.
    pub settled_at: Option<u64>,
    /// Time of all executions, and what learning has cost of it; ns.
    pub cost: (u64, u64),
    /// Executions with all threads.
    pub all: Sums,
    /// Executions with one thread.
    pub one: Sums,
}

/// All regions as text.
pub(crate) fn text(regions: &[Region]) -> String {
    let lines = regions.iter().map(|region| reported(region).line());
    std::iter::once(HEAD.to_owned()).chain(lines).map(|line| line + "\n").collect()
}

fn reported(region: &Region) -> Reported {
    let (object, address) = place(region.body);
    let learner = &region.learner;
    let (all, one) = learner.sums();
    Reported {
        object,
        address,
        said: region.said.clone(),
        explicit: region.explicit,
        most: learner.most(),
        threads: learner.settled(),
        learnt: learner.learnt(),
        windows: learner.has_windows(),
        settled_at: learner.settled_at(),
        cost: learner.cost(),
        all,
        one,
    }
}

/// The file that has `address`, and the address in it.
fn place(address: usize) -> (Option<String>, u64) {
    let Some(object) = real::object(address as *const c_void) else {
        return (None, address as u64);
    };
    let name = (!object.dli_fname.is_null()).then(|| {
        // SAFETY: the loader's own name of a loaded object, which ends in a null byte.
        unsafe { CStr::from_ptr(object.dli_fname) }.to_string_lossy().into_owned()
    });
    // An object begins with its ELF header, whose bytes 16 and 17 are the type: 2 is a program that is where its symbols say.
    // SAFETY: the loader has mapped the header at the base, and it is longer than that.
    let fixed = unsafe { object.dli_fbase.cast::<u8>().add(16).read() } == 2;
    let base = if fixed { 0 } else { object.dli_fbase.addr() };
    (name, address.saturating_sub(base) as u64)
}

impl Reported {
    fn line(&self) -> String {
        let text = |text: &Option<String>| {
            // No file that a compiler was given has such characters.
            text.as_deref().unwrap_or("").replace(char::is_control, " ")
        };
        let sums = |sums: &Sums| {
            format!(
                "{}\t{}\t{}\t{}\t{}\t{}",
                sums.count, sums.steps, sums.wall, sums.busy, sums.inside, sums.waited
            )
        };
        let settled_at = self.settled_at.map_or(String::new(), |time| time.to_string());
        format!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{settled_at}\t{}\t{}\t{}\t{}",
            text(&self.object),
            self.address,
            text(&self.said),
            u8::from(self.explicit),
            self.most,
            self.threads,
            word(self.learnt),
            u8::from(self.windows),
            self.cost.0,
            self.cost.1,
            sums(&self.all),
            sums(&self.one),
        )
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        let mut text = || fields.next().map(str::to_owned);
        let some = |text: String| (!text.is_empty()).then_some(text);
        let (object, address, said) = (some(text()?), text()?.parse().ok()?, some(text()?));
        let (explicit, most, threads) =
            (text()? == "1", text()?.parse().ok()?, text()?.parse().ok()?);
        let (learnt, windows) = (learnt(&text()?)?, text()? == "1");
        let settled_at = some(text()?).map(|time| time.parse()).transpose().ok()?;
        let cost = (text()?.parse().ok()?, text()?.parse().ok()?);
        let mut sums = || -> Option<Sums> {
            Some(Sums {
                count: text()?.parse().ok()?,
                steps: text()?.parse().ok()?,
                wall: text()?.parse().ok()?,
                busy: text()?.parse().ok()?,
                inside: text()?.parse().ok()?,
                waited: text()?.parse().ok()?,
            })
        };
        let (all, one) = (sums()?, sums()?);
        Some(Self {
            object,
            address,
            said,
            explicit,
            most,
            threads,
            learnt,
            windows,
            settled_at,
            cost,
            all,
            one,
        })
    }
}

/// The regions of a report; `None` if it is none, or of another build.
#[must_use]
pub fn read(text: &str) -> Option<Vec<Reported>> {
    let (head, lines) = text.split_once('\n')?;
    if head != HEAD {
        return None;
    }
    lines.lines().map(Reported::of_line).collect()
}

/// What was learnt, in a word.
#[must_use]
pub fn word(learnt: Learnt) -> &'static str {
    match learnt {
        Learnt::Learning => "learning",
        Learnt::All => "all",
        Learnt::Fewer => "fewer",
        Learnt::Slower => "slower",
        Learnt::NotResolved => "not-resolved",
        Learnt::Stuck => "stuck",
    }
}

fn learnt(text: &str) -> Option<Learnt> {
    use Learnt::{All, Fewer, Learning, NotResolved, Slower, Stuck};
    [Learning, All, Fewer, Slower, NotResolved, Stuck]
        .into_iter()
        .find(|&learnt| word(learnt) == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let all = Sums { count: 5, steps: 6, wall: 4, busy: 3, inside: 2, waited: 1 };
        let one = Reported {
            object: Some("a program".to_owned()),
            address: 4_660,
            said: None,
            explicit: true,
            most: 8,
            threads: 2,
            learnt: Learnt::Fewer,
            windows: true,
            settled_at: Some(7),
            cost: (1, u64::MAX),
            all,
            one: Sums::default(),
        };
        let other = Reported {
            object: None,
            said: Some(";a.c;main;7;3;;".to_owned()),
            learnt: Learnt::All,
            windows: false,
            settled_at: None,
            explicit: false,
            ..one.clone()
        };
        let text = format!("{HEAD}\n{}\n{}\n", one.line(), other.line());
        assert_eq!(read(&text), Some(vec![one, other]));
        assert_eq!(read("colocate-omp 1\n"), None);
        assert_eq!(read(&format!("{HEAD}\nhalf a line")), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn an_address_has_its_file() {
        let (object, address) = place(what_is_written_reads_back as *const () as usize);
        assert!(object.is_some_and(|name| name.contains("colocate_omp")), "the test's own file");
        assert!(address > 0);
    }
}
