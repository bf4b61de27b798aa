//! Tally of a simulation: use of the machine, shared cores, spans.

use crate::on_pu::OnPu;
use crate::outcome::{LevelUse, PortGroupUse, Together, Used};
use crate::platform::{Demands, Platform};
use crate::scenario::Scenario;
use crate::task::SimulatedTask;
use colocate_evidence::TaskSpan;
use colocate_machine::{CacheKind, Nanos};
use colocate_model::{Prediction, ports};

/// Sums over the steps of a simulation.
#[derive(Debug)]
pub(crate) struct SimulationSums {
    /// Time that tasks shared a core.
    pub together: Together,
    /// Seconds of use, counted as if in full.
    used: Used,
    /// Seconds of use of a cache's bandwidth, counted as if in full, by place in `Machine::caches`.
    caches: Vec<f64>,
    /// Instructions by phase, then by kind of core.
    done: Vec<Vec<f64>>,
    /// By PU: its core.
    core_of: Vec<usize>,
    /// By PU: its kind of core.
    kind_of: Vec<usize>,
    /// Most recorded spans; later spans are dropped.
    pub most_spans: usize,
    /// Recorded spans.
    pub spans: Vec<TaskSpan>,
    /// By PU: place of its last span in `spans`.
    open: Vec<Option<usize>>,
}

impl SimulationSums {
    pub fn new(platform: &Platform<'_>, scenario: &Scenario) -> Self {
        let machine = platform.machine;
        let performance = platform.performance;
        Self {
            together: Together::new(scenario.jobs.len()),
            used: Used {
                pus: vec![0.0; machine.pus.len()],
                slots: vec![0.0; machine.cores.len()],
                ports: vec![0.0; machine.cores.len()],
                controllers: vec![0.0; performance.memory.len()],
                links: vec![0.0; performance.links.len()],
                ..Used::default()
            },
            caches: vec![0.0; machine.caches.len()],
            done: vec![vec![0.0; machine.kinds.len()]; scenario.phases.len()],
            kind_of: machine.all_pus().map(|pu| platform.kind_of(pu)).collect(),
            core_of: machine.pus.iter().map(|pu| pu.core.idx()).collect(),
            most_spans: 0,
            spans: Vec::new(),
            open: vec![None; machine.pus.len()],
        }
    }

    /// Counts a step; `on` in the order of PUs.
    pub fn step(
        &mut self,
        from: Nanos,
        to: Nanos,
        on: &[OnPu],
        now: &Prediction,
        tasks: &[SimulatedTask],
    ) {
        let seconds = (to - from).as_secs_f64();
        for (place, here) in on.iter().enumerate() {
            let job = tasks[here.task].job();
            self.used.pus[here.pu.idx()] += seconds;
            let phase = tasks[here.task].course.phase();
            // For ports, spinning counts as any other phase.
            self.done[phase][self.kind_of[here.pu.idx()]] += here.pace.speed * seconds;
            let core = self.core_of[here.pu.idx()];
            // PUs of a core follow each other in logical order.
            for other in on[place + 1..].iter().take_while(|o| self.core_of[o.pu.idx()] == core) {
                self.together.add(job, tasks[other.task].job(), seconds);
            }
        }
        add(&mut self.used.slots, &now.slots, seconds);
        add(&mut self.used.ports, &now.ports, seconds);
        add(&mut self.used.controllers, &now.controllers, seconds);
        add(&mut self.used.links, &now.links, seconds);
        add(&mut self.caches, &now.caches, seconds);
        if self.most_spans > 0 {
            on.iter().for_each(|here| self.span(from, to, here, tasks));
        }
    }

    /// Records the span of a running task, or makes its last span longer.
    fn span(&mut self, from: Nanos, to: Nanos, here: &OnPu, tasks: &[SimulatedTask]) {
        let task = tasks[here.task].id;
        let open = self.open[here.pu.idx()].map(|place| &mut self.spans[place]);
        if let Some(last) = open.filter(|last| last.task == task && last.to == from) {
            last.to = to;
        } else if self.spans.len() < self.most_spans {
            self.open[here.pu.idx()] = Some(self.spans.len());
            self.spans.push(TaskSpan { task, pu: here.pu, from, to });
        }
    }

    /// Mean use of the machine over a number of seconds.
    pub fn used(&self, platform: &Platform<'_>, demands: &Demands, seconds: f64) -> Used {
        Used {
            caches: self.levels(platform, seconds),
            port_groups: self.port_groups(platform, demands, seconds),
            ..share(&self.used, seconds)
        }
    }

    /// Mean use of each level of caches.
    fn levels(&self, platform: &Platform<'_>, seconds: f64) -> Vec<LevelUse> {
        let machine = platform.machine;
        let levels = platform.performance.caches.iter().map(|level| {
            let of_level = machine.caches.iter().zip(&self.caches);
            let of_level = of_level.filter(|(cache, _)| {
                cache.level == level.level && cache.kind != CacheKind::Instruction
            });
            let used: Vec<f64> = of_level.map(|(_, used)| *used).collect();
            let known = level.bandwidth.filter(|_| seconds > 0.0 && !used.is_empty());
            let mean = used.iter().sum::<f64>() / used.len() as f64 / seconds;
            LevelUse { level: level.level, used: known.map(|_| mean) }
        });
        levels.collect()
    }

    /// Use of the ports of each kind of core. The choice between several ports is not simulated:
    /// work is spread evenly; see [`ports`].
    fn port_groups(
        &self,
        platform: &Platform<'_>,
        demands: &Demands,
        seconds: f64,
    ) -> Vec<PortGroupUse> {
        let machine = platform.machine;
        let mut all = Vec::new();
        for (kind, core) in platform.performance.kinds.iter().enumerate() {
            let cores = machine.cores.iter().filter(|core| core.kind.idx() == kind).count();
            let cycles = cores as f64 * core.clock.0 as f64 * seconds;
            let work = self.done.iter().enumerate().flat_map(|(phase, done)| {
                let asked = demands.of(phase, kind).ports.iter();
                asked.map(move |&(set, each)| (set, done[kind] * each / cycles))
            });
            let uses = ports::spread(core.ports.len(), &work.collect::<Vec<_>>());
            for group in ports::groups(core.ports.len(), &core.units) {
                let members = (0..uses.len()).filter(|port| group.0 >> port & 1 == 1);
                let sum: f64 = members.clone().map(|port| uses[port]).sum();
                all.push(PortGroupUse {
                    kind: machine.kinds[kind].name.clone(),
                    ports: members.clone().map(|port| core.ports[port].clone()).collect(),
                    used: sum / f64::from(group.len()),
                    fullest: members.map(|port| uses[port]).fold(0.0, f64::max),
                });
            }
        }
        all
    }
}

fn add(sums: &mut [f64], values: &[f64], times: f64) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value * times;
    }
}

/// Parts of a number of seconds; 0 of no time.
fn shares(sums: &[f64], seconds: f64) -> Vec<f64> {
    sums.iter().map(|sum| if seconds > 0.0 { sum / seconds } else { 0.0 }).collect()
}

fn share(used: &Used, seconds: f64) -> Used {
    Used {
        pus: shares(&used.pus, seconds),
        slots: shares(&used.slots, seconds),
        ports: shares(&used.ports, seconds),
        controllers: shares(&used.controllers, seconds),
        links: shares(&used.links, seconds),
        ..Used::default()
    }
}

#[cfg(test)]
mod tests {
    use crate::Outcome;
    use crate::testing::{platform, scenario};
    use crate::world::World;
    use colocate_machine::Nanos;
    use colocate_model::Phase;
    use colocate_model::phase::{Known, PortWork};

    /// Three threads on the described EPYC 7301 that do work of these kinds, and nothing else is
    /// known of.
    fn outcome(kinds: PortWork) -> Outcome {
        let phase = Phase { work: Known::new(kinds, "chosen for a test"), ..Phase::default() };
        let scenario = scenario(phase, false);
        let mut world = World::new(platform(), &scenario).unwrap();
        while world.parts().ends.of_quantum() != colocate_evidence::QuantumEnd::AllJobsEnded {
            world.run(Nanos::from_secs(100)).unwrap();
        }
        world.outcome()
    }

    /// Groups hold the same work as cores: two ways to add it up.
    #[test]
    fn ports_of_groups_are_those_of_cores() {
        use colocate_machine::performance::WorkKind::{FloatMul, Int, IntDiv};
        let kinds = PortWork::Kinds(vec![(Int, 0.5), (IntDiv, 0.01), (FloatMul, 0.1)]);
        let used = outcome(kinds).used;
        let cores = used.ports.iter().sum::<f64>() / used.ports.len() as f64;
        let all: usize = used.port_groups.iter().map(|group| group.ports.len()).sum();
        let groups = used.port_groups.iter().map(|group| group.used * group.ports.len() as f64);
        let groups = groups.sum::<f64>() / all as f64;
        assert!(cores > 0.0 && (groups / cores - 1.0).abs() < 1e-6, "{groups} {cores}");
    }

    /// An instruction has 0.5 additions, which any of four ports does, and 0.01 divisions, which
    /// take 41 cycles of the divider and one of one of the four: 0.51 and 0.41 cycles.
    #[test]
    fn groups_have_the_names_of_the_description() {
        use colocate_machine::performance::WorkKind::{Int, IntDiv};
        let used = outcome(PortWork::Kinds(vec![(Int, 0.5), (IntDiv, 0.01)])).used;
        let group = |port: &str| {
            let has = |name: &String| name == port;
            used.port_groups.iter().find(|group| group.ports.iter().any(has)).unwrap()
        };
        let (adders, divider) = (group("ZnALU0"), group("ZnDivider"));
        assert_eq!(adders.ports, ["ZnALU0", "ZnALU1", "ZnALU2", "ZnALU3"]);
        assert_eq!(divider.ports, ["ZnDivider"]);
        assert!((adders.used * 4.0 / divider.used - 0.51 / 0.41).abs() < 1e-9);
        assert!((adders.fullest - adders.used).abs() < 1e-12, "there is room to even it out");
        assert!(group("ZnFPU0").used == 0.0);
        // The description says what the second and the third cache deliver.
        let known: Vec<bool> = used.caches.iter().map(|level| level.used.is_some()).collect();
        assert_eq!(known, [false, true, true]);
    }
}
