//! For how long a hypervisor took PUs.

use super::Proc;
use colocate_files::kernel;
use colocate_machine::{Nanos, PuNr};

/// Clock tick: `USER_HZ` is 100 on every architecture of colocate.
const TICK: Nanos = Nanos::from_millis(10);

/// Steal time per PU so far: the hypervisor ran something else while the PU had work
/// (`proc_stat(5)`). Empty if unknown; 0 for all PUs without a hypervisor or with a hypervisor
/// that does not report it.
#[must_use]
pub fn times(proc: &Proc) -> Vec<(PuNr, Nanos)> {
    kernel::read_text(&proc.root.join("stat")).map(|text| parsed(&text)).unwrap_or_default()
}

fn parsed(text: &str) -> Vec<(PuNr, Nanos)> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("cpu")?.split(' ');
            // The first line, of all PUs together, has no number and is left out.
            let pu = PuNr(words.next()?.parse().ok()?);
            // After user, nice, system, idle, iowait, irq and softirq.
            let ticks: u64 = words.nth(7)?.parse().ok()?;
            Some((pu, Nanos(ticks.saturating_mul(TICK.0))))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_pu() {
        let text = "cpu  9 9 9 9 9 9 9 7 0 0\ncpu0 1 2 3 4 5 6 7 4 0 0\ncpu3 1 2 3 4 5 6 7 3 0 0\nintr 5\ncpu9 1";
        let ms = Nanos::from_millis;
        assert_eq!(parsed(text), [(PuNr(0), ms(40)), (PuNr(3), ms(30))]);
        assert_eq!(parsed(""), []);
    }
}
