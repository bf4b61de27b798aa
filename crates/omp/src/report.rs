//! Report of a process, as text from the library to colocate: a line for each region with
//! tab-separated fields. The first line is the version of the form; library and colocate must be of
//! the same build.

#![allow(unsafe_code)] // what the loader says of an address

use crate::learn::{ExecutionSums, Learnt};
use crate::real;
use crate::region::ParallelRegion;
use std::ffi::{CStr, c_void};
use std::str::{FromStr, Split};

/// First line of a report.
const HEAD: &str = "colocate-omp 2";

/// A region in a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Reported {
    /// File of the program or library with the region; `None`: unknown to the loader.
    pub object: Option<String>,
    /// Address of the outlined function in the file, as in its symbol table.
    pub address: u64,
    /// `;file;function;line;column;;` from the compiler; `None`: unknown.
    pub said: Option<String>,
    /// The program sets the number of threads, or relies on the number that it has read.
    pub explicit: bool,
    /// Largest number of threads.
    pub most: u32,
    /// Settled number of threads; trials do not count.
    pub threads: u32,
    /// Result of learning.
    pub learnt: Learnt,
    /// Learning was by windows within executions. Then [`ExecutionSums`] count windows.
    pub windows: bool,
    /// Total time in ns when settled; `None`: not settled by measurement.
    pub settled_at: Option<u64>,
    /// Total time of executions, and the part lost to learning; ns.
    pub cost: (u64, u64),
    /// Executions with all threads.
    pub all: ExecutionSums,
    /// Executions with one thread.
    pub one: ExecutionSums,
}

/// All regions as text.
pub(crate) fn text(regions: &[ParallelRegion]) -> String {
    let lines = regions.iter().map(|region| reported(region).line());
    std::iter::once(HEAD.to_owned()).chain(lines).map(|line| line + "\n").collect()
}

fn reported(region: &ParallelRegion) -> Reported {
    let (object, address) = place(region.body);
    let learner = &region.learner;
    Reported {
        object,
        address,
        said: region.said.clone(),
        explicit: region.explicit,
        most: learner.most,
        threads: learner.settled(),
        learnt: learner.learnt(),
        windows: learner.windows,
        settled_at: learner.settled_at,
        cost: learner.cost(),
        all: learner.all,
        one: learner.one,
    }
}

/// File that contains `address`, and the address in the file.
fn place(address: usize) -> (Option<String>, u64) {
    let Some(object) = real::object(address as *const c_void) else {
        return (None, address as u64);
    };
    let name = (!object.dli_fname.is_null()).then(|| {
        // SAFETY: the loader's own name of a loaded object, which ends in a null byte.
        unsafe { CStr::from_ptr(object.dli_fname) }.to_string_lossy().into_owned()
    });
    // An object begins with its ELF header, whose bytes 16 and 17 are the type: type 2 (`ET_EXEC`)
    // is a program at the addresses of its symbols.
    // SAFETY: the loader has mapped the header at the base, and the header is longer than that.
    let fixed = unsafe { object.dli_fbase.cast::<u8>().add(16).read() } == 2;
    let base = if fixed { 0 } else { object.dli_fbase.addr() };
    // The object holds the address, so the base is not beyond.
    (name, address.saturating_sub(base) as u64)
}

impl Reported {
    fn line(&self) -> String {
        let settled_at = self.settled_at.map_or(String::new(), |time| time.to_string());
        format!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{settled_at}\t{}\t{}\t{}\t{}",
            field(self.object.as_deref()),
            self.address,
            field(self.said.as_deref()),
            u8::from(self.explicit),
            self.most,
            self.threads,
            word(self.learnt),
            u8::from(self.windows),
            self.cost.0,
            self.cost.1,
            self.all.fields(),
            self.one.fields(),
        )
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        // Struct fields are evaluated in the order written, which is the order of `line`.
        Some(Self {
            object: some(fields.next()?),
            address: number(&mut fields)?,
            said: some(fields.next()?),
            explicit: fields.next()? == "1",
            most: number(&mut fields)?,
            threads: number(&mut fields)?,
            learnt: learnt(fields.next()?)?,
            windows: fields.next()? == "1",
            settled_at: some(fields.next()?).map(|time| time.parse()).transpose().ok()?,
            cost: (number(&mut fields)?, number(&mut fields)?),
            all: ExecutionSums::of_fields(&mut fields)?,
            one: ExecutionSums::of_fields(&mut fields)?,
        })
    }
}

impl ExecutionSums {
    fn fields(&self) -> String {
        let Self { count, steps, wall, busy, inside, waited } = self;
        format!("{count}\t{steps}\t{wall}\t{busy}\t{inside}\t{waited}")
    }

    fn of_fields(fields: &mut Split<'_, char>) -> Option<Self> {
        Some(Self {
            count: number(fields)?,
            steps: number(fields)?,
            wall: number(fields)?,
            busy: number(fields)?,
            inside: number(fields)?,
            waited: number(fields)?,
        })
    }
}

/// Text as a field, empty for `None`. File names with control characters, which would break the
/// form, are altered.
fn field(text: Option<&str>) -> String {
    text.unwrap_or("").replace(char::is_control, " ")
}

fn some(field: &str) -> Option<String> {
    (!field.is_empty()).then(|| field.to_owned())
}

fn number<T: FromStr>(fields: &mut Split<'_, char>) -> Option<T> {
    fields.next()?.parse().ok()
}

/// Regions of a report; `None` if `text` is no report or of another build.
///
/// ```
/// use colocate_omp::report::read;
/// assert_eq!(read("colocate-omp 2\n"), Some(Vec::new()), "a program without parallel regions");
/// assert_eq!(read("colocate-omp 1\n"), None, "another build");
/// ```
#[must_use]
pub fn read(text: &str) -> Option<Vec<Reported>> {
    let (head, lines) = text.split_once('\n')?;
    if head != HEAD {
        return None;
    }
    lines.lines().map(Reported::of_line).collect()
}

/// Result of learning as a word of the report.
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
        let all = ExecutionSums { count: 5, steps: 6, wall: 4, busy: 3, inside: 2, waited: 1 };
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
            one: ExecutionSums::default(),
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
