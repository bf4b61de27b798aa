//! Builds the simulated kernel's settings from `[kernel]`, check by check.

use super::Lines;
use super::form::{ForkForm, KernelForm, WakeForm};
use colocate_machine::Bytes;
use colocate_sim::{Fork, KernelScheduler, NumaBalancing, PeriodicBalance, Wake, WakeAffine};
use std::ops::Range;
use toml::Spanned;

/// Most parts of a slice. Chosen: finer than any slice needs.
const MAX_STAGGER: u32 = 1_000;
/// Largest busy factor. Chosen: larger than any kernel's; its own bound is 1024 ms for an interval.
const MAX_BUSY_FACTOR: u32 = 1_024;

/// The settings of the file, with defaults for the rest.
pub(super) fn kernel(lines: &Lines, form: &KernelForm) -> Result<KernelScheduler, String> {
    let default = KernelScheduler::default();
    Ok(KernelScheduler {
        slice: lines.step(form.slice.as_ref(), default.slice)?,
        stagger: lines.count(form.stagger.as_ref(), default.stagger, MAX_STAGGER)?,
        fork: fork(lines, form, default.fork)?,
        wake: wake(lines, form)?,
        idle_balance: form.idle_balance.unwrap_or(default.idle_balance),
        periodic_balance: periodic_balance(lines, form)?,
        numa_balancing: numa_balancing(lines, form)?,
        wake_ups: default.wake_ups,
        page_copy: form.page_copy.as_ref().map_or(default.page_copy, |copy| copy.0),
    })
}

fn fork(lines: &Lines, form: &KernelForm, default: Fork) -> Result<Fork, String> {
    match (form.fork, &form.reclaim_distance) {
        (None, None) => Ok(default),
        (Some(ForkForm::WithParent), None) => Ok(Fork::WithParent),
        (Some(ForkForm::WithParent), Some(distance)) => {
            let expected = "reclaim-distance beside fork = \"idlest\"";
            Err(lines.misfit(distance, expected, "fork = \"with-parent\""))
        }
        (_, distance) => Ok(Fork::Idlest {
            reclaim_distance: distance
                .as_ref()
                .map_or(colocate_sim::kernel::RECLAIM_DISTANCE, |distance| *distance.get_ref()),
        }),
    }
}

fn wake(lines: &Lines, form: &KernelForm) -> Result<Wake, String> {
    let KernelForm { wake_recent: recent, wake_affine: affine, .. } = form;
    let KernelForm { wake_sync: sync, wake_load: load, wake_wide: wide, .. } = form;
    let default = WakeAffine::default();
    let of_affine = [span(sync), span(load), span(wide)];
    if form.wake == Some(WakeForm::Previous) {
        let of_wake = [span(recent), span(affine)].into_iter().chain(of_affine);
        unneeded(lines, "wake = \"previous\"", of_wake)?;
        return Ok(Wake::Previous);
    }
    let is_affine = is_on(affine, true);
    if !is_affine {
        unneeded(lines, "wake-affine = false", of_affine)?;
    }
    let reclaim_distance = form.reclaim_distance.as_ref().map(|distance| *distance.get_ref());
    Ok(Wake::IdleSibling {
        idle_cores: form.wake != Some(WakeForm::IdlePu),
        recent: is_on(recent, true),
        affine: is_affine.then_some(WakeAffine {
            sync: is_on(sync, default.sync),
            load: is_on(load, default.load),
            wide: is_on(wide, default.wide),
            reclaim_distance: reclaim_distance.unwrap_or(default.reclaim_distance),
        }),
    })
}

fn is_on(setting: &Option<Spanned<bool>>, default: bool) -> bool {
    setting.as_ref().map_or(default, |setting| *setting.get_ref())
}

fn periodic_balance(lines: &Lines, form: &KernelForm) -> Result<Option<PeriodicBalance>, String> {
    let default = PeriodicBalance::default();
    let KernelForm {
        balance_interval_per_pu: interval,
        balance_patience: patience,
        balance_busy_factor: busy,
        balance_percent: percent,
        ..
    } = form;
    if form.periodic_balance == Some(false) {
        let settings = [span(interval), span(patience), span(busy), span(percent)];
        unneeded(lines, "periodic-balance = false", settings)?;
        return Ok(None);
    }
    Ok(Some(PeriodicBalance {
        interval_per_pu: lines.time(interval.as_ref(), default.interval_per_pu)?,
        patience: patience.as_ref().map_or(default.patience, |patience| *patience.get_ref()),
        busy_factor: lines.count(busy.as_ref(), default.busy_factor, MAX_BUSY_FACTOR)?,
        percent: above_100_percent(lines, percent.as_ref(), default.percent)?,
    }))
}

fn above_100_percent(
    lines: &Lines,
    percent: Option<&Spanned<u32>>,
    default: u32,
) -> Result<u32, String> {
    let Some(percent) = percent else { return Ok(default) };
    match *percent.get_ref() {
        found if found > 100 => Ok(found),
        found => Err(lines.misfit(percent, "more than 100 percent", found)),
    }
}

fn numa_balancing(lines: &Lines, form: &KernelForm) -> Result<Option<NumaBalancing>, String> {
    let default = NumaBalancing::default();
    let KernelForm {
        numa_period: period,
        numa_scan: scan,
        numa_moves_threads: moves,
        numa_fault: fault,
        ..
    } = form;
    if form.numa_balancing == Some(false) {
        let settings = [span(period), span(scan), span(moves), span(fault)];
        unneeded(lines, "numa-balancing = false", settings)?;
        return Ok(None);
    }
    if let Some(scan) = scan.as_ref().filter(|scan| scan.get_ref().0 == Bytes(0)) {
        return Err(lines.misfit(scan, "a size above 0", "0"));
    }
    Ok(Some(NumaBalancing {
        period: lines.time(period.as_ref(), default.period)?,
        scan: scan.as_ref().map_or(default.scan, |scan| scan.get_ref().0),
        move_threads: moves.as_ref().map_or(default.move_threads, |moves| *moves.get_ref()),
        fault: fault.as_ref().map_or(default.fault, |fault| fault.get_ref().0),
    }))
}

fn span<T>(setting: &Option<Spanned<T>>) -> Option<Range<usize>> {
    setting.as_ref().map(Spanned::span)
}

/// Refuses settings of a feature that is switched off, given by their places in the file.
fn unneeded(
    lines: &Lines,
    off: &str,
    settings: impl IntoIterator<Item = Option<Range<usize>>>,
) -> Result<(), String> {
    settings.into_iter().flatten().next().map_or(Ok(()), |at| {
        let detail = format!("expected no setting of what {off} switches off, found one");
        Err(lines.syntax(at, detail))
    })
}
