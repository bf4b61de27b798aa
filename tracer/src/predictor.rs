//! A branch predictor, to estimate a processor's mispredictions.
//!
//! # Approach
//! Directions of conditional branches: TAGE (Seznec and Michaud, "A case for (partially) tagged
//! geometric history length branch predictors", 2006), with a table of two-bit counters and seven
//! tagged tables with histories of 4 to 200 branches; some 32 KiB in hardware. Targets of indirect
//! branches: the same method with two tables, one without history. Returns are always predicted.
//!
//! # Limits
//! No processor has this predictor: processors have larger, unpublished predictors. Not modelled are
//! predictors for loops with a constant number of rounds, and the effects of wrong paths.

/// Bits of history kept; more than the longest history.
const KEPT: usize = 256;
/// History length of each tagged table, in branches; each about twice the length before.
const LENGTHS: [usize; 7] = [4, 8, 15, 28, 54, 104, 200];
/// Entries of a tagged table, as a power of two.
const ENTRIES: u32 = 11;
/// Bits of a tag.
const TAG: u32 = 11;
/// Entries of the table without history, as a power of two.
const PLAIN: u32 = 14;
/// Entries of each table of targets, as a power of two.
const TARGETS: u32 = 12;
/// Allocations after which all usefulness counters are halved.
const FORGET: u32 = 1 << 18;

#[derive(Clone, Copy, Default)]
struct PredictorEntry {
    tag: u16,
    /// Prediction, -4 to 3: taken if not negative.
    counter: i8,
    /// Usefulness, 0 to 3: entries of 0 may be replaced.
    useful: u8,
}

/// A history of `length` bits, folded into `bits` bits by exclusive or.
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

    /// Shifts in bit `came`, and removes bit `went`, which came `length` bits before.
    fn push(&mut self, came: u32, went: u32) {
        #[allow(clippy::cast_possible_truncation)] // hundreds
        let at = self.length as u32 % self.bits;
        self.value = self.value << 1 | came;
        self.value ^= went << at;
        // The bit above the fold comes in again at the bottom.
        self.value ^= self.value >> self.bits;
        self.value &= (1 << self.bits) - 1;
    }
}

/// Predictor of a thread's branches.
pub struct Predictor {
    /// Two-bit counters, by address.
    plain: Vec<i8>,
    /// Tagged tables, by rising history length.
    tables: Vec<Vec<PredictorEntry>>,
    /// Folded history for the index of each tagged table.
    index: Vec<Folded>,
    /// Folded histories for the tag of each tagged table.
    tags: Vec<[Folded; 2]>,
    /// Ring of the last branches, 1 for a taken branch.
    history: [u8; KEPT],
    /// Index of the last branch in `history`.
    newest: usize,
    /// Targets by address, and by address and path; 0 if unknown.
    targets: [Vec<u64>; 2],
    /// Hash of the last indirect targets.
    path: u64,
    random: u32,
    /// Allocations since usefulness was last halved.
    allocated: u32,
}

/// Prediction of a direction, with the table entries used.
struct Prediction {
    /// Index into each tagged table.
    index: [usize; LENGTHS.len()],
    /// Tag for each tagged table.
    tag: [u16; LENGTHS.len()],
    /// Table of the prediction: the matching table with the longest history. `None`: `plain`.
    provider: Option<usize>,
    taken: bool,
    /// Prediction without the provider.
    otherwise: bool,
}

impl Predictor {
    /// A predictor without history.
    pub fn new() -> Self {
        Self {
            plain: vec![0; 1 << PLAIN],
            tables: vec![vec![PredictorEntry::default(); 1 << ENTRIES]; LENGTHS.len()],
            index: LENGTHS.iter().map(|length| Folded::new(*length, ENTRIES)).collect(),
            tags: LENGTHS
                .iter()
                // Two widths: histories that cancel out in one fold differ in the other.
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

    /// Records the direction of the conditional branch at `address`. True if it was predicted.
    pub fn decided(&mut self, address: u64, taken: bool) -> bool {
        let prediction = self.predict(address);
        self.learn(address, &prediction, taken);
        self.push(taken);
        prediction.taken == taken
    }

    /// Records the target of the indirect branch at `address`. True if it was predicted.
    pub fn led(&mut self, address: u64, target: u64) -> bool {
        let mask = (1 << TARGETS) - 1;
        let mixed = mix(address);
        let [plain, with] = [mixed & mask, (mixed ^ mix(self.path)) & mask];
        // The mask leaves few bits, so the numbers fit.
        let [plain, with] = [plain, with].map(|place| usize::try_from(place).unwrap_or(0));
        // The table with history has no tags: an entry is used whenever it has a target.
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
            // Never 0, the tag of an empty entry.
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
                // An entry is of use only where the shorter history would have predicted otherwise.
                if prediction.taken != prediction.otherwise {
                    let useful = if prediction.taken == taken {
                        entry.useful + 1
                    } else {
                        entry.useful.saturating_sub(1)
                    };
                    // Two bits, as in TAGE.
                    entry.useful = useful.min(3);
                }
                // Three bits, from −4 to 3.
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

    /// Replaces an entry of a table with a longer history, after a misprediction.
    fn allocate(&mut self, prediction: &Prediction, taken: bool) {
        let first = prediction.provider.map_or(0, |table| table + 1);
        // In one of four allocations the second free entry, so that branches do not evict each
        // other for ever.
        // The linear congruential generator of Numerical Recipes; its upper bits vary best.
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let skip = usize::from(self.random >> 30 == 0);
        let mut free = (first..LENGTHS.len())
            .filter(|table| self.tables[*table][prediction.index[*table]].useful == 0);
        let first_free = free.clone().next();
        match free.nth(skip).or(first_free) {
            Some(table) => {
                // The weakest counter of the branch's direction.
                let counter = if taken { 0 } else { -1 };
                let entry = PredictorEntry { tag: prediction.tag[table], counter, useful: 0 };
                self.tables[table][prediction.index[table]] = entry;
            }
            None => {
                // All entries are of use: they lose some, so that one can be replaced later.
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
    // Fewer than 32 bits, so the number fits.
    usize::try_from(value & ((1 << bits) - 1)).unwrap_or(0)
}

/// Hash of an address, whose low bits vary little (Fibonacci hashing).
fn mix(value: u64) -> u64 {
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
}

/// `counter` one step up or down, saturating at `-(most + 1)` and `most`.
fn step(counter: i8, up: bool, most: i8) -> i8 {
    if up { (counter + 1).min(most) } else { (counter - 1).max(-most - 1) }
}
