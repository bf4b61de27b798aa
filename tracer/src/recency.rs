//! Lines in the order of their last use, which says how much else was used since.

/// A line of the program's memory: its address by the line's size, and whether it was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line(u64);

impl Line {
    /// The line numbered `number`.
    pub const fn new(number: u64, written: bool) -> Self {
        Self(number << 1 | written as u64)
    }

    /// Its number.
    pub const fn number(self) -> u64 {
        self.0 >> 1
    }

    /// Whether it was written to.
    pub const fn is_written(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether it is the same line, written to or not.
    pub const fn is(self, other: Self) -> bool {
        self.0 ^ other.0 < 2
    }

    /// The same line, written to if either is.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | (other.0 & 1))
    }
}

/// A line that a [`Recency`] knows. Valid until it is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeIdx(u32);

/// No known line, and no place.
const NONE: u32 = u32::MAX;
/// Words of 64 places that have a sum of their own.
const GROUP: usize = 64;

/// A set of known lines, of which some lie in an order: each on top when it is put there.
///
/// Lines have places that rise with the order in which they came. A bit says which places are taken, and
/// sums of 64 and of 4,096 places make it quick to count how many lie above one of them. When no place
/// is left above, the lines move down together.
pub struct Recency {
    known: Vec<Node>,
    /// The first of those whose hash is the same, each of which names the next.
    heads: Vec<u32>,
    /// The first node that is free, and names the next one.
    free: u32,
    /// What is in each place.
    places: Vec<u32>,
    /// One bit for each place that is taken.
    taken: Vec<u64>,
    /// How many bits each word of `taken` has, and how many each group of words.
    in_word: Vec<u8>,
    in_group: Vec<u32>,
    /// How many lie in the order.
    len: usize,
    /// The next place on top.
    next: usize,
    /// No word of `taken` below it has a bit.
    lowest: usize,
}

struct Node {
    line: Line,
    next: u32,
    place: u32,
}

impl Recency {
    /// Of at most `most` lines in the order; one more may lie there for a moment.
    pub fn new(most: usize) -> Self {
        // With four places for each, moving them down costs one step for three that were put on top.
        let words = (4 * most).div_ceil(64) + 1;
        Self {
            known: Vec::new(),
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

    /// How many lines lie in the order.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The known line numbered `number`.
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

    /// Knows `line`, which must not be known, from now on.
    pub fn know(&mut self, line: Line) -> NodeIdx {
        let head = self.head(line.number());
        let node = Node { line, next: self.heads[head], place: NONE };
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

    /// Forgets a line that does not lie in the order; what it was.
    pub fn forget(&mut self, known: NodeIdx) -> Line {
        let Node { line, next, .. } = self.known[known.0 as usize];
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

    /// Takes a line out of the order: what it is, and how many lay above it.
    pub fn lift(&mut self, known: NodeIdx) -> (Line, usize) {
        let Node { line, place, .. } = self.known[known.0 as usize];
        let place = place as usize;
        let above = self.above(place);
        self.known[known.0 as usize].place = NONE;
        self.taken[place / 64] &= !(1 << (place % 64));
        self.in_word[place / 64] -= 1;
        self.in_group[place / 64 / GROUP] -= 1;
        self.len -= 1;
        (line, above)
    }

    /// Puts a known line, which must not lie in the order, on top of it, as `line`.
    pub fn put(&mut self, known: NodeIdx, line: Line) {
        if self.next == self.places.len() {
            self.move_down();
        }
        let place = self.next;
        self.next += 1;
        self.known[known.0 as usize].line = line;
        self.set(place, known.0);
    }

    /// The line at the bottom of the order.
    pub fn lowest(&mut self) -> Option<NodeIdx> {
        let from = self.lowest;
        self.lowest += self.taken[from..].iter().position(|word| *word != 0)?;
        let bit = self.taken[self.lowest].trailing_zeros() as usize;
        Some(NodeIdx(self.places[64 * self.lowest + bit]))
    }

    /// Forgets the lines of the order that `wanted` does not name.
    pub fn keep(&mut self, wanted: impl Fn(u64) -> bool) {
        for place in 0..self.next {
            let known = NodeIdx(self.places[place]);
            let lies = self.taken[place / 64] & (1 << (place % 64)) != 0;
            if lies && !wanted(self.known[known.0 as usize].line.number()) {
                self.lift(known);
                self.forget(known);
            }
        }
    }

    fn move_down(&mut self) {
        let lying: Vec<u32> = (0..self.next)
            .filter(|place| self.taken[place / 64] & (1 << (place % 64)) != 0)
            .map(|place| self.places[place])
            .collect();
        self.taken.fill(0);
        self.in_word.fill(0);
        self.in_group.fill(0);
        (self.len, self.next, self.lowest) = (0, lying.len(), 0);
        for (place, known) in lying.into_iter().enumerate() {
            self.set(place, known);
        }
    }

    fn set(&mut self, place: usize, known: u32) {
        self.places[place] = known;
        self.known[known as usize].place = index(place);
        self.taken[place / 64] |= 1 << (place % 64);
        self.in_word[place / 64] += 1;
        self.in_group[place / 64 / GROUP] += 1;
        self.len += 1;
    }

    /// How many places above `place` are taken.
    fn above(&self, place: usize) -> usize {
        let word = place / 64;
        let group = word / GROUP;
        let top = self.next.div_ceil(64);
        let end = top.min((group + 1) * GROUP);
        let bits = (self.taken[word] & (!1 << (place % 64))).count_ones();
        let words: u32 = self.in_word[word + 1..end].iter().map(|count| u32::from(*count)).sum();
        let groups: u32 = self.in_group[group + 1..top.div_ceil(GROUP)].iter().sum();
        (bits + words + groups) as usize
    }

    fn head(&self, number: u64) -> usize {
        // Spread by the golden ratio (Knuth); there are fewer heads than 2^32.
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.heads.len() - 1)
    }
}

/// `number` as a place; there are far fewer than 2^32.
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
