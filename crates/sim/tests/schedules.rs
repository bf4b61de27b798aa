//! Hand-traced schedules. Letters are jobs, lines PUs, siblings next to each other; `_` is idle.

mod common;

use colocate_machine::Nanos;
use colocate_policy::PolicyKind;
use common::{INT, job, picture, run, scenario};
use expect_test::expect;

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Two adders on siblings: half the speed each. A has 20 ms of work: it is done after 40. B has 40 ms, of
/// which 20 are left then; alone it goes on at full speed: 60.
#[test]
fn siblings_share_a_port() {
    let outcome = run(&scenario(vec![job("a", INT, 20), job("b", INT, 40)]), &PolicyKind::Compact);
    expect![[r#"
        0 AAAA__
        1 BBBBBB
        2 ______
        3 ______
    "#]]
    .assert_eq(&picture(&outcome, 4, ms(10)));
    let took: Vec<_> = outcome.jobs.iter().map(|job| job.took()).collect();
    assert_eq!(took, [Some(ms(40)), Some(ms(60))]);
    assert_eq!(outcome.slowdowns(), Some(vec![2.0, 1.5]));
    assert!((outcome.together.seconds(0, 1) - 0.04).abs() < 1e-12);
    assert!((outcome.used.pus[1] - 1.0).abs() < 1e-12);
}
