//! Results of the last search by PU, the start of the next search.

use crate::phase::Demand;
use crate::system::PlacedTask;
use colocate_machine::PuIdx;
use colocate_machine::performance::PortSet;

/// Last task on a PU, and its result.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    pub demand: Copied,
    /// Port cycles per instruction.
    pub port_cycles: f64,
    /// Instructions per cycle; 0 if unknown.
    pub ipc: f64,
    /// Rate at `overlap` 0.
    pub by_chance: f64,
    /// Cycles per instruction without stalls.
    pub busy: f64,
}

/// Copy of a demand, in reused memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Copied {
    figures: [f64; 7],
    ports: Vec<(PortSet, f64)>,
    misses: Vec<(f64, f64)>,
}

const fn figures(demand: &Demand) -> [f64; 7] {
    [
        demand.slots,
        demand.dependent_cycles,
        demand.dependent_cycles_divided,
        demand.stall_cycles,
        demand.parallel_misses,
        demand.written_back,
        demand.shared_lines,
    ]
}

impl Copied {
    pub fn is(&self, demand: &Demand) -> bool {
        // Exactly equal: a demand that differs slightly has another result.
        self.figures == figures(demand)
            && self.ports == demand.ports
            && self.misses == demand.misses.points()
    }

    pub fn set(&mut self, demand: &Demand) {
        self.figures = figures(demand);
        self.ports.clear();
        self.ports.extend_from_slice(&demand.ports);
        self.misses.clear();
        self.misses.extend_from_slice(demand.misses.points());
    }
}

/// Placement of the tasks: the seats without demands.
#[derive(Clone, Debug, Default)]
pub(super) struct Seating {
    /// Whether a placement is set.
    known: bool,
    seats: Vec<Seated>,
    pages: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Seated {
    pu: PuIdx,
    space: u32,
    /// Whether the task reads lines modified by others of its address space.
    reads: bool,
    /// Number of the seat's entries in `pages`.
    pages: usize,
}

impl Seated {
    fn of(seat: &PlacedTask<'_>) -> Self {
        let reads = seat.demand.shared_lines > 0.0;
        Self { pu: seat.pu, space: seat.space, reads, pages: seat.pages.len() }
    }
}

impl Seating {
    pub fn is(&self, seats: &[PlacedTask<'_>]) -> bool {
        let mut pages = &self.pages[..];
        // Without `known`, an unset placement would equal that of no seats.
        self.known
            && self.seats.len() == seats.len()
            && self.seats.iter().zip(seats).all(|(seated, seat)| {
                *seated == Seated::of(seat) && {
                    // `pages` has the shares of all seats, one seat after the other.
                    let (its, others) = pages.split_at(seated.pages);
                    pages = others;
                    its == seat.pages
                }
            })
    }

    /// Whether `seats` have the same PUs in the same order.
    pub(crate) fn is_on_pus_of(&self, seats: &[PlacedTask<'_>]) -> bool {
        self.known && self.seats.iter().map(|seated| seated.pu).eq(seats.iter().map(|seat| seat.pu))
    }

    pub fn set(&mut self, seats: &[PlacedTask<'_>]) {
        self.known = true;
        self.seats.clear();
        self.seats.extend(seats.iter().map(Seated::of));
        self.pages.clear();
        seats.iter().for_each(|seat| self.pages.extend_from_slice(seat.pages));
    }
}
