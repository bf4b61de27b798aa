//! Times of the scans of `/proc`.

use std::time::{Duration, Instant};

/// Minimum time between two scans of `/proc`. Chosen: shorter-lived threads are not worth placing.
const LEAST_SCAN_INTERVAL: Duration = Duration::from_millis(1);

/// Time between the first two scans of `/proc` after a loss of records. Chosen.
const FIRST_SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time between two scans after a loss. Chosen: no thread takes longer to end.
const LONGEST_SCAN_INTERVAL: Duration = Duration::from_secs(60);

/// Inverse of the largest share of a core for scans. Chosen: half of the share for all watching.
const SCAN_SHARE: u32 = 100;

/// Schedule of the scans.
#[derive(Debug)]
pub(super) struct Scans {
    /// Next scan of `/proc`; `None` as long as the kernel reports everything.
    pub next: Option<Instant>,
    /// Time from the next scan after a loss of records to the following scan.
    after_loss: Duration,
    /// Minimum time between two scans, which limits their share of a PU.
    pause: Duration,
    /// Reason why `/proc` is unusable.
    pub without_proc: Option<String>,
}

impl Scans {
    /// No scan yet, and none ever `without_proc`.
    pub const fn new(without_proc: Option<String>) -> Self {
        let pause = Duration::ZERO;
        Self { next: None, after_loss: FIRST_SCAN_INTERVAL, pause, without_proc }
    }

    /// Schedules a scan of `/proc` at the next [`drain`](super::LifecycleEvents::drain), if usable.
    pub fn soon(&mut self) {
        self.next = self.without_proc.is_none().then(Instant::now);
        self.after_loss = FIRST_SCAN_INTERVAL;
    }

    /// Schedules a later scan of `/proc`, if usable.
    pub fn later(&mut self) {
        let at = Instant::now() + FIRST_SCAN_INTERVAL.max(self.pause);
        if self.without_proc.is_none() && self.next.is_none_or(|next| next > at) {
            self.next = Some(at);
            self.after_loss = FIRST_SCAN_INTERVAL;
        }
    }

    /// Schedules the next scan of `/proc`, after a scan that began at `begun`. Some events are only
    /// visible in `/proc` if it `needs_proc`.
    pub fn plan(&mut self, begun: Instant, needs_proc: bool) {
        let end = Instant::now();
        self.pause = (end - begun) * SCAN_SHARE;
        if needs_proc {
            self.next = Some(end + LEAST_SCAN_INTERVAL.max(self.pause));
            return;
        }
        // A thread that was about to end when records were lost may still be listed, but not for long.
        let after = self.after_loss;
        self.after_loss = 2 * after;
        self.next = (after <= LONGEST_SCAN_INTERVAL).then(|| end + after.max(self.pause));
    }
}
