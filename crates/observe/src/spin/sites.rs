//! Verdicts on sampled sites, and the samples of each thread by verdict.

use super::loops::CodeVerdict;
use super::{CodeLocation, SampledSite, Share};
use colocate_linux::Tid;
use std::collections::{BTreeMap, HashMap};

/// Verdict status of a site.
#[derive(Debug)]
enum SiteState {
    /// Verdict requested; samples of each thread held until it comes.
    Pending(BTreeMap<Tid, u32>),
    /// Verdict known; to be renewed if `old`.
    Judged { verdict: Option<CodeVerdict>, old: bool },
}

/// Sites with their verdicts, and samples by thread.
#[derive(Debug, Default)]
pub(super) struct Sites {
    known: HashMap<SampledSite, SiteState>,
    seen: BTreeMap<Tid, Share>,
}

impl Sites {
    /// Records a sample at a site. True if the site needs a verdict.
    pub(super) fn sample(&mut self, site: SampledSite, tid: Tid) -> bool {
        match self.known.get_mut(&site) {
            Some(SiteState::Judged { verdict, old }) => {
                self.seen.entry(tid).or_default().add(*verdict, 1);
                // The old verdict holds until the new one comes.
                std::mem::replace(old, false)
            }
            Some(SiteState::Pending(samples)) => {
                *samples.entry(tid).or_default() += 1;
                false
            }
            None => {
                self.known.insert(site, SiteState::Pending(BTreeMap::from([(tid, 1)])));
                true
            }
        }
    }

    /// Records a sample of work, whatever the site.
    pub(super) fn works(&mut self, tid: Tid) {
        let works = &mut self.seen.entry(tid).or_default().works;
        *works = works.saturating_add(1);
    }

    /// Stores the verdict on a site, and counts the samples held for it.
    pub(super) fn learn(&mut self, site: SampledSite, verdict: Option<CodeVerdict>) {
        let before = self.known.insert(site, SiteState::Judged { verdict, old: false });
        if let Some(SiteState::Pending(samples)) = before {
            for (tid, count) in samples {
                self.seen.entry(tid).or_default().add(verdict, count);
            }
        }
    }

    /// Judged samples of each thread since the last call.
    pub(super) fn take(&mut self) -> BTreeMap<Tid, Share> {
        std::mem::take(&mut self.seen)
    }

    /// Forgets sites in memory without a file, and unreadable sites.
    pub(super) fn forget_memory(&mut self) {
        self.known.retain(|site, known| {
            let is_unread = matches!(known, SiteState::Judged { verdict: None, .. });
            matches!(site.place, CodeLocation::File(..)) && !is_unread
        });
    }

    /// Marks all verdicts old, to be renewed. Forgets sites whose verdict was already old: no
    /// thread was sampled there since.
    pub(super) fn age(&mut self) {
        self.known.retain(|_, known| match known {
            SiteState::Pending(_) => true,
            SiteState::Judged { old, .. } => !std::mem::replace(old, true),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::ThreadMode;
    use super::*;
    use colocate_linux::Pid;

    const WAITS: Option<CodeVerdict> = Some(CodeVerdict::Hints);

    fn at(ip: u64) -> SampledSite {
        SampledSite { place: CodeLocation::Memory(Pid(1), ip), seen: ThreadMode::Running }
    }

    fn share(waits: u32, works: u32, unknown: u32) -> Share {
        Share { waits, works, unknown }
    }

    #[test]
    fn samples_wait_for_the_first_answer() {
        let mut sites = Sites::default();
        assert!(sites.sample(at(8), Tid(1)));
        assert!(!sites.sample(at(8), Tid(1)) && !sites.sample(at(8), Tid(2)));
        assert!(sites.take().is_empty());
        sites.learn(at(8), WAITS);
        assert!(!sites.sample(at(8), Tid(2)));
        sites.works(Tid(3));
        let all = [(1, share(2, 0, 0)), (2, share(2, 0, 0)), (3, share(0, 1, 0))];
        assert_eq!(sites.take(), BTreeMap::from(all.map(|(tid, share)| (Tid(tid), share))));
    }

    /// The program is written anew where it was. What was said of it holds until it was asked for again.
    #[test]
    fn old_sites_are_judged_again() {
        let mut sites = Sites::default();
        sites.sample(at(8), Tid(1));
        sites.learn(at(8), WAITS);
        sites.take();
        sites.age();
        assert!(sites.sample(at(8), Tid(1)), "asked for once more");
        assert!(!sites.sample(at(8), Tid(1)), "but not twice");
        assert_eq!(sites.take(), BTreeMap::from([(Tid(1), share(2, 0, 0))]));
        sites.learn(at(8), None);
        assert!(!sites.sample(at(8), Tid(1)));
        assert_eq!(sites.take(), BTreeMap::from([(Tid(1), share(0, 0, 1))]));
    }

    /// 10,000 sites, of which one is seen again and one has no answer yet.
    #[test]
    fn sites_without_threads_are_forgotten() {
        let mut sites = Sites::default();
        for ip in 0..10_000 {
            sites.sample(at(ip), Tid(1));
            sites.learn(at(ip), WAITS);
        }
        sites.sample(at(10_000), Tid(1));
        sites.age();
        sites.sample(at(7), Tid(1));
        sites.age();
        assert_eq!(sites.known.len(), 2);
        assert!(!sites.sample(at(10_000), Tid(1)) && sites.sample(at(7), Tid(1)));
    }

    /// A file could not be opened, perhaps as no descriptor was left.
    #[test]
    fn what_could_not_be_read_is_tried_again() {
        let mut spaces = crate::sample::maps::Spaces::default();
        let map =
            crate::perf::ExecutableMapping { start: 0, length_b: 16, offset_b: 0, path: b"/a" };
        spaces.map(Pid(1), &map, None);
        let CodeLocation::File(file, _) = spaces.origin(Pid(1), 8) else { panic!() };
        let in_file =
            |at| SampledSite { place: CodeLocation::File(file, at), seen: ThreadMode::Running };
        let mut sites = Sites::default();
        for (site, verdict) in [(in_file(1), None), (in_file(2), WAITS), (at(3), WAITS)] {
            sites.sample(site, Tid(1));
            sites.learn(site, verdict);
        }
        sites.forget_memory();
        assert!(sites.sample(in_file(1), Tid(1)) && sites.sample(at(3), Tid(1)));
        assert!(!sites.sample(in_file(2), Tid(1)));
    }
}
