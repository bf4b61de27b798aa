//! A branch predictor, to say how often a processor would mispredict.
//!
//! # Approach
//! Whether a branch is taken: TAGE (Seznec and Michaud, "A case for (partially) tagged geometric history
//! length branch predictors", 2006), with a table of two-bit counters and seven tagged tables whose
//! histories grow from 4 to 200 branches; some 32 KiB in hardware. Where an indirect branch leads: the
//! same idea with two tables, one without history. Returns are always predicted.
//! # What it is not
//! Any processor's predictor: those are larger and not published. Of loops whose number of rounds does
//! not change, and of the effects of wrong paths, nothing is modelled.

/// Bits of history that are kept; more than the longest table uses.
const KEPT: usize = 256;
/// Branches of history that each tagged table looks at: each about twice as many as the one before.
const LENGTHS: [usize; 7] = [4, 8, 15, 28, 54, 104, 200];
/// Entries of a tagged table, as a power of two.
const ENTRIES: u32 = 11;
const TAG: u32 = 11;
/// Entries of the table without history, as a power of two.
const PLAIN: u32 = 14;
/// Entries of each table of targets, as a power of two.
const TARGETS: u32 = 12;
/// Allocations after which usefulness is forgotten, by half.
const FORGET: u32 = 1 << 18;

#[derive(Clone, Copy, Default)]
struct Entry {
    tag: u16,
    /// Taken if not negative; -4 to 3.
    counter: i8,
    useful: u8,
}

/// A history of so many bits, folded into fewer.
#[derive(Clone, Copy, Default)]
struct Folded {
    value: u32,
    bits: u32,
    length: usize,
}

impl Folded {
    fn new(length: usize, bits: u32) -> Self {
        Self { value: 0, bits, length }
    }

    /// A bit comes and the one `length` before it goes.
    fn push(&mut self, came: u32, went: u32) {
        #[allow(clippy::cast_possible_truncation)] // hundreds
        let at = self.length as u32 % self.bits;
        self.value = self.value << 1 | came;
        self.value ^= went << at;
        self.value ^= self.value >> self.bits;
        self.value &= (1 << self.bits) - 1;
    }
}

/// What is remembered of one thread's branches.
pub struct Predictor {
    plain: Vec<i8>,
    tables: Vec<Vec<Entry>>,
    index: Vec<Folded>,
    tags: Vec<[Folded; 2]>,
    /// The last branches, 1 for each that was taken; a ring.
    history: [u8; KEPT],
    newest: usize,
    targets: [Vec<u64>; 2],
    path: u64,
    random: u32,
    allocated: u32,
}

/// What the tables prediction.
struct Prediction {
    index: [usize; LENGTHS.len()],
    tag: [u16; LENGTHS.len()],
    provider: Option<usize>,
    taken: bool,
    /// What would be predicted without the provider.
    otherwise: bool,
}

impl Predictor {
    /// Has seen nothing.
    pub fn new() -> Self {
        Self {
            plain: vec![0; 1 << PLAIN],
            tables: vec![vec![Entry::default(); 1 << ENTRIES]; LENGTHS.len()],
            index: LENGTHS.iter().map(|length| Folded::new(*length, ENTRIES)).collect(),
            tags: LENGTHS
                .iter()
                .map(|length| [Folded::new(*length, TAG), Folded::new(*length, TAG - 1)])
                .collect(),
            history: [0; KEPT],
            newest: 0,
            targets: [vec![0; 1 << TARGETS], vec![0; 1 << TARGETS]],
            path: 0,
            random: 1,
            allocated: 0,
        }
    }

    /// The branch at `address` was taken or not; whether that was predicted.
    pub fn decided(&mut self, address: u64, taken: bool) -> bool {
        let prediction = self.predict(address);
        self.learn(address, &prediction, taken);
        self.push(taken);
        prediction.taken == taken
    }

    /// The indirect branch at `address` led to `target`; whether that was predicted.
    pub fn led(&mut self, address: u64, target: u64) -> bool {
        let mask = (1 << TARGETS) - 1;
        let mixed = mix(address);
        let [plain, with] = [mixed & mask, (mixed ^ mix(self.path)) & mask];
        // The table with history is right where it was right before: it keeps the whole target.
        let [plain, with] = [plain, with].map(|place| usize::try_from(place).unwrap_or(0));
        let known =
            if self.targets[1][with] == 0 { self.targets[0][plain] } else { self.targets[1][with] };
        self.targets[0][plain] = target;
        self.targets[1][with] = target;
        self.path = self.path << 5 ^ target >> 1;
        self.push(target >> 2 & 1 == 1);
        known == target
    }

    fn predict(&self, address: u64) -> Prediction {
        let mixed = mix(address);
        let mut prediction = Prediction {
            index: [0; LENGTHS.len()],
            tag: [0; LENGTHS.len()],
            provider: None,
            taken: self.plain[place(mixed, PLAIN)] >= 0,
            otherwise: false,
        };
        prediction.otherwise = prediction.taken;
        for table in 0..LENGTHS.len() {
            let [first, second] = &self.tags[table];
            let folded = u64::from(self.index[table].value);
            prediction.index[table] =
                place(mixed ^ mixed >> (ENTRIES as usize + table) ^ folded, ENTRIES);
            let tag = mixed >> 20 ^ u64::from(first.value) ^ u64::from(second.value) << 1;
            // Never 0, which is the tag of what was never written.
            prediction.tag[table] = u16::try_from(place(tag, TAG)).unwrap_or(0) | 1 << TAG;
            let entry = self.tables[table][prediction.index[table]];
            if entry.tag == prediction.tag[table] {
                prediction.provider = Some(table);
                prediction.otherwise = prediction.taken;
                prediction.taken = entry.counter >= 0;
            }
        }
        prediction
    }

    fn learn(&mut self, address: u64, prediction: &Prediction, taken: bool) {
        match prediction.provider {
            Some(table) => {
                let entry = &mut self.tables[table][prediction.index[table]];
                if prediction.taken != prediction.otherwise {
                    let useful = if prediction.taken == taken {
                        entry.useful + 1
                    } else {
                        entry.useful.saturating_sub(1)
                    };
                    entry.useful = useful.min(3);
                }
                entry.counter = step(entry.counter, taken, 3);
            }
            None => {
                let plain = &mut self.plain[place(mix(address), PLAIN)];
                *plain = step(*plain, taken, 1);
            }
        }
        if prediction.taken != taken {
            self.allocate(prediction, taken);
        }
    }

    /// Takes an entry of a table with a longer history.
    fn allocate(&mut self, prediction: &Prediction, taken: bool) {
        let first = prediction.provider.map_or(0, |table| table + 1);
        // Now and then the next but one, so that branches do not push each other out for ever.
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let skip = usize::from(self.random >> 30 == 0);
        let free = |table: &usize| self.tables[*table][prediction.index[*table]].useful == 0;
        let found = (first..LENGTHS.len()).filter(free).nth(skip);
        match found.or_else(|| (first..LENGTHS.len()).find(free)) {
            Some(table) => {
                let counter = if taken { 0 } else { -1 };
                let entry = Entry { tag: prediction.tag[table], counter, useful: 0 };
                self.tables[table][prediction.index[table]] = entry;
            }
            None => {
                for table in first..LENGTHS.len() {
                    let entry = &mut self.tables[table][prediction.index[table]];
                    entry.useful = entry.useful.saturating_sub(1);
                }
            }
        }
        self.allocated += 1;
        if self.allocated == FORGET {
            self.allocated = 0;
            self.tables.iter_mut().flatten().for_each(|entry| entry.useful >>= 1);
        }
    }

    fn push(&mut self, taken: bool) {
        let came = u32::from(taken);
        for (table, length) in LENGTHS.into_iter().enumerate() {
            let went = u32::from(self.history[(self.newest + KEPT - length + 1) % KEPT]);
            self.index[table].push(came, went);
            self.tags[table].iter_mut().for_each(|folded| folded.push(came, went));
        }
        self.newest = (self.newest + 1) % KEPT;
        self.history[self.newest] = u8::from(taken);
    }
}

fn place(value: u64, bits: u32) -> usize {
    usize::try_from(value & ((1 << bits) - 1)).unwrap_or(0)
}

/// Spreads addresses, whose lower bits are much alike (the multiplier of Fibonacci hashing).
fn mix(value: u64) -> u64 {
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
}

/// One step up or down, within `-(most + 1) ..= most`.
fn step(counter: i8, up: bool, most: i8) -> i8 {
    if up { (counter + 1).min(most) } else { (counter - 1).max(-most - 1) }
}
