//! Threads of jobs at barriers, and the turns that they hold.

use crate::task::TaskNo;

/// State of a task among the threads of its job.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// Arrivals at the barrier in this run of its job.
    arrived: u64,
    /// Whether the task waits at the barrier, or for its turn.
    waits: bool,
    /// Turns held; only where threads take turns.
    turns: u32,
}

/// Barriers and turns of all tasks.
#[derive(Clone, Debug)]
pub(crate) struct Teams {
    /// By task.
    members: Vec<Member>,
}

impl Teams {
    /// Tasks without arrivals or turns.
    pub fn new(tasks: usize) -> Self {
        Self { members: vec![Member::default(); tasks] }
    }

    /// Begins a run of a task with a number of turns.
    pub fn begin(&mut self, task: TaskNo, turns: u32) {
        self.members[task].arrived = 0;
        self.members[task].turns = turns;
    }

    /// Arrivals of a task at the barrier in this run of its job.
    pub fn arrived(&self, task: TaskNo) -> u64 {
        self.members[task].arrived
    }

    /// Notes that a task has arrived at the barrier, where it waits.
    pub fn arrive(&mut self, task: TaskNo) {
        self.members[task].arrived += 1;
        self.members[task].waits = true;
    }

    /// Whether a task waits at the barrier, or for its turn.
    pub fn waits(&self, task: TaskNo) -> bool {
        self.members[task].waits
    }

    /// Begins a wait for a turn.
    pub fn wait(&mut self, task: TaskNo) {
        self.members[task].waits = true;
    }

    /// Ends the wait of a task. Whether it waited.
    pub fn go_on(&mut self, task: TaskNo) -> bool {
        std::mem::take(&mut self.members[task].waits)
    }

    /// Turns held by a task.
    pub fn turns(&self, task: TaskNo) -> u32 {
        self.members[task].turns
    }

    /// Passes turns from a task to another.
    pub fn pass(&mut self, from: TaskNo, to: TaskNo, turns: u32) {
        self.members[from].turns -= turns;
        self.members[to].turns += turns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_and_waits_are_of_a_task() {
        let mut teams = Teams::new(2);
        teams.begin(0, 2);
        teams.pass(0, 1, 1);
        teams.arrive(1);
        assert_eq!([teams.turns(0), teams.turns(1)], [1, 1]);
        assert!(teams.waits(1) && !teams.waits(0) && teams.go_on(1) && !teams.go_on(1));
        assert_eq!(teams.arrived(1), 1);
        teams.begin(1, 0);
        assert_eq!((teams.arrived(1), teams.turns(1)), (0, 0));
    }
}
