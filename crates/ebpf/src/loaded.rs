//! The program, loaded by libbpf.

use crate::{EbpfError, Lost, PairCounts, ROOM};
use libbpf_rs::{ErrorKind, Link, Map, MapCore, MapFlags, Object, ObjectBuilder};

/// Pairs that are read with one system call.
const AT_ONCE: u32 = 1_024;

impl From<libbpf_rs::Error> for EbpfError {
    fn from(why: libbpf_rs::Error) -> Self {
        match why.kind() {
            ErrorKind::PermissionDenied => Self::Denied,
            _ => Self::Refused(why.to_string()),
        }
    }
}

/// The loaded program.
#[derive(Debug)]
pub struct Watch {
    object: Object,
    /// They hold it where it is attached.
    _links: Vec<Link>,
}

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/watch.bpf.o"));

impl Watch {
    /// Loads the program. No thread is watched yet.
    ///
    /// # Errors
    /// If the kernel does not take it, or this build has none.
    pub fn start() -> Result<Self, EbpfError> {
        Self::with_room(ROOM)
    }

    /// The same with room for so many threads, and as many pairs of them.
    ///
    /// # Errors
    /// As [`Watch::start`].
    pub fn with_room(room: u32) -> Result<Self, EbpfError> {
        // Errors are returned; libbpf would print them as well.
        libbpf_rs::set_print(None);
        let mut open = ObjectBuilder::default().open_memory(PROGRAM)?;
        for mut map in open.maps_mut().filter(|map| map.name() == "tasks" || map.name() == "pairs")
        {
            map.set_max_entries(room)?;
        }
        let object = open.load()?;
        let links = object.progs_mut().map(|program| program.attach()).collect::<Result<_, _>>()?;
        Ok(Self { object, _links: links })
    }

    /// Watches a thread, and all that it creates from now on.
    ///
    /// # Errors
    /// If there is no room for it.
    pub fn add(&self, tid: u32) -> Result<(), EbpfError> {
        let size = usize::try_from(self.map("tasks").value_size()).unwrap_or(0);
        Ok(self.map("tasks").update(&tid.to_ne_bytes(), &vec![0; size], MapFlags::ANY)?)
    }

    /// Takes out what came together since this was last called.
    ///
    /// # Errors
    /// If the kernel does not give it.
    pub fn take(&self) -> Result<Vec<PairCounts>, EbpfError> {
        let pairs = self.map("pairs");
        let mut taken = Vec::new();
        let batches = pairs.lookup_and_delete_batch(AT_ONCE, MapFlags::ANY, MapFlags::ANY)?;
        for (pair, counts) in batches {
            let [waker, wakee] = [0, 4].map(|at| u32::from_ne_bytes(bytes(&pair, at)));
            let [count, same_pu, waited_ns, both_ran_ns] =
                [0, 8, 16, 24].map(|at| u64::from_ne_bytes(bytes(&counts, at)));
            taken.push(PairCounts { waker, wakee, count, same_pu, waited_ns, both_ran_ns });
        }
        Ok(taken)
    }

    /// What found no room so far.
    ///
    /// # Errors
    /// If the kernel does not give it.
    pub fn lost(&self) -> Result<Lost, EbpfError> {
        let variables =
            self.object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss"));
        let value =
            variables.map(|map| map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)).transpose()?;
        let value = value.flatten().unwrap_or_default();
        let [tasks, wake_ups] = [0, 8].map(|at| u64::from_ne_bytes(bytes(&value, at)));
        Ok(Lost { tasks, wake_ups })
    }

    fn map(&self, name: &str) -> Map<'_> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.expect("the program has it")
    }
}

/// The bytes of a number; zeros where there are too few.
fn bytes<const N: usize>(of: &[u8], at: usize) -> [u8; N] {
    of.get(at..at + N).and_then(|part| part.try_into().ok()).unwrap_or([0; N])
}
