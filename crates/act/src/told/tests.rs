//! What programs tell, believed as far as the kernel allows.

use super::*;
use proptest::prelude::*;

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// A thread is born at 1,000 ms and looked at every 100 ms.
///
/// | until   | does                                     | PU + queue | told      | in a loop |
/// |---------|------------------------------------------|------------|-----------|-----------|
/// | 1,100   | works                                    | 100        | 0         | 0         |
/// | 1,200   | works 40, waits 60 in a loop             | 100        | 60        | 60        |
/// | 1,300   | waits, 70 in a loop, then asleep         | 70         | 100       | 70        |
/// | 1,400   | waits asleep                             | 0          | 100       | 0         |
/// | 1,500   | works 50, reads a file for 50            | 50         | 0         | 0         |
/// | 1,600   | waits 50 in a loop, reads a file for 50  | 50         | 50        | 0: unknown |
/// | 1,700   | waits in a loop, for 60 on no PU         | 100        | 100       | 100       |
#[test]
fn a_wait_in_a_loop_and_asleep() {
    let mut loops = Loops::since(ms(1_000));
    let (mut at, mut wanted, mut waited) = (1_000, 0, 0);
    let mut look = |more: (u64, u64)| {
        (at, wanted, waited) = (at + 100, wanted + more.0, waited + more.1);
        loops.look(Look { at: ms(at), waited: ms(waited), wanted: ms(wanted) })
    };
    let quanta = [(100, 0), (100, 60), (70, 100), (0, 100), (50, 0), (50, 50), (100, 100)];
    let sums = [0, 60, 130, 130, 130, 130, 230];
    assert_eq!(quanta.map(&mut look), sums.map(ms));
}

/// A program that executes itself begins anew; a wait that ended since the last look was read short.
#[test]
fn what_is_told_may_go_back() {
    let mut loops = Loops::since(ms(0));
    let look = |at, waited, wanted| Look { at: ms(at), waited: ms(waited), wanted: ms(wanted) };
    assert_eq!(loops.look(look(100, 100, 100)), ms(100));
    assert_eq!(loops.look(look(200, 0, 200)), ms(100));
    assert_eq!(loops.look(look(300, 100, 300)), ms(200));
}

proptest! {
    /// Whatever a program writes: never longer than it could run, and never back.
    #[test]
    fn no_more_than_the_kernel_allows(looks in proptest::collection::vec((0_u64..1_000, any::<u64>(), 0_u64..1_000), 1..20)) {
        let mut loops = Loops::since(ms(0));
        let (mut at, mut wanted, mut before) = (0, 0, Nanos::ZERO);
        for (later, waited, more) in looks {
            (at, wanted) = (at + later, wanted + more);
            let sum = loops.look(Look { at: Nanos(at), waited: Nanos(waited), wanted: Nanos(wanted) });
            prop_assert!(sum >= before && sum <= Nanos(wanted), "{sum:?} of {wanted}");
            before = sum;
        }
    }
}

/// What a thread writes is read, also while its wait goes on; who had the number before is not believed, nor who lives by
/// another clock.
#[test]
fn slots_are_read() {
    let told = Told::new().unwrap();
    let (tid, born, now) = (Tid(4_242), Nanos::from_secs(100), Nanos::from_secs(200));
    assert_eq!(told.waited(tid, born, now), None, "nothing was told");
    let place = told.table().take(4_242, 4_200, Nanos::from_secs(101).0).unwrap();
    let slot = &told.table().slots[place as usize];
    assert_eq!(told.waited(tid, born, now), Some(Nanos::ZERO));
    assert!(slot.begin(Nanos::from_secs(110).0));
    assert!(!slot.begin(Nanos::from_secs(111).0), "a wait in a wait");
    assert_eq!(told.waited(tid, born, Nanos::from_secs(115)), Some(Nanos::from_secs(5)));
    slot.end(Nanos::from_secs(120).0);
    assert_eq!(told.waited(tid, born, now), Some(Nanos::from_secs(10)));
    assert_eq!(told.waited(tid, Nanos::from_secs(150), now), None, "it was born later");
    assert_eq!(told.waited(tid, born, Nanos::from_secs(50)), None, "told in the future");
    told.ended(tid, Nanos::from_secs(90));
    assert!(told.waited(tid, born, now).is_some(), "who ended before did not tell this");
    told.ended(tid, now);
    assert_eq!(told.waited(tid, born, now), None);
}

/// Told and sampled, in ms: both see the first wait; then it waits in a loop of its own; then samples are denied; then it works,
/// and is found to wait in a lock.
#[test]
fn told_and_sampled() {
    let mut told = Told::new().unwrap();
    let id = |order| TaskId { job: colocate_policy::JobIdx(0), order };
    let mut look = |told_ms: Option<u64>, sampled_ms: Option<u64>| {
        told.with_samples(id(0), told_ms.map(ms), sampled_ms.map(ms))
    };
    assert_eq!(look(None, None), None);
    assert_eq!(look(Some(50), Some(60)), Some(ms(60)));
    assert_eq!(look(Some(50), Some(160)), Some(ms(160)));
    assert_eq!(look(Some(150), None), Some(ms(260)));
    assert_eq!(look(Some(150), Some(160)), Some(ms(260)));
    assert_eq!(look(Some(170), Some(165)), Some(ms(280)));
    assert_eq!(look(None, None), None);
    assert_eq!(told.with_samples(id(1), None, Some(ms(7))), Some(ms(7)), "another task");
    told.keep([id(1)].into_iter());
    assert_eq!(told.with_samples(id(0), Some(ms(1)), None), Some(ms(1)), "forgotten");
}

/// Full, nobody else tells; whoever left makes room.
#[test]
fn more_threads_than_slots() {
    let told = Told::new().unwrap();
    let taken = (1..=layout::SLOTS + 5).filter(|tid| told.table().take(*tid, 1, 1).is_some());
    assert_eq!(taken.count(), layout::SLOTS as usize);
    assert_eq!(told.without_slot(), 5);
    told.ended(Tid(7), Nanos(2));
    assert!(told.table().take(layout::SLOTS + 7, 1, 3).is_some());
}

/// The loader's other libraries stay, behind ours; nobody can shorten the file.
#[test]
fn what_programs_are_given() {
    let told = Told::new().unwrap();
    let library = Path::new("/lib/waits.so");
    let others = |name: &OsStr| (name == "LD_PRELOAD").then(|| "/lib/a.so b.so".into());
    let [preload, file] = told.environment(library, others);
    assert_eq!(preload, ("LD_PRELOAD".into(), "/lib/waits.so:/lib/a.so b.so".into()));
    for (others, expected) in [
        ("/a/libcolocate_omp.so", "/a/libcolocate_omp.so:/lib/waits.so"),
        ("/a/b.so:/a/libcolocate_omp.so:c.so", "/a/b.so:/a/libcolocate_omp.so:/lib/waits.so:c.so"),
        ("/a/libcolocate_omp.so.bak c.so", "/lib/waits.so:/a/libcolocate_omp.so.bak c.so"),
    ] {
        let [preload, _] = told.environment(library, |_| Some(others.into()));
        assert_eq!(preload.1, expected);
    }
    let [preload, _] = told.environment(library, |_| Some(OsString::new()));
    assert_eq!(preload.1, "/lib/waits.so");
    assert_eq!(file.0, "COLOCATE_WAITS");
    let opened = File::options().read(true).write(true).open(&file.1).unwrap();
    assert_eq!(opened.metadata().unwrap().len(), size_of::<Table>() as u64);
    assert_eq!(opened.set_len(0).unwrap_err().raw_os_error(), Some(libc::EPERM));
}
