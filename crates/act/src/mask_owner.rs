//! Whose mask a thread has, as one pure function over what the kernel and the journal say.
//!
//! # Problem
//! sched_getaffinity(2) does not return what was set, but what the thread's cpuset has of it and is online. Where nothing of it is
//! left, the kernel shows the whole cpuset, and since Linux 6.2 it remembers what was set and shows it again when the cpuset has it
//! again. Before 6.2 it forgets. So the mask that colocate set, the one that the program set and the one that an orchestrator's
//! cpuset leaves can look alike, and look different a moment later.
//! # Approach
//! The mask that is shown is compared with what the kernel would show, in the thread's own cpuset, of each mask that the thread
//! may have: the one that the program was seen to have set, the one that was set on it, those that it may have inherited, and the
//! original one.
//! # Terms
//! - *Shown*: as sched_getaffinity(2) returns it.
//! - *Original*: what the thread would have without colocate.
//! - *Given*: set by colocate on the thread, or on its creator before it was created.
//! # Properties
//! - **No mask of the program's is taken for ours**: unless it equals what was given to that very thread. -> test
//!   `every_combination_on_four_pus`
//! - **What was set is undone**: as long as the kernel remembers a given mask, undoing sets the original one, whatever is shown.
//!   -> test `every_combination_on_four_pus`
//! - **A program's mask stays its own**: also while its cpuset hides it, or has nothing else. -> test
//!   `a_programs_mask_stays_its_own_in_every_cpuset`
//! - **Nothing else is touched**: undoing sets no mask where nothing was given. -> test `every_combination_on_four_pus`

use colocate_machine::PuSet;

/// State of a thread's mask, as the kernel and the journal report it.
#[derive(Clone, Copy, Debug)]
pub struct MaskFacts<'a> {
    /// Mask shown by the kernel.
    pub shown: &'a PuSet,
    /// Online PUs of the thread's cpuset.
    pub cpuset: &'a PuSet,
    /// Mask of the thread without colocate, including PUs outside its cpuset.
    pub original: &'a PuSet,
    /// Last mask set by colocate on this thread, if it should be in force.
    pub own: Option<&'a PuSet>,
    /// Masks that the thread may have instead: from its creator, or from its own past.
    pub inherited: &'a [PuSet],
    /// Mask that the program was seen to set, which may still be in force.
    pub programs: Option<&'a PuSet>,
}

/// Origin of a thread's mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskOwner {
    /// Nothing was set: the thread has the original mask, restricted to its cpuset.
    Original,
    /// Set by colocate, on this thread or on its creator.
    Ours,
    /// Set by colocate, but the cpuset has none of its PUs: the kernel shows the whole cpuset, and
    /// may show the set mask again later.
    Hidden,
    /// Set by colocate to PUs of the cpuset, but the original mask is shown: the program has set
    /// the original mask again, or a kernel before 6.2 has forgotten colocate's mask.
    Widened,
    /// Set by the program or its user.
    Program,
}

impl MaskOwner {
    /// Origin of the shown mask.
    pub fn of(facts: &MaskFacts<'_>) -> Self {
        let given = || facts.own.into_iter().chain(facts.inherited);
        if facts.programs.is_some_and(|mask| facts.shows(mask)) {
            Self::Program
        } else if given().any(|mask| facts.shows(mask) && !facts.hides(mask)) {
            Self::Ours
        } else if !facts.shows(facts.original) {
            Self::Program
        } else if given().any(|mask| facts.hides(mask)) {
            Self::Hidden
        } else if facts.own.is_some() {
            Self::Widened
        } else {
            Self::Original
        }
    }

    /// Whether undoing sets the original mask.
    pub fn is_to_undo(self) -> bool {
        matches!(self, Self::Ours | Self::Hidden)
    }
}

impl MaskFacts<'_> {
    /// Whether the shown mask would result from setting `mask`.
    fn shows(&self, mask: &PuSet) -> bool {
        let left = mask.intersection(self.cpuset);
        if left.is_empty() {
            return self.cpuset.is_subset(self.shown);
        }
        // A PU that has just come back is shown before its cpuset has it.
        left.is_subset(self.shown) && self.shown.is_subset(mask)
    }

    /// Whether the cpuset has no PU of `mask`, so that the kernel shows the whole cpuset instead.
    fn hides(&self, mask: &PuSet) -> bool {
        mask.intersection(self.cpuset).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::PuNr;

    fn set(list: &str) -> PuSet {
        PuSet::parse_list(list).unwrap()
    }

    /// Origin of the mask `shown` in `cpuset`, on a machine with eight PUs.
    fn owner(shown: &str, cpuset: &str, own: Option<&str>, inherited: &[&str]) -> MaskOwner {
        let own = own.map(set);
        let inherited: Vec<PuSet> = inherited.iter().map(|list| set(list)).collect();
        MaskOwner::of(&MaskFacts {
            shown: &set(shown),
            cpuset: &set(cpuset),
            original: &set("0-7"),
            own: own.as_ref(),
            inherited: &inherited,
            programs: None,
        })
    }

    #[test]
    fn hand_traced() {
        use MaskOwner::{Hidden, Original, Ours, Program, Widened};
        assert_eq!(owner("0-7", "0-7", None, &[]), Original);
        assert_eq!(owner("2-3", "2-3", None, &[]), Original, "attached from outside its cpuset");
        assert_eq!(owner("2", "2-3", None, &[]), Program);
        assert_eq!(owner("2", "2-3", Some("2"), &[]), Ours);
        assert_eq!(owner("2", "2", Some("2"), &[]), Ours, "a cpuset of one PU");
        assert_eq!(owner("2-3", "2-3", Some("0"), &[]), Hidden, "moved to another cpuset");
        assert_eq!(owner("2-3", "2-3", None, &["0"]), Hidden, "its creator was");
        assert_eq!(owner("0-7", "0-7", Some("0"), &[]), Widened);
        assert_eq!(
            owner("0-7", "0-7", None, &["0"]),
            Original,
            "created before its creator was placed"
        );
        assert_eq!(owner("1", "0-7", Some("0"), &[]), Program);
        assert_eq!(
            owner("0-1", "0-1,4-5", Some("0-3"), &[]),
            Ours,
            "the cpuset has half of the cache's PUs"
        );
        assert_eq!(owner("0-6", "0-5", Some("7"), &[]), Hidden, "6 is back, and in no cpuset yet");
    }

    /// Every set of four PUs.
    fn sets() -> impl Iterator<Item = PuSet> + Clone {
        (0..16_u32).map(|bits| (0..4).filter(|pu| bits & (1 << pu) != 0).map(PuNr::new).collect())
    }

    /// Mask that the kernel shows in a cpuset of what was set (`cpuset_cpus_allowed_fallback` and `task_cpu_possible_mask`, 6.12).
    fn shown(set: &PuSet, cpuset: &PuSet) -> PuSet {
        let left = set.intersection(cpuset);
        if left.is_empty() { cpuset.clone() } else { left }
    }

    /// A thread with the original mask is given one of ours, may set one itself, and is then moved to any cpuset. Brute force over
    /// all three, with a kernel that remembers what was set and one that forgets it where the cpuset has nothing of it.
    #[test]
    fn every_combination_on_four_pus() {
        let original = set("0-3");
        for cpuset in sets().filter(|set| !set.is_empty()) {
            let alone = MaskOwner::of(&MaskFacts {
                shown: &cpuset,
                cpuset: &cpuset,
                original: &original,
                own: None,
                inherited: &[],
                programs: None,
            });
            assert_eq!(alone, MaskOwner::Original, "nothing was given in {cpuset}");
            for ours in sets().filter(|set| !set.is_empty()) {
                let of = |shown: &PuSet, own, inherited: &[PuSet]| {
                    let original = &original;
                    let cpuset = &cpuset;
                    let programs = None;
                    MaskOwner::of(&MaskFacts { shown, cpuset, original, own, inherited, programs })
                };
                let remembered = shown(&ours, &cpuset);
                let own = of(&remembered, Some(&ours), &[]);
                assert!(own.is_to_undo(), "{ours} in {cpuset}: {own:?}");
                let inherited = of(&remembered, None, std::slice::from_ref(&ours));
                assert!(inherited.is_to_undo(), "{ours} in {cpuset}, inherited: {inherited:?}");
                assert_ne!(of(&cpuset, Some(&ours), &[]), MaskOwner::Program, "forgotten");
                for programs in sets().filter(|set| !set.intersection(&cpuset).is_empty()) {
                    let set_in = programs.intersection(&cpuset);
                    let is_alike = set_in == remembered || set_in == cpuset;
                    let is_programs = of(&set_in, Some(&ours), &[]) == MaskOwner::Program;
                    assert_eq!(is_programs, !is_alike, "{programs} over {ours} in {cpuset}");
                }
            }
        }
    }

    /// A thread is moved to any cpuset after its program has set any mask. Where the kernel forgets what the cpuset has nothing of,
    /// and the thread is then moved on, it has the original mask like any other.
    #[test]
    fn a_programs_mask_stays_its_own_in_every_cpuset() {
        let original = set("0-3");
        for programs in sets().filter(|set| !set.is_empty()) {
            let owner = |shown: &PuSet, cpuset: &PuSet| {
                MaskOwner::of(&MaskFacts {
                    shown,
                    cpuset,
                    original: &original,
                    own: None,
                    inherited: &[],
                    programs: Some(&programs),
                })
            };
            for cpuset in sets().filter(|set| !set.is_empty()) {
                assert_eq!(owner(&shown(&programs, &cpuset), &cpuset), MaskOwner::Program);
                let has_some = !programs.intersection(&cpuset).is_empty();
                if has_some && !cpuset.is_subset(&programs) {
                    assert_eq!(
                        owner(&cpuset, &cpuset),
                        MaskOwner::Original,
                        "set anew, or forgotten"
                    );
                }
            }
        }
    }
}
