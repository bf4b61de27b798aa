//! The plan's file: what is written reads back, and what is odd is refused with one line.

use crate::testing;

use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::{PuNr, SharedPart};
use colocate_policy::{Per, Place, PlaceReason, Plan};

/// One decision of each kind of reason.
const GOLDEN: &str = include_str!("../golden/plan.json");

fn golden() -> Plan {
    Plan::from_json(GOLDEN).expect("the golden plan is one")
}

fn refusal(text: &str) -> String {
    Plan::from_json(text).expect_err("it is odd").to_string()
}

fn task(job: u32, order: u32) -> TaskId {
    TaskId { job: JobIdx(job), order }
}

#[test]
fn golden_is_written_as_it_is() {
    assert_eq!(golden().to_json(), GOLDEN);
}

#[test]
fn finds_the_place_of_a_task() {
    let plan = golden();
    assert_eq!(plan.place_of(task(0, 0)), Some(Place::Pu(PuNr(0))));
    assert_eq!(plan.place_of(task(1, 7)), Some(Place::LeftToKernel));
    assert_eq!(plan.place_of(task(0, 99)), None);
}

#[test]
fn a_place_of_several_pus() {
    let mut plan = golden();
    plan.decisions[0].place = Place::Sharing(SharedPart::Cache, PuNr(0));
    let text = plan.to_json();
    assert!(text.contains("\"pu\": 0,\n      \"sharing\": \"cache\""), "{text}");
    assert_eq!(Plan::from_json(&text).unwrap(), plan);
    let refused = Plan::from_json(&text.replacen("\"pu\": 0", "\"pu\": null", 1)).unwrap_err();
    assert!(refused.to_string().contains("task 0.0 shares a cache with no PU"), "{refused}");
}

#[test]
fn reasons_in_words() {
    let words: Vec<String> = golden().decisions.iter().map(|d| d.why.to_string()).collect();
    assert_eq!(
        words,
        [
            "rank 3 by float, beside 0.1",
            "least overlap, 0.1250 beside 0.0, 1.0",
            "a core of its own",
            "takes turns with 1 on its PU, drawn with seed 7",
            "next in order, hwloc logical order",
            "mix not known, taken as average",
            "left to the kernel",
        ]
    );
    assert_eq!(
        PlaceReason::Matched { overlap: 0.0, per: Per::Cycle, partners: Vec::new() }.to_string(),
        "least overlap per cycle, 0.0000 no task on a sibling PU"
    );
    let partners = (0..8).map(|order| task(0, order)).collect();
    assert_eq!(
        PlaceReason::Matched { overlap: 0.0, per: Per::default(), partners }.to_string(),
        "least overlap, 0.0000 beside 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, …"
    );
    // Not from us, but a plan's file may say so.
    assert_eq!(
        PlaceReason::TimeShared { tasks: 0, then: Box::new(PlaceReason::OwnCore) }.to_string(),
        "takes turns with 0 on its PU, a core of its own"
    );
}

#[test]
fn refuses_another_version_whatever_else_it_holds() {
    assert_eq!(
        refusal(r#"{ "version": 1, "who": 1 }"#),
        "expected a plan of version 2, found version 1; plan again"
    );
}

#[test]
fn refuses_decisions_twice_or_out_of_order() {
    let with = |order: &str| refusal(&GOLDEN.replacen("\"order\": 2\n", order, 1));
    let expected = "expected one decision a task in the order of job and thread, found task";
    assert_eq!(with("\"order\": 1\n"), format!("{expected} 1.1 after 1.1"));
    assert_eq!(with("\"order\": 5\n"), format!("{expected} 1.3 after 1.5"));
}

/// Plans of before tasks could wait are read as they were; new ones say so beside a PU of null.
#[test]
fn a_job_waits_as_a_whole() {
    let last = r#""name": "b/b",
      "pu": null,
      "why": {
        "why": "left-to-kernel"
      }"#;
    let waits = r#""name": "b/b",
      "pu": null,
      "waits": true,
      "why": {
        "why": "not-selected"
      }"#;
    assert!(GOLDEN.contains(last));
    let partly = GOLDEN.replacen(last, waits, 1);
    let found = refusal(&partly);
    assert_eq!(found, "expected all tasks of job 1 to wait or none, found 1.7 waiting and 1.0 not");
    let mut plan = golden();
    assert_eq!(plan.waiting().unwrap(), []);
    plan.decisions.retain(|decision| decision.task.job.0 == 0 || decision.task.order == 7);
    plan.decisions.last_mut().unwrap().place = Place::Waiting;
    assert_eq!(plan.waiting().unwrap(), [JobIdx(1)]);
    let text = plan.to_json();
    assert!(text.contains("\"waits\": true"), "{text}");
    assert_eq!(Plan::from_json(&text).unwrap(), plan);
    let both = text.replacen("\"pu\": null,\n      \"waits\"", "\"pu\": 3,\n      \"waits\"", 1);
    assert!(refusal(&both).contains("task 1.7 waits and is on cpu3"), "{}", refusal(&both));
    assert_eq!(
        PlaceReason::NotSelected.to_string(),
        "waits, others were selected for this quantum"
    );
}

#[test]
fn refuses_odd_shapes() {
    let with = |from: &str, to: &str| refusal(&GOLDEN.replacen(from, to, 1));
    assert!(with("head-and-tail", "because").contains("unknown variant `because`"));
    assert!(with(r#""seed": 7"#, r#""seed": -7"#).contains("expected u64"));
    assert!(with(r#""overlap": 0.125"#, r#""overlap": 1e999"#).contains("number out of range"));
    // Reasons inside reasons, without end.
    let deep = r#"{"why":"time-shared","tasks":2,"then":"#.repeat(10_000);
    let (before, after) = GOLDEN.split_once(r#""why": "own-core""#).unwrap();
    let ends = "}".repeat(10_000);
    let text = format!(
        r#"{before}"why":"time-shared","tasks":2,"then":{deep}{{"why":"own-core"}}{ends}{after}"#
    );
    assert!(refusal(&text).contains("recursion limit exceeded"), "{}", refusal(&text));
}

#[test]
fn refuses_a_machine_without_its_pus() {
    let line = |machine| golden().check_against(machine).unwrap_err().to_string();
    assert_eq!(
        line(&testing::machine("core:0")),
        "expected a plan for this machine, found task 0.0 on cpu0, which is not online here"
    );
    assert!(golden().check_against(&testing::machine("core:4")).is_ok());
}
