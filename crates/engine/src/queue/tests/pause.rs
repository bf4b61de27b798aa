//! Quanta of which nothing is learned: those that take far longer than they should, and those that take no time.

use super::*;

/// A host with quanta that take so much longer, one after the other.
struct Late {
    scripted: Scripted,
    by: Vec<Nanos>,
}

impl Host for Late {
    fn machine(&self) -> &Machine {
        self.scripted.machine()
    }

    fn usable(&self) -> &[PuNr] {
        self.scripted.usable()
    }

    fn request(&mut self, requests: &[Request<'_>]) -> Vec<Grant> {
        self.scripted.request(requests)
    }

    fn run_quantum(&mut self, plan: &Plan, quantum: Nanos) -> Result<Observation, HostError> {
        if quantum > Nanos::ZERO && !self.by.is_empty() {
            self.scripted.at += self.by.remove(0);
        }
        let mut seen = self.scripted.run_quantum(plan, quantum)?;
        seen.tasks.iter_mut().for_each(|task| task.waited = Some(Nanos::ZERO));
        Ok(seen)
    }
}

/// The kernel's; remembers which jobs had just run, which were runnable, and the quanta.
#[derive(Debug, Default)]
struct Pupil {
    just_ran: Vec<bool>,
    runnable: Vec<Option<f64>>,
    heard: Vec<(u64, usize)>,
}

impl Policy for Pupil {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        self.heard.extend(evidence.last.map(|done| (done.took.0, done.did.len())));
        let last = evidence.now.queue.iter().find(|job| job.job == JobIdx(5)).unwrap();
        self.just_ran.push(last.just_ran);
        self.runnable.push(last.runnable);
        evidence.leave_to_kernel()
    }
}

/// Six jobs, of which one ends after each quantum. The second quantum takes three times as long as it should, and
/// counts; the third one ten minutes, which the policy does not get. Its counts are in the report.
#[test]
fn a_pause_teaches_nothing() {
    let by = vec![Nanos(0), Nanos(200), Nanos::from_secs(600)];
    let mut host = Late { scripted: Scripted::new(6), by };
    let mut pupil = Pupil::default();
    let mut watched = Vec::new();
    let mut look = |turn: &Round<'_>| watched.push((turn.did.len(), turn.runnable.len()));
    schedule(&mut host, &mut pupil, 6, &mut look);
    assert_eq!(pupil.heard, [(100, 6), (300, 5), (0, 0), (100, 3), (100, 2)]);
    assert_eq!(pupil.just_ran, [false, true, true, false, true, true]);
    let third = Some(1.0 / 3.0);
    assert_eq!(pupil.runnable, [None, Some(1.0), third, third, Some(1.0), Some(1.0)]);
    assert_eq!(watched, [(6, 6), (5, 5), (4, 0), (3, 3), (2, 2), (1, 1)]);
}

/// Ten minutes instead of 100 ns in which a thread computed or waited for a PU for nine were no pause, also where it did
/// neither for the rest; five of them were.
#[test]
fn a_late_loop_still_learns() {
    let host = Scripted::new(1);
    let at = |minutes: [u64; 3]| {
        let [at, used, waited] = minutes.map(|minutes| Nanos::from_secs(60 * minutes));
        let task =
            SeenTask { cpu_time: Some(used), waited: Some(waited), ended: None, ..host.seen(0) };
        Observation {
            at,
            end: QuantumEnd::Elapsed,
            tasks: vec![task],
            ended: vec![],
            moved: vec![],
            reports: SourceReports::NONE,
        }
    };
    let choices = left_to_kernel(1);
    let teaches = |of: [u64; 3]| {
        let (before, after) = (at([0; 3]), at(of));
        passed(&choices, &host.machine, &before, &after).teaches()
    };
    assert_eq!([[10, 9, 0], [10, 4, 5], [10, 3, 2]].map(teaches), [true, true, false]);
}

/// Of two jobs the head is chosen for what becomes a pause: it goes to the tail all the same, and a thread of it that
/// was created meanwhile wants a context.
#[test]
fn a_pause_counts_as_a_turn() {
    let host = Scripted::new(2);
    let observation = |at: Nanos, orders: &[u32]| {
        let mut tasks = vec![host.seen(1); orders.len()];
        tasks.iter_mut().zip(orders).for_each(|(task, &order)| task.id.order = order);
        tasks.insert(0, host.seen(0));
        tasks.iter_mut().for_each(|task| task.ended = None);
        Observation {
            at,
            end: QuantumEnd::Elapsed,
            tasks,
            ended: vec![],
            moved: vec![],
            reports: SourceReports::NONE,
        }
    };
    let (before, after) =
        (observation(Nanos::ZERO, &[0]), observation(Nanos::from_secs(600), &[0, 1]));
    let mut queue = JobQueue::default();
    queue.note_jobs(&before);
    queue.order.swap(0, 1);
    queue.note(&passed(&ran(1, &[None]), &host.machine, &before, &after));
    let queued: Vec<(u32, usize)> =
        queue.queued(&after).iter().map(|job| (job.job.0, job.threads.len())).collect();
    assert_eq!(queued, [(0, 1), (1, 2)]);
}

/// The machine may change before a quantum has begun. How many threads were runnable for no time is unknown; what
/// is known of the quantum before stays.
#[test]
fn no_time_teaches_nothing() {
    let (first, second) = threads(&[(100, Some(0)), (0, Some(0))]);
    let mut queue = JobQueue::default();
    queue.note_jobs(&first);
    queue.note(&passed(&left_to_kernel(2), &machine(), &first, &second));
    let known = queue.queued(&second);
    assert_eq!(
        (known[0].just_ran, known[0].runnable, known[0].threads.len()),
        (true, Some(1.0), 1)
    );
    queue.note(&passed(&left_to_kernel(2), &machine(), &second, &second));
    let after = queue.queued(&second);
    assert_eq!(after, [QueuedJob { just_ran: false, ..known[0].clone() }]);
}
