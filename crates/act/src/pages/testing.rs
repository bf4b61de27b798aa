//! A process's memory that is not there, with the manners of the kernel's move_pages(2) that
//! [`super::work`] has to bear: calls that give up in the middle, answers that are missing, huge
//! pages that move whole, and a second address of a huge page that is called busy.

use super::Addr;
use super::work::{MovableMemory, PageRange, pieces};
use colocate_linux::SysError;
use colocate_linux::move_pages::{NO_STATUS, Put};
use colocate_machine::{Nanos, NodeNr};
use std::collections::BTreeMap;
use std::io;

/// Bytes in a page.
pub const PAGE_B: u64 = 4096;
/// Pages in a block.
pub const BLOCK: usize = 4;

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestPage {
    /// Small, on that node.
    Small(u32),
    /// Part of a huge page on that node.
    Huge(u32),
    /// On node 0, and other processes have it mapped.
    Shared,
    /// On that node, and held for so many more tries.
    Held {
        /// The node.
        on: u32,
        /// How often moving it fails.
        tries: u32,
    },
    /// On node 0; once moved, it is [`TestPage::Landing`].
    Flying,
    /// On that node, but the next question finds it nowhere.
    Landing(u32),
    /// A device's.
    Device,
    /// Not in memory.
    Absent,
}

/// The memory.
#[derive(Clone, Debug, Default)]
pub struct Pretended {
    /// From address 0 on.
    pub pages: Vec<TestPage>,
    /// How many more pages a node has room for; any number where it is not said.
    pub room: BTreeMap<u32, u64>,
    /// What a page that is moved takes.
    pub cost: Nanos,
    /// After so many calls the process has ended.
    pub ends_after: Option<u32>,
    /// Calls that moved.
    pub puts: u32,
    /// Addresses in them.
    pub asked_to_move: usize,
    /// How often a moment was waited.
    pub pauses: u32,
    now: Nanos,
    calls: u32,
}

impl Pretended {
    /// `0`-`9`: a page on that node; `[0000]`: a huge page; `s` shared, `b` held for ever, `h` held
    /// for one try, `f` nowhere for a moment once it was moved, `x` a device's, `-` not in memory.
    pub fn drawn(picture: &str) -> Self {
        let mut this = Self::default();
        let mut huge = false;
        for letter in picture.chars() {
            let node = letter.to_digit(10);
            match letter {
                '[' | ']' => {
                    huge = letter == '[';
                    continue;
                }
                's' => this.pages.push(TestPage::Shared),
                'b' => this.pages.push(TestPage::Held { on: 0, tries: u32::MAX }),
                'h' => this.pages.push(TestPage::Held { on: 0, tries: 1 }),
                'f' => this.pages.push(TestPage::Flying),
                'x' => this.pages.push(TestPage::Device),
                '-' => this.pages.push(TestPage::Absent),
                _ if huge => this.pages.push(TestPage::Huge(node.unwrap())),
                _ => this.pages.push(TestPage::Small(node.unwrap())),
            }
        }
        this
    }

    pub fn picture(&self) -> String {
        let mut text = String::new();
        for (place, page) in self.pages.iter().enumerate() {
            match page {
                TestPage::Small(node) => text.push_str(&node.to_string()),
                TestPage::Huge(node) => {
                    let open = if place.is_multiple_of(BLOCK) { "[" } else { "" };
                    let close = if place % BLOCK == BLOCK - 1 { "]" } else { "" };
                    text.push_str(&format!("{open}{node}{close}"));
                }
                TestPage::Flying | TestPage::Landing(_) => text.push('f'),
                TestPage::Shared => text.push('s'),
                TestPage::Held { .. } => text.push('b'),
                TestPage::Device => text.push('x'),
                TestPage::Absent => text.push('-'),
            }
        }
        text
    }

    /// Whether every huge page is on one node.
    pub fn is_sound(&self) -> bool {
        self.pages.chunks(BLOCK).all(|block| match block[0] {
            TestPage::Huge(node) => block.iter().all(|page| *page == TestPage::Huge(node)),
            _ => block.iter().all(|page| !matches!(page, TestPage::Huge(_))),
        })
    }

    fn has_huge(&self) -> bool {
        self.pages.iter().any(|page| matches!(page, TestPage::Huge(_)))
    }

    /// The grain of the whole memory, which is one mapping.
    pub fn grain_b(&self) -> u64 {
        if self.has_huge() { PAGE_B * BLOCK as u64 } else { PAGE_B }
    }

    /// The pieces of what is in memory.
    pub fn pieces(&self) -> Vec<PageRange> {
        let block_b = self.has_huge().then_some(PAGE_B * BLOCK as u64);
        let mut found = Vec::new();
        let mut start = 0;
        for run in self.pages.chunk_by(|a, b| (*a == TestPage::Absent) == (*b == TestPage::Absent))
        {
            if run[0] != TestPage::Absent {
                let at = Addr(start as u64 * PAGE_B);
                found.extend(pieces(at, run.len() as u64, PAGE_B, block_b));
            }
            start += run.len();
        }
        found
    }

    /// The node of every page that is on one.
    pub fn places(&self) -> BTreeMap<Addr, u32> {
        let node = |(place, page): (usize, &TestPage)| {
            Some((Addr(place as u64 * PAGE_B), u32::try_from(status(*page)).ok()?))
        };
        self.pages.iter().enumerate().filter_map(node).collect()
    }

    fn place(page: Addr) -> usize {
        usize::try_from(page.0 / PAGE_B).unwrap()
    }

    /// Takes the room for `pages` on `node`, if there is that much.
    fn take_room(&mut self, node: u32, pages: u64) -> bool {
        match self.room.get_mut(&node) {
            Some(room) if *room < pages => false,
            Some(room) => {
                *room -= pages;
                true
            }
            None => true,
        }
    }

    /// Moves what was collected: how many stay, or the end of memory.
    fn flush(&mut self, list: &mut Vec<usize>, node: u32) -> Result<u64, i32> {
        let mut stay = 0;
        for place in std::mem::take(list) {
            self.now += self.cost;
            let block = place / BLOCK * BLOCK;
            let page = self.pages[place];
            match page {
                TestPage::Huge(_) if self.take_room(node, BLOCK as u64) => {
                    self.pages[block..block + BLOCK].fill(TestPage::Huge(node));
                }
                TestPage::Huge(from) => {
                    // No room for it whole: it is split, and moved as far as there is room.
                    self.pages[block..block + BLOCK].fill(TestPage::Small(from));
                    for small in block..block + BLOCK {
                        if !self.take_room(node, 1) {
                            return Err(libc::ENOMEM);
                        }
                        self.pages[small] = TestPage::Small(node);
                    }
                }
                TestPage::Held { on, tries } if tries > 0 => {
                    self.pages[place] = TestPage::Held { on, tries: tries.saturating_sub(1) };
                    if tries == u32::MAX {
                        self.pages[place] = TestPage::Held { on, tries };
                    }
                    stay += 1;
                }
                TestPage::Flying if self.take_room(node, 1) => {
                    self.pages[place] = TestPage::Landing(node)
                }
                _ if self.take_room(node, 1) => self.pages[place] = TestPage::Small(node),
                _ => return Err(libc::ENOMEM),
            }
        }
        Ok(stay)
    }

    fn try_put(&mut self, asked: &[Addr], node: u32, status: &mut [i32]) -> Result<u64, i32> {
        let mut list: Vec<usize> = Vec::new();
        for (index, page) in asked.iter().map(|page| Self::place(*page)).enumerate() {
            let taken = list.iter().any(|other| {
                *other == page
                    || (matches!(self.pages[page], TestPage::Huge(_))
                        && other / BLOCK == page / BLOCK)
            });
            status[index] = match self.pages[page] {
                _ if taken => -libc::EBUSY,
                TestPage::Shared => -libc::EACCES,
                TestPage::Device => -libc::EFAULT,
                TestPage::Absent => -libc::ENOENT,
                TestPage::Small(on) | TestPage::Huge(on) if on == node => node.cast_signed(),
                _ => {
                    list.push(page);
                    continue;
                }
            };
            let stay = self.flush(&mut list, node)?;
            if stay > 0 {
                return Ok(stay + (asked.len() - index - 1) as u64);
            }
        }
        self.flush(&mut list, node)
    }
}

fn status(page: TestPage) -> i32 {
    match page {
        TestPage::Small(on) | TestPage::Huge(on) | TestPage::Held { on, .. } => on.cast_signed(),
        TestPage::Shared | TestPage::Flying => 0,
        TestPage::Device => -libc::EFAULT,
        TestPage::Absent | TestPage::Landing(_) => -libc::ENOENT,
    }
}

fn error(errno: i32) -> SysError {
    SysError { call: "move_pages", source: io::Error::from_raw_os_error(errno) }
}

impl MovableMemory for Pretended {
    fn query(&mut self, pages: &[Addr]) -> Result<Vec<i32>, SysError> {
        self.calls += 1;
        if self.ends_after.is_some_and(|last| self.calls > last) {
            return Err(error(libc::ESRCH));
        }
        let ask = |page: &Addr| {
            let page = &mut self.pages[Self::place(*page)];
            let answer = status(*page);
            if let TestPage::Landing(node) = *page {
                *page = TestPage::Small(node);
            }
            answer
        };
        Ok(pages.iter().map(ask).collect())
    }

    fn put(&mut self, pages: &[Addr], node: NodeNr) -> Put {
        self.calls += 1;
        self.puts += 1;
        self.asked_to_move += pages.len();
        let mut status = vec![NO_STATUS; pages.len()];
        if self.ends_after.is_some_and(|last| self.calls > last) {
            return Put { status, done: Err(error(libc::ESRCH)) };
        }
        let done = self.try_put(pages, node.0, &mut status).map_err(error);
        Put { status, done }
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn pause(&mut self) {
        self.pauses += 1;
    }
}
