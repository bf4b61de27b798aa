//! What a process has learnt, as text from the library in it to colocate: a line for each region, fields with a tab between
//! them. Both are of the same build; the first line says which form it is.

#![allow(unsafe_code)] // what the loader says of an address

use crate::learn::{Learnt, Sums};
use crate::real;
use crate::region::Region;
use colocate_model::threads::Limit;
use std::ffi::{CStr, c_void};

/// First line.
const HEAD: &str = "colocate-omp 1";

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
                "{}\t{}\t{}\t{}\t{}",
                sums.count, sums.wall, sums.busy, sums.inside, sums.waited
            )
        };
        let (kind, limit) = word(self.learnt);
        format!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{kind}\t{limit}\t{}\t{}\t{}\t{}",
            text(&self.object),
            self.address,
            text(&self.said),
            u8::from(self.explicit),
            self.most,
            self.threads,
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
        let learnt = learnt(&text()?, &text()?)?;
        let cost = (text()?.parse().ok()?, text()?.parse().ok()?);
        let mut sums = || -> Option<Sums> {
            Some(Sums {
                count: text()?.parse().ok()?,
                wall: text()?.parse().ok()?,
                busy: text()?.parse().ok()?,
                inside: text()?.parse().ok()?,
                waited: text()?.parse().ok()?,
            })
        };
        let (all, one) = (sums()?, sums()?);
        Some(Self { object, address, said, explicit, most, threads, learnt, cost, all, one })
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

fn word(learnt: Learnt) -> (&'static str, &'static str) {
    let limit = |limit| match limit {
        Limit::CriticalSections => "critical-sections",
        Limit::Bandwidth => "bandwidth",
        Limit::Cores => "cores",
    };
    match learnt {
        Learnt::Learning => ("learning", ""),
        Learnt::All => ("all", ""),
        Learnt::Fewer(why) => ("fewer", limit(why)),
        Learnt::Slower(why) => ("slower", limit(why)),
        Learnt::NotResolved(why) => ("not-resolved", limit(why)),
    }
}

fn learnt(kind: &str, limit: &str) -> Option<Learnt> {
    let limits = [Limit::CriticalSections, Limit::Bandwidth, Limit::Cores];
    let with = limits
        .into_iter()
        .flat_map(|why| [Learnt::Fewer(why), Learnt::Slower(why), Learnt::NotResolved(why)]);
    let mut all = with.chain([Learnt::Learning, Learnt::All]);
    all.find(|&learnt| word(learnt) == (kind, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let all = Sums { count: 5, wall: 4, busy: 3, inside: 2, waited: 1 };
        let one = Reported {
            object: Some("a program".to_owned()),
            address: 4_660,
            said: None,
            explicit: true,
            most: 8,
            threads: 2,
            learnt: Learnt::Fewer(Limit::Bandwidth),
            cost: (1, u64::MAX),
            all,
            one: Sums::default(),
        };
        let other = Reported {
            object: None,
            said: Some(";a.c;main;7;3;;".to_owned()),
            learnt: Learnt::All,
            explicit: false,
            ..one.clone()
        };
        let text = format!("{HEAD}\n{}\n{}\n", one.line(), other.line());
        assert_eq!(read(&text), Some(vec![one, other]));
        assert_eq!(read("colocate-omp 2\n"), None);
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
