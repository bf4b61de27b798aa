//! What CPI stacks of recorded programs can say of slowdowns, for docs/results/symbiotic.md.

use crate::machine;
use colocate_machine::Nanos;
use colocate_model::phase::PhaseFile;
use colocate_model::symbiosis::FitSample;
use colocate_study::replication::recorded::{self, Recorded};
use colocate_study::train::{GroupSamples, TrainingSet, TrainingSettings, samples};

/// What a least-squares fit of slowdowns by every component alone, of the others and their products explains: the equation has
/// no more to go by.
pub fn what_stacks_of_recorded_programs_hold() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/measured/programs");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
    paths.sort();
    let recorded = paths.iter().map(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        Recorded::new(name, PhaseFile::from_json(&text).unwrap()).unwrap()
    });
    let (machine, performance) = machine("power8-10c");
    let settings = TrainingSettings::default();
    let length = Nanos(settings.interval.0 * u64::from(settings.intervals + 1));
    let recorded: Vec<Recorded> = recorded.collect();
    let programs = recorded::programs(&machine, &performance, &recorded, length).unwrap();
    let set = TrainingSet::of_programs(&programs);
    for (threads, found) in samples(&machine, &performance, &set, &settings).unwrap() {
        let GroupSamples { fitted, judged } = found;
        let factors = normal_equations(&fitted);
        let r2 = |samples: &[FitSample]| {
            let slowdowns: Vec<f64> = samples.iter().map(|it| it.together.iter().sum()).collect();
            let mean = slowdowns.iter().sum::<f64>() / slowdowns.len() as f64;
            let off = samples.iter().zip(&slowdowns).map(|(it, slowdown)| {
                let found: f64 = terms(it).iter().zip(&factors).map(|(a, b)| a * b).sum();
                (found - slowdown).powi(2)
            });
            1.0 - off.sum::<f64>() / slowdowns.iter().map(|it| (it - mean).powi(2)).sum::<f64>()
        };
        println!(
            "{threads} threads: R2 {:.2} fitted, {:.2} held out (simulated)",
            r2(&fitted),
            r2(&judged)
        );
    }
}

/// 1, the components, those of the others, and all their products.
fn terms(sample: &FitSample) -> Vec<f64> {
    let FitSample { own, others, .. } = sample;
    let products = own.iter().flat_map(|a| others.iter().map(move |b| a * b));
    [1.0].into_iter().chain(own.iter().chain(others).copied()).chain(products).collect()
}

/// The factors of [`terms`] that come nearest to the slowdowns, of which a little is taken away where terms depend on each other.
fn normal_equations(samples: &[FitSample]) -> Vec<f64> {
    const RIDGE: f64 = 1e-6;
    let count = terms(&samples[0]).len();
    let mut rows = vec![vec![0.0; count + 1]; count];
    for sample in samples {
        let mut known = terms(sample);
        known.push(sample.together.iter().sum());
        for i in 0..count {
            for j in 0..=count {
                rows[i][j] += known[i] * known[j];
            }
        }
    }
    (0..count).for_each(|i| rows[i][i] += RIDGE);
    for i in 0..count {
        let pivot: Vec<f64> = rows[i].iter().map(|each| each / rows[i][i]).collect();
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != i) {
            let times = row[i];
            row.iter_mut().zip(&pivot).for_each(|(each, by)| *each -= times * by);
        }
        rows[i] = pivot;
    }
    rows.iter().map(|row| row[count]).collect()
}
