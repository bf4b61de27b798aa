//! The eBPF program on this kernel: what it counts of threads whose wake-ups are known.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use colocate_ebpf::{EbpfError, EbpfProgram, Follow, OTHERS, PairCounts, SchedulingState, Turns};
use colocate_testing::need;
use colocate_testing::skip::{Missing, Requirement};
use std::hint::spin_loop;
use std::io::{Read, Write, pipe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A watch, which this build, this user or this kernel may not have.
fn watch() -> Result<EbpfProgram, Missing> {
    started(EbpfProgram::start(Follow { pairs: true, phases: true }))
}

fn started(watch: Result<EbpfProgram, EbpfError>) -> Result<EbpfProgram, Missing> {
    watch.map_err(|why| {
        assert!(why == EbpfError::NotBuilt || !may_load(), "{why}");
        Requirement::Ebpf.missing(why)
    })
}

/// Whether this user has `CAP_PERFMON` and `CAP_BPF` (linux/capability.h), and the kernel type information.
fn may_load() -> bool {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let wanted = 1 << 38 | 1 << 39;
    let has_them = u64::from_str_radix(line.trim(), 16).unwrap() & wanted == wanted;
    has_them && std::path::Path::new("/sys/kernel/btf/vmlinux").exists()
}

fn my_tid() -> u32 {
    rustix::thread::gettid().as_raw_pid().cast_unsigned()
}

/// How often this thread has gone to sleep, as the kernel counts it: each time something has woken it.
fn slept() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// What was counted of one pair.
fn of(counts: &[PairCounts], waker: u32, wakee: u32) -> PairCounts {
    let found = counts.iter().find(|it| (it.waker, it.wakee) == (waker, wakee));
    found.copied().unwrap_or_default()
}

/// Passes a byte to another thread and back `rounds` times; that thread's number, and how often it slept. Each waits for the
/// other.
fn play(rounds: usize) -> (u32, u64) {
    let ((mut from_me, mut to_other), (mut from_other, mut to_me)) =
        (pipe().unwrap(), pipe().unwrap());
    let other = thread::spawn(move || {
        let mut byte = [0];
        to_me.write_all(&my_tid().to_ne_bytes()).unwrap();
        while from_me.read(&mut byte).unwrap() > 0 {
            to_me.write_all(&byte).unwrap();
        }
        slept()
    });
    let mut tid = [0; 4];
    from_other.read_exact(&mut tid).unwrap();
    for _ in 0..rounds {
        to_other.write_all(&[1]).unwrap();
        from_other.read_exact(&mut [0]).unwrap();
    }
    drop(to_other);
    (u32::from_ne_bytes(tid), other.join().unwrap())
}

/// Two threads that wait for each other: each time that one goes to sleep the other wakes it. What is created by a watched
/// thread is watched. One of the two may rarely sleep: where both have one PU, what it waits for is there when it runs again.
#[test]
fn threads_that_wait_for_each_other() {
    let watch = need!(watch());
    watch.add(my_tid(), 0).unwrap();
    let before = slept();
    let (other, other_slept) = play(2_000);
    let slept = slept() - before;
    let counts = watch.take().unwrap();
    for (waker, wakee, slept) in [(other, my_tid(), slept), (my_tid(), other, other_slept)] {
        let woken: u64 = counts.iter().filter(|it| it.wakee == wakee).map(|it| it.count).sum();
        assert!(
            woken.abs_diff(slept) <= 2,
            "{wakee}: {woken} times woken, {slept} slept: {counts:?}"
        );
        let pair = of(&counts, waker, wakee);
        assert!(pair.count + 10 > woken && pair.same_pu <= pair.count, "{counts:?}");
        assert!(pair.count == 0 || pair.waited_ns > 0, "{pair:?}");
    }
    assert!(counts.iter().map(|it| it.count).sum::<u64>() >= 5, "{counts:?}");
    assert!(watch.take().unwrap().iter().all(|it| it.count == 0), "it was taken");
    assert_eq!(watch.lost().unwrap(), Default::default());
}

/// On one PU no two threads run at the same time, and each wakee is where its waker was.
#[test]
fn on_one_pu() {
    let watch = need!(watch());
    let done = thread::spawn(move || {
        let first = rustix::thread::sched_getaffinity(None).unwrap();
        let mut one = rustix::thread::CpuSet::new();
        one.set((0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| first.is_set(*cpu)).unwrap());
        rustix::thread::sched_setaffinity(None, &one).unwrap();
        watch.add(my_tid(), 0).unwrap();
        let (other, _) = play(500);
        let counts = watch.take().unwrap();
        // One of the two may never sleep: what it waits for is there whenever it has its PU again.
        assert!(counts.iter().map(|it| it.count).sum::<u64>() >= 5, "{counts:?}");
        for (waker, wakee) in [(my_tid(), other), (other, my_tid())] {
            let pair = of(&counts, waker, wakee);
            assert_eq!((pair.same_pu, pair.both_ran_ns), (pair.count, 0), "{pair:?}");
            assert_eq!((pair.apart, pair.together.count <= pair.count), (Turns::default(), true));
        }
        assert!(counts.iter().any(|pair| pair.together.ns > 0), "{counts:?}");
    });
    done.join().unwrap();
}

/// Counts of a thread that computes before each of 40 answers, and how long all took, in nanoseconds.
fn answered_after(watch: &EbpfProgram, work: Duration) -> (PairCounts, u128) {
    watch.add(my_tid(), 0).unwrap();
    let ((mut from_me, mut to_other), (mut from_other, mut to_me)) =
        (pipe().unwrap(), pipe().unwrap());
    let begun = Instant::now();
    let other = thread::spawn(move || {
        let mut byte = [0];
        while from_me.read(&mut byte).unwrap() > 0 {
            spin_for(work);
            to_me.write_all(&byte).unwrap();
        }
        my_tid()
    });
    for _ in 0..40 {
        // So that the other one sleeps as well.
        thread::sleep(work);
        to_other.write_all(&[1]).unwrap();
        from_other.read_exact(&mut [0]).unwrap();
    }
    let passed = begun.elapsed().as_nanos();
    drop(to_other);
    let other = other.join().unwrap();
    (of(&watch.take().unwrap(), my_tid(), other), passed)
}

/// A thread that computes for 0.2 ms before each answer has turns at least as long, and one at a time. Turns above 2 ms do not count.
#[test]
fn turns_have_the_work_before_the_answer() {
    let watch = need!(watch());
    let work = Duration::from_micros(200);
    let (pair, passed) = answered_after(&watch, work);
    let turns = pair.apart.count + pair.together.count;
    let total = u128::from(pair.apart.ns + pair.together.ns);
    // On a busy PU the other one may be handed its next byte before it sleeps, and is then not woken, or be displaced for longer
    // than a turn may last. The last turn is added with the next one. The end of the pipe wakes the other one too, if it sleeps by then.
    assert!((5..=41).contains(&pair.count), "{pair:?}");
    assert!((pair.count / 2..=pair.count).contains(&turns), "{pair:?}");
    assert!(total >= u128::from(turns) * work.as_nanos() && total <= passed, "{pair:?} {passed}");
    let (pair, _) = answered_after(&watch, Duration::from_micros(2_100));
    assert_eq!((pair.apart, pair.together), (Turns::default(), Turns::default()));
}

/// What finds no room is counted: threads that are created beyond it, and wake-ups of pairs.
#[test]
fn what_finds_no_room() {
    let watch = need!(started(EbpfProgram::with_room(Follow { pairs: true, phases: false }, 8)));
    watch.add(my_tid(), 0).unwrap();
    let (done, end) = (AtomicBool::new(false), Duration::from_millis(1));
    thread::scope(|scope| {
        let sleeps = || {
            while !done.load(Ordering::Relaxed) {
                thread::sleep(end)
            }
        };
        let all = [(); 30].map(|()| scope.spawn(sleeps));
        thread::sleep(20 * end);
        done.store(true, Ordering::Relaxed);
        all.into_iter().for_each(|it| it.join().unwrap());
    });
    let lost = watch.lost().unwrap();
    assert!((23..=30).contains(&lost.tasks), "{lost:?}");
    // Threads that are followed have woken this one or slept; each pair that there is room for is counted.
    assert!(watch.take().unwrap().len() <= 8);
}

/// Of threads that are not watched nothing is counted, and what they wake was woken by others.
#[test]
fn others_are_not_counted() {
    let watch = need!(watch());
    let (mut from_watched, mut to_other) = pipe().unwrap();
    let (mut from_other, mut to_watched) = pipe().unwrap();
    let other = thread::spawn(move || {
        let mut byte = [0];
        while from_watched.read(&mut byte).unwrap() > 0 {
            to_watched.write_all(&byte).unwrap();
        }
    });
    // After the other was created.
    watch.add(my_tid(), 0).unwrap();
    let before = slept();
    for _ in 0..500 {
        to_other.write_all(&[1]).unwrap();
        from_other.read_exact(&mut [0]).unwrap();
    }
    let slept = slept() - before;
    drop(to_other);
    other.join().unwrap();
    let counts = watch.take().unwrap();
    assert!(counts.iter().all(|it| it.waker == OTHERS && it.wakee == my_tid()), "{counts:?}");
    let woken = of(&counts, OTHERS, my_tid()).count;
    assert!(woken.abs_diff(slept) <= 3, "{woken} times woken, {slept} times slept: {counts:?}");
}

/// A thread that sleeps is woken by a timer, not by what runs when that expires, and that is a watched thread here.
#[test]
fn timers_are_others() {
    let watch = need!(watch());
    watch.add(my_tid(), 0).unwrap();
    let done = AtomicBool::new(false);
    let sleeper = thread::scope(|scope| {
        let busy = [(); 4].map(|()| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    spin_loop()
                }
            })
        });
        let sleeper = scope.spawn(|| {
            (0..100).for_each(|_| thread::sleep(Duration::from_millis(2)));
            my_tid()
        });
        let sleeper = sleeper.join().unwrap();
        done.store(true, Ordering::Relaxed);
        busy.into_iter().for_each(|it| it.join().unwrap());
        sleeper
    });
    let counts = watch.take().unwrap();
    let woken = counts.iter().filter(|it| it.wakee == sleeper);
    let (by_others, by_watched): (Vec<_>, Vec<_>) = woken.partition(|it| it.waker == OTHERS);
    let sum = |of: &[&PairCounts]| of.iter().map(|it| it.count).sum::<u64>();
    // One may be due before the thread sleeps.
    assert!((90..=102).contains(&sum(&by_others)) && sum(&by_watched) <= 3, "{counts:?}");
}

fn spin_for(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        spin_loop()
    }
}

/// What is known of a thread after it has computed, has slept, and computes again, beside what the kernel says of it.
#[test]
fn times_of_a_thread() {
    let watch = need!(watch());
    watch.add(my_tid(), 0).unwrap();
    let find = |tid| watch.times(tid).unwrap();
    thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = scope.spawn(move || {
            spin_for(Duration::from_millis(30));
            send.send(my_tid()).unwrap();
            wait.recv().unwrap();
            send.send(0).unwrap();
            while wait.try_recv().is_err() {
                spin_loop()
            }
        });
        let tid = receive.recv().unwrap();
        let mut asleep = None;
        for _ in 0..1_000 {
            asleep = find(tid).filter(|it| it.state == SchedulingState::Sleeps);
            if asleep.is_some() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
        let kernel: Vec<u64> = text.split_whitespace().map(|sum| sum.parse().unwrap()).collect();
        let asleep = asleep.expect("it sleeps");
        assert_eq!(asleep.ran_ns, kernel[0]);
        assert!(watch.changed().unwrap().contains(&tid));
        assert!(!watch.changed().unwrap().contains(&tid), "it still sleeps");
        assert!(asleep.waited_ns.abs_diff(kernel[1]) < 1_000_000, "{asleep:?} {kernel:?}");
        go.send(()).unwrap();
        receive.recv().unwrap();
        assert!(find(tid).is_some_and(|it| it.state != SchedulingState::Sleeps));
        assert!(watch.changed().unwrap().contains(&tid));
        go.send(()).unwrap();
        thread.join().unwrap();
        assert_eq!(find(tid), None);
    });
}

/// Two threads compute for longer than a phase has to last to be reported, and end; then many times for less.
#[test]
fn phases_that_end() {
    let watch = need!(watch());
    watch.add(my_tid(), 5).unwrap();
    let both = |time| {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || spin_for(time));
            }
        });
    };
    both(Duration::from_millis(40));
    // A thread can be joined before the kernel reports its end.
    let is_reported = (0..1_000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        watch.take_phase_ends()
    });
    assert!(is_reported);
    let begun = Instant::now();
    let reported = (0..100).filter(|_| {
        both(Duration::from_micros(500));
        watch.take_phase_ends()
    });
    let most = |reported| reported as u128 <= begun.elapsed().as_millis() / 20 + 1;
    let reported = reported.count();
    assert!(most(reported), "{reported} in {:?}", begun.elapsed());
}

/// Between two windows nothing is counted, and what happened before a window is not of it.
#[test]
fn windows() {
    let mut watch = need!(watch());
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        (time.tv_sec * 1_000_000_000 + time.tv_nsec).cast_unsigned()
    };
    let sum = |counts: &[PairCounts]| counts.iter().map(|it| it.count).sum::<u64>();
    watch.add(my_tid(), 0).unwrap();
    play(50);
    watch.detach();
    watch.take().unwrap();
    play(500);
    assert_eq!(watch.take().unwrap(), [], "none is open");
    let opened = now();
    watch.follow(opened, opened + 3_600_000_000_000).unwrap();
    let (_, other_slept) = play(500);
    let counts = watch.take().unwrap();
    assert!(sum(&counts) + 2 >= other_slept, "{other_slept}: {counts:?}");
    let passed = now() - opened;
    assert!(counts.iter().all(|it| it.both_ran_ns <= passed), "{passed}: {counts:?}");
    watch.follow(opened, opened + 1).unwrap();
    play(500);
    assert_eq!(watch.take().unwrap(), [], "it was over at the first event");
    watch.follow(now(), u64::MAX).unwrap();
    play(500);
    assert!(sum(&watch.take().unwrap()) >= 5);
}
