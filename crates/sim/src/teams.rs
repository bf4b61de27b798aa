//! Threads of jobs at barriers, and the turns that they hold.

/// State of a task among the threads of its job.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TeamMember {
    /// Arrivals at the barrier in this run of its job.
    pub arrived: u64,
    /// Whether the task waits at the barrier, or for its turn.
    pub waits: bool,
    /// Turns held; only where threads take turns.
    pub turns: u32,
}

impl TeamMember {
    /// Notes that the task has arrived at the barrier, where it waits.
    pub fn arrive(&mut self) {
        self.arrived += 1;
        self.waits = true;
    }

    /// Ends the wait of the task. Whether it waited.
    pub fn go_on(&mut self) -> bool {
        std::mem::take(&mut self.waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_and_waits_are_of_a_task() {
        let mut team = [TeamMember { turns: 1, ..TeamMember::default() }; 2];
        team[1].arrive();
        assert!(team[1].waits && !team[0].waits && team[1].go_on() && !team[1].go_on());
        assert_eq!((team[1].arrived, team[0].arrived), (1, 0));
    }
}
