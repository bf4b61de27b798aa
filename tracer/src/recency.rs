//! Cache lines in the order of their last use, with the number of lines used since.

/// A cache line of the program's memory: the address divided by the line size, and a written flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLine(u64);

impl CacheLine {
    /// Line `number`, the address divided by the line size.
    pub const fn new(number: u64, written: bool) -> Self {
        Self(number << 1 | written as u64)
    }

    /// Address divided by the line size.
    pub const fn number(self) -> u64 {
        self.0 >> 1
    }

    /// True if the line was written to.
    pub const fn is_written(self) -> bool {
        self.0 & 1 != 0
    }

    /// True if both are the same line, whatever the flags.
    pub const fn is(self, other: Self) -> bool {
        // Only the lowest bit, the flag, may differ.
        self.0 ^ other.0 < 2
    }

    /// The same line, with the flag of either.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | (other.0 & 1))
    }
}

/// A line known to a [`Recency`]. Valid until the line is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeIdx(u32);

/// Absent node, and absent place.
const NONE: u32 = u32::MAX;
/// Words of `taken`, of 64 places each, that share a sum.
const GROUP: usize = 64;

/// A set of known lines, some of which are in an order with the most recently put line on top.
///
/// Each line in the order has a place; a line put later has a higher place. Bits mark taken places,
/// and sums over 64 and over 4,096 places speed up the count of lines above a place. When the
/// highest place is taken, all lines move down together.
pub struct Recency {
    /// Nodes of a hash table with chains, and of the list of free nodes.
    known: Vec<RecencyNode>,
    /// First node of each chain, by hash.
    heads: Vec<u32>,
    /// First node of the list of free nodes.
    free: u32,
    /// Node at each place.
    places: Vec<u32>,
    /// One bit per place, set if a line is there.
    taken: Vec<u64>,
    /// Number of bits in each word of `taken`.
    in_word: Vec<u8>,
    /// Number of bits in each group of words.
    in_group: Vec<u32>,
    /// Number of lines in the order.
    len: usize,
    /// Place of the next line on top.
    next: usize,
    /// Index into `taken`; all words below are 0.
    lowest: usize,
}

struct RecencyNode {
    line: CacheLine,
    /// Next node of the chain or of the free list.
    next: u32,
    place: u32,
}

impl Recency {
    /// An order of at most `most` lines; one more is allowed between `put` and `lift`.
    pub fn new(most: usize) -> Self {
        // With four places per line, a move of all lines costs a step per three lines put.
        let words = (4 * most).div_ceil(64) + 1;
        Self {
            known: Vec::new(),
            // A power of two, for the mask in `head`, and twice the lines, for short chains.
            heads: vec![NONE; 2 * most.next_power_of_two()],
            free: NONE,
            places: vec![NONE; 64 * words],
            taken: vec![0; words],
            in_word: vec![0; words],
            in_group: vec![0; words.div_ceil(GROUP)],
            len: 0,
            next: 0,
            lowest: 0,
        }
    }

    /// Number of lines in the order.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Finds the known line `number`.
    pub fn find(&self, number: u64) -> Option<NodeIdx> {
        let mut at = self.heads[self.head(number)];
        while let Some(node) = self.known.get(at as usize) {
            if node.line.number() == number {
                return Some(NodeIdx(at));
            }
            at = node.next;
        }
        None
    }

    /// Adds `line`, which must not be known, outside of the order.
    pub fn know(&mut self, line: CacheLine) -> NodeIdx {
        let head = self.head(line.number());
        let node = RecencyNode { line, next: self.heads[head], place: NONE };
        let at = self.free;
        if let Some(free) = self.known.get_mut(at as usize) {
            self.free = free.next;
            *free = node;
            self.heads[head] = at;
        } else {
            self.heads[head] = index(self.known.len());
            self.known.push(node);
        }
        NodeIdx(self.heads[head])
    }

    /// Removes a known line that is not in the order, and returns the line.
    pub fn forget(&mut self, known: NodeIdx) -> CacheLine {
        let RecencyNode { line, next, .. } = self.known[known.0 as usize];
        let head = self.head(line.number());
        if self.heads[head] == known.0 {
            self.heads[head] = next;
        } else {
            let mut at = self.heads[head];
            while self.known[at as usize].next != known.0 {
                at = self.known[at as usize].next;
            }
            self.known[at as usize].next = next;
        }
        self.known[known.0 as usize].next = self.free;
        self.free = known.0;
        line
    }

    /// Takes a line out of the order, and returns the line and the number of lines above it.
    pub fn lift(&mut self, known: NodeIdx) -> (CacheLine, usize) {
        let RecencyNode { line, place, .. } = self.known[known.0 as usize];
        let place = place as usize;
        let above = self.above(place);
        self.known[known.0 as usize].place = NONE;
        self.taken[place / 64] &= !(1 << (place % 64));
        self.in_word[place / 64] -= 1;
        self.in_group[place / 64 / GROUP] -= 1;
        self.len -= 1;
        (line, above)
    }

    /// Puts a known line, which must not be in the order, on top, and replaces its value by `line`.
    pub fn put(&mut self, known: NodeIdx, line: CacheLine) {
        if self.next == self.places.len() {
            self.move_down();
        }
        let place = self.next;
        self.next += 1;
        self.known[known.0 as usize].line = line;
        self.set(place, known.0);
    }

    /// The least recently put line of the order; `None` if the order is empty.
    pub fn lowest(&mut self) -> Option<NodeIdx> {
        let from = self.lowest;
        self.lowest += self.taken[from..].iter().position(|word| *word != 0)?;
        let bit = self.taken[self.lowest].trailing_zeros() as usize;
        Some(NodeIdx(self.places[64 * self.lowest + bit]))
    }

    /// Removes the lines of the order for whose numbers `wanted` is false.
    pub fn keep(&mut self, wanted: impl Fn(u64) -> bool) {
        for place in 0..self.next {
            let known = NodeIdx(self.places[place]);
            if self.is_taken(place) && !wanted(self.known[known.0 as usize].line.number()) {
                self.lift(known);
                self.forget(known);
            }
        }
    }

    /// Moves all lines to the lowest places, in the same order.
    fn move_down(&mut self) {
        let lines: Vec<u32> = (0..self.next)
            .filter(|place| self.is_taken(*place))
            .map(|place| self.places[place])
            .collect();
        self.taken.fill(0);
        self.in_word.fill(0);
        self.in_group.fill(0);
        self.len = 0;
        self.next = lines.len();
        self.lowest = 0;
        for (place, known) in lines.into_iter().enumerate() {
            self.set(place, known);
        }
    }

    fn is_taken(&self, place: usize) -> bool {
        self.taken[place / 64] & (1 << (place % 64)) != 0
    }

    fn set(&mut self, place: usize, known: u32) {
        self.places[place] = known;
        self.known[known as usize].place = index(place);
        self.taken[place / 64] |= 1 << (place % 64);
        self.in_word[place / 64] += 1;
        self.in_group[place / 64 / GROUP] += 1;
        self.len += 1;
    }

    /// Number of taken places above `place`.
    fn above(&self, place: usize) -> usize {
        let word = place / 64;
        let group = word / GROUP;
        let top = self.next.div_ceil(64);
        let end = top.min((group + 1) * GROUP);
        // Places of the same word, words of the same group, and whole groups.
        // `!1` shifted has the bits above the place, without its own.
        let bits = (self.taken[word] & (!1 << (place % 64))).count_ones();
        let words: u32 = self.in_word[word + 1..end].iter().map(|count| u32::from(*count)).sum();
        let groups: u32 = self.in_group[group + 1..top.div_ceil(GROUP)].iter().sum();
        (bits + words + groups) as usize
    }

    fn head(&self, number: u64) -> usize {
        // Fibonacci hashing (Knuth). The upper 32 bits suffice: there are fewer heads than 2^32.
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.heads.len() - 1)
    }
}

/// `number` as an index; there are far fewer than 2^32 places and nodes.
fn index(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(NONE)
}

/// Spreads a number over all bits: the finishing step of SplitMix64 (Steele, Lea, Flood 2014).
pub const fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
