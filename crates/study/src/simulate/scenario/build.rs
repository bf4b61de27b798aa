//! Builds an experiment from a scenario file, check by check.

use super::form::{
    BarrierForm, FetchForm, JobForm, PhaseForm, ScenarioForm, StretchForm, ThreadForm, WaitForm,
};
use super::kernel::kernel;
use super::{
    Experiment, Lines, MAX_DRAWS, MAX_JOBS, MAX_POLICIES, MAX_SEEDS, MAX_STRETCHES, MAX_TASKS, cpus,
};
use crate::simulate::contender::Contender;
use colocate_machine::cpulist::PuSet;
use colocate_machine::{Bytes, Machine, Nanos, NodeIdx, Performance, PuNr};
use colocate_model::Phase;
use colocate_model::phase::Guesses;
use colocate_policy::PolicySpec;
use colocate_sim::{
    Barrier, BarrierWait, Fetch, JobSpec, KernelScheduler, MemorySpec, MemoryUse, Method, Pages,
    PhaseIdx, PhaseSegment, PhaseSpec, PuEvent, Scenario, Serial, ThreadSpec, TotalWork,
};
use std::collections::HashMap;
use toml::Spanned;

/// Policies unless the file names some: the kernel alone, the order of the machine's numbering, and
/// the policy by the programs' mixes.
const POLICIES: [&str; 3] = [BASELINE, "round-robin", "mix"];
/// Baseline of comparisons unless the file names one.
const BASELINE: &str = "os";
/// Default number of seeds. Chosen: Student's t of 5 values reaches 1.2 standard deviations to
/// either side.
const SEEDS: u32 = 5;
/// Default number of draws. Chosen: each of the dozen assumptions is drawn high and low several
/// times.
const DRAWS: u32 = 16;
/// Default quantum: Feliu's.
const QUANTUM: Nanos = Nanos::from_millis(200);
/// Default horizon. Chosen: longer than any scenario that makes sense.
const HORIZON: Nanos = Nanos::from_secs(3_600);
/// Default watching time: that of `colocate run`.
const WATCH: Nanos = Nanos::from_secs(2);
/// Most parts of a memory, each of which moves as a whole. Chosen.
const MAX_PARTS: u32 = 1_024;
/// Instructions of a stretch that outlasts every thread: days of the fastest core.
const WITHOUT_END: u64 = 10_u64.pow(15);

/// Machine and line numbers to check a file against.
pub(super) struct Build<'a> {
    pub lines: &'a Lines,
    pub machine: &'a Machine,
    pub performance: &'a Performance,
}

/// Phases by name.
type Names<'a> = HashMap<&'a str, PhaseIdx>;

impl Build<'_> {
    /// Builds the experiment of a file; `read` reads the demand vectors of other files. An error is a
    /// line with the first wrong value.
    pub(super) fn all(
        &self,
        form: &ScenarioForm,
        read: &dyn Fn(&str) -> Result<Vec<Phase>, String>,
    ) -> Result<Experiment, String> {
        self.lines.name(&form.name)?;
        let (policies, baseline) = self.policies(form)?;
        let phases = form.phase.iter().map(|phase| self.phase(phase.get_ref(), read));
        let phases = phases.collect::<Result<Vec<_>, _>>()?;
        let names = self.names(form)?;
        let usable = self.usable(form)?;
        let scenario = Scenario {
            name: form.name.get_ref().clone(),
            seed: form.seed.unwrap_or(1),
            phases,
            jobs: self.jobs(form, &names)?,
            method: form.method.unwrap_or(Method::Restart),
            quantum: self.lines.step(form.quantum.as_ref(), QUANTUM)?,
            grain: form.grain.as_ref().map_or(Nanos::ZERO, |grain| grain.0),
            horizon: self.lines.time(form.horizon.as_ref(), HORIZON)?,
            events: self.events(form, usable.as_deref())?,
            usable,
            kernel: form
                .kernel
                .as_ref()
                .map_or(Ok(KernelScheduler::default()), |it| kernel(self.lines, it))?,
        };
        Ok(Experiment {
            scenario,
            note: form.note.clone(),
            policies,
            baseline,
            seeds: self.lines.count(form.seeds.as_ref(), SEEDS, MAX_SEEDS)?,
            draws: self.lines.count(form.draws.as_ref(), DRAWS, MAX_DRAWS)?,
            profiled: form.profiled.unwrap_or(true),
            watch: self.lines.time(form.watch.as_ref(), WATCH)?,
        })
    }

    /// The policies of the file, and the baseline among them.
    fn policies(&self, form: &ScenarioForm) -> Result<(Vec<Contender>, Contender), String> {
        let policies = match &form.policies {
            None => POLICIES.map(named).to_vec(),
            Some(list) if list.get_ref().is_empty() || list.get_ref().len() > MAX_POLICIES => {
                let expected = format!("1 to {MAX_POLICIES} policies");
                return Err(self.lines.misfit(list, expected, list.get_ref().len()));
            }
            Some(list) => list.get_ref().iter().map(|policy| policy.get_ref().clone()).collect(),
        };
        for (place, policy) in form.policies.iter().flat_map(Spanned::get_ref).enumerate() {
            if policies[..place].contains(policy.get_ref()) {
                let found = format!("{policy} twice");
                return Err(self.lines.misfit(policy, "every policy once", found));
            }
        }
        let Some(baseline) = &form.baseline else {
            let default = policies.iter().find(|policy| **policy == named(BASELINE));
            // The default baseline may not be among the policies.
            let baseline = default.unwrap_or(&policies[0]).clone();
            return Ok((policies, baseline));
        };
        if !policies.contains(baseline.get_ref()) {
            let list: Vec<String> = policies.iter().map(ToString::to_string).collect();
            let expected = format!("one of the policies, {}", list.join(", "));
            return Err(self.lines.misfit(baseline, expected, baseline));
        }
        Ok((policies, baseline.get_ref().clone()))
    }

    /// The PUs that the file allows, in the machine's order; `None` for all.
    fn usable(&self, form: &ScenarioForm) -> Result<Option<Vec<PuNr>>, String> {
        let Some((place, cpus)) = cpus(form) else { return Ok(None) };
        if cpus.is_empty() {
            return Err(self.lines.misfit(place, "at least one CPU", "none"));
        }
        let online: Vec<PuNr> = self.machine.pus.iter().map(|pu| pu.os).collect();
        let missing = cpus.difference(&online.iter().copied().collect());
        if !missing.is_empty() {
            let expected = format!("CPUs that {} has online", self.machine.name);
            return Err(self.lines.misfit(place, expected, missing));
        }
        Ok(Some(online.into_iter().filter(|&pu| cpus.contains(pu)).collect()))
    }

    /// Hotplug events, one for each CPU.
    fn events(&self, form: &ScenarioForm, usable: Option<&[PuNr]>) -> Result<Vec<PuEvent>, String> {
        let known: PuSet = match usable {
            Some(usable) => usable.iter().copied().collect(),
            None => self.machine.pus.iter().map(|pu| pu.os).collect(),
        };
        let mut events = Vec::new();
        for spanned in &form.event {
            let event = spanned.get_ref();
            let (cpus, online) = match (&event.offline, &event.online) {
                (Some(cpus), None) => (cpus, false),
                (None, Some(cpus)) => (cpus, true),
                (both, _) => {
                    let found = if both.is_some() { "both" } else { "neither" };
                    return Err(self.lines.misfit(spanned, "offline or online = \"CPUS\"", found));
                }
            };
            if cpus.get_ref().0.is_empty() {
                return Err(self.lines.misfit(cpus, "at least one CPU", "none"));
            }
            let others = cpus.get_ref().0.difference(&known);
            if !others.is_empty() {
                return Err(self.lines.misfit(cpus, "CPUs that the jobs may use", others));
            }
            let cpus = cpus.get_ref().0.iter();
            events.extend(cpus.map(|pu| PuEvent { at: event.at.0, pu, online }));
        }
        Ok(events)
    }

    /// A phase, from its demand vector or from a file.
    fn phase(
        &self,
        form: &PhaseForm,
        read: &dyn Fn(&str) -> Result<Vec<Phase>, String>,
    ) -> Result<PhaseSpec, String> {
        if let Some(phase) = form.phase.as_ref().filter(|_| form.file.is_none()) {
            return Err(self.lines.misfit(phase, "a file that the phase is in", "none"));
        }
        let (mut phase, span) = match (&form.demand, &form.file) {
            (Some(demand), None) => (demand.get_ref().clone(), demand.span()),
            (None, Some(file)) => {
                let found = read(file.get_ref())
                    .map_err(|detail| self.lines.syntax(file.span(), detail))?;
                (self.one_of(found, form)?, file.span())
            }
            (both, _) => {
                let found = if both.is_some() { "both" } else { "neither" };
                return Err(self.lines.misfit(&form.name, "a demand or a file of one", found));
            }
        };
        // Only a check, made here where the line is known.
        for core in &self.performance.kinds {
            phase.on(core, &Guesses::default()).map_err(|error| {
                let detail = format!("phase {:?}: {error}", form.name.get_ref());
                self.lines.syntax(span.clone(), detail)
            })?;
        }
        if phase.name.is_empty() {
            phase.name.clone_from(form.name.get_ref());
        }
        let mut spec = PhaseSpec::of(phase);
        if let Some(mix) = form.mix {
            spec.mix = mix;
        }
        Ok(spec)
    }

    /// The phase of a file with the given name, or its only phase.
    fn one_of(&self, mut found: Vec<Phase>, form: &PhaseForm) -> Result<Phase, String> {
        let name = form.phase.as_ref().unwrap_or(&form.name);
        let named = found.iter().position(|phase| phase.name == *name.get_ref());
        let only = (form.phase.is_none() && found.len() == 1).then_some(0);
        if let Some(place) = named.or(only) {
            return Ok(found.swap_remove(place));
        }
        let names: Vec<String> = found.iter().map(|phase| format!("{:?}", phase.name)).collect();
        let expected = format!("one of the file's phases, {}", names.join(", "));
        Err(self.lines.misfit(name, expected, format!("{:?}", name.get_ref())))
    }

    /// Places of all phases by name; names must differ.
    fn names<'f>(&self, form: &'f ScenarioForm) -> Result<Names<'f>, String> {
        let mut names = Names::new();
        for (place, phase) in form.phase.iter().enumerate() {
            let name = &phase.get_ref().name;
            self.lines.name(name)?;
            let place = PhaseIdx(u32::try_from(place).unwrap_or(u32::MAX));
            if names.insert(name.get_ref(), place).is_some() {
                let found = format!("a second {:?}", name.get_ref());
                return Err(self.lines.misfit(name, "phases of different names", found));
            }
        }
        Ok(names)
    }

    /// The place of the phase with this name.
    fn named(&self, name: &Spanned<String>, names: &Names<'_>) -> Result<PhaseIdx, String> {
        names.get(name.get_ref().as_str()).copied().ok_or_else(|| {
            let expected = "the name of a [[phase]]";
            self.lines.misfit(name, expected, format!("{:?}", name.get_ref()))
        })
    }

    /// All jobs, copies included.
    fn jobs(&self, form: &ScenarioForm, names: &Names<'_>) -> Result<Vec<JobSpec>, String> {
        let mut jobs = Vec::new();
        let mut tasks = 0;
        let mut stretches = 0;
        for spanned in &form.job {
            let job = spanned.get_ref();
            self.lines.name(&job.name)?;
            let copies = self.copies(job.copies.as_ref())?;
            if jobs.len() + copies > MAX_JOBS {
                let expected = format!("at most {MAX_JOBS} jobs");
                return Err(self.lines.misfit(spanned, expected, jobs.len() + copies));
            }
            // Checked before copies are made, which could fill the memory.
            for thread in &job.thread {
                let each = copies * self.copies(thread.get_ref().copies.as_ref())?;
                tasks += each;
                let course = thread.get_ref().course.as_ref().map_or(1, |it| it.get_ref().len());
                stretches += each.saturating_mul(course);
                if tasks > MAX_TASKS || stretches > MAX_STRETCHES {
                    let expected = format!(
                        "at most {MAX_TASKS} threads, and {MAX_STRETCHES} stretches, in all jobs"
                    );
                    return Err(self.lines.misfit(thread, expected, "more"));
                }
            }
            let made = self.job(spanned, names)?;
            for number in 1..=copies {
                let mut made = made.clone();
                if copies > 1 {
                    made.name = format!("{}#{number}", made.name);
                }
                jobs.push(made);
            }
        }
        Ok(jobs)
    }

    fn copies(&self, copies: Option<&Spanned<u32>>) -> Result<usize, String> {
        self.lines.count(copies, 1, most_threads()).map(|copies| copies as usize)
    }

    fn job(&self, form: &Spanned<JobForm>, names: &Names<'_>) -> Result<JobSpec, String> {
        let job = form.get_ref();
        if job.thread.is_empty() {
            return Err(self.lines.misfit(form, "at least one [[job.thread]]", "none"));
        }
        let mut threads = Vec::new();
        for thread in &job.thread {
            let copies = self.copies(thread.get_ref().copies.as_ref())?;
            let made = self.thread(thread, names)?;
            threads.extend(std::iter::repeat_n(made, copies));
        }
        Ok(JobSpec {
            memory: self.memory(job, threads.len())?,
            name: job.name.get_ref().clone(),
            arrives: job.arrives.as_ref().map_or(Nanos::ZERO, |arrives| arrives.0),
            barrier: self.barrier(job, names)?,
            threads,
        })
    }

    /// Memory of a job: shared by all threads, or one for each.
    fn memory(&self, job: &JobForm, threads: usize) -> Result<Vec<MemorySpec>, String> {
        let mut all = Vec::new();
        for spanned in &job.memory {
            let form = spanned.get_ref();
            let bytes = form.size.get_ref().0;
            if bytes.0 == 0 {
                return Err(self.lines.misfit(&form.size, "a size above 0", "0"));
            }
            // Chosen: parts of 2 MiB, as huge pages, but not more than a second of samples
            // distinguishes.
            let usual = u32::try_from(bytes.0 >> 21).unwrap_or(u32::MAX).clamp(1, 16);
            let groups = self.lines.count(form.parts.as_ref(), usual, MAX_PARTS)?;
            let pages = self.pages(form.pages.as_ref())?;
            let fetch = match form.fetch {
                None => Fetch::No,
                Some(FetchForm::Move) => Fetch::Move,
                Some(FetchForm::MoveAndStay) => Fetch::MoveAndStay,
            };
            let writes = form.writes.unwrap_or(0.5);
            let users = (0..threads).map(|thread| MemoryUse {
                thread,
                share: form.share,
                writes,
                during: None,
                fetch,
            });
            if form.each.unwrap_or(false) {
                all.extend(users.map(|user| MemorySpec {
                    bytes,
                    pages,
                    groups,
                    users: vec![user],
                }));
            } else {
                all.push(MemorySpec { bytes, pages, groups, users: users.collect() });
            }
        }
        Ok(all)
    }

    /// The barrier of a job's threads; `None` if no thread has one in its course.
    fn barrier(&self, job: &JobForm, names: &Names<'_>) -> Result<Option<Barrier>, String> {
        let threads = job.thread.iter().map(Spanned::get_ref);
        let stretches =
            threads.filter_map(|thread| thread.course.as_ref()).flat_map(|c| c.get_ref());
        let barriers = stretches.filter_map(|stretch| stretch.get_ref().barrier.as_ref());
        let comes = barriers.into_iter().find(|barrier| *barrier.get_ref());
        let form = match (&job.barrier, comes) {
            (None, None) => return Ok(None),
            (Some(form), Some(_)) => form,
            (Some(form), None) => {
                let expected = "barrier = true in the course of a thread";
                return Err(self.lines.misfit(form, expected, "none"));
            }
            (None, Some(comes)) => {
                let expected = "barrier = { wait = … } of the job";
                return Err(self.lines.misfit(comes, expected, "none"));
            }
        };
        let BarrierForm { wait, spins, turns, serial } = form.get_ref();
        if let Some(turns) = turns.as_ref().filter(|_| *wait != WaitForm::Turns) {
            return Err(self.lines.misfit(turns, "wait = \"turns\" beside turns", "another one"));
        }
        if matches!(wait, WaitForm::Turns | WaitForm::Served) && serial.is_some() {
            return Err(self.lines.misfit(form, "turns or a serial part", "both"));
        }
        let wait = match (wait, spins) {
            (WaitForm::Sleep, None) => BarrierWait::Sleep,
            (WaitForm::Served, None) => BarrierWait::Served,
            (WaitForm::Turns, None) => {
                BarrierWait::Turns(self.lines.count(turns.as_ref(), 1, most_threads())?)
            }
            (WaitForm::Spin, Some(phase)) => BarrierWait::Spin(self.named(phase, names)?),
            (WaitForm::Spin, None) => {
                let expected = "spins = \"PHASE\" beside wait = \"spin\"";
                return Err(self.lines.misfit(form, expected, "none"));
            }
            (WaitForm::Sleep | WaitForm::Turns | WaitForm::Served, Some(phase)) => {
                let expected = "wait = \"spin\" beside spins";
                return Err(self.lines.misfit(phase, expected, "another one"));
            }
        };
        let serial = serial.as_ref().map(|serial| {
            let phase = self.named(&serial.phase, names)?;
            self.lines.some(&serial.instructions).map(|instructions| Serial { phase, instructions })
        });
        Ok(Some(Barrier { wait, serial: serial.transpose()? }))
    }

    /// A thread, from a single phase or a course.
    fn thread(&self, form: &Spanned<ThreadForm>, names: &Names<'_>) -> Result<ThreadSpec, String> {
        let thread = form.get_ref();
        let work = self.work(form)?;
        let course = match (&thread.phase, &thread.course) {
            (Some(phase), None) if work != TotalWork::Once => vec![PhaseSegment {
                phase: self.named(phase, names)?,
                instructions: match work {
                    TotalWork::Instructions(instructions) => instructions,
                    _ => WITHOUT_END,
                },
                sleep: Nanos::ZERO,
                barrier: false,
            }],
            (Some(phase), None) => {
                let expected = "instructions = N or alone-for = \"TIME\" beside a phase";
                return Err(self.lines.misfit(phase, expected, "neither"));
            }
            (None, Some(course)) if !course.get_ref().is_empty() => {
                let stretches = course.get_ref().iter().map(|each| self.stretch(each, names));
                stretches.collect::<Result<_, _>>()?
            }
            (None, Some(course)) => {
                return Err(self.lines.misfit(course, "at least one stretch", "none"));
            }
            (both, _) => {
                let found = if both.is_some() { "both" } else { "neither" };
                return Err(self.lines.misfit(form, "a phase or a course of them", found));
            }
        };
        if let Some(name) = &thread.name {
            self.lines.name(name)?;
        }
        let named = thread.name.as_ref().or(thread.phase.as_ref()).map(Spanned::get_ref);
        Ok(ThreadSpec {
            name: named.cloned().unwrap_or_else(|| "thread".to_owned()),
            born: thread.born.as_ref().map_or(Nanos::ZERO, |born| born.0),
            course,
            work,
            pages: self.pages(thread.pages.as_ref())?,
            resident: thread.resident.as_ref().map_or(Bytes(0), |resident| resident.0),
        })
    }

    /// The work of a thread: its course once, instructions, or a time alone.
    fn work(&self, form: &Spanned<ThreadForm>) -> Result<TotalWork, String> {
        let thread = form.get_ref();
        match (&thread.instructions, &thread.alone_for) {
            (None, None) => Ok(TotalWork::Once),
            (Some(count), None) => self.lines.some(count).map(TotalWork::Instructions),
            (None, time) => self.lines.time(time.as_ref(), Nanos::ZERO).map(TotalWork::AloneFor),
            (Some(count), Some(_)) => {
                Err(self.lines.misfit(count, "instructions or alone-for", "both"))
            }
        }
    }

    fn stretch(
        &self,
        form: &Spanned<StretchForm>,
        names: &Names<'_>,
    ) -> Result<PhaseSegment, String> {
        let stretch = form.get_ref();
        let instructions = self.lines.some(&stretch.instructions)?;
        let sleep = stretch.sleep.as_ref().map_or(Nanos::ZERO, |sleep| sleep.0);
        let barrier = stretch.barrier.as_ref().filter(|barrier| *barrier.get_ref());
        if let Some(barrier) = barrier.filter(|_| sleep > Nanos::ZERO) {
            return Err(self.lines.misfit(barrier, "sleep or a barrier", "both"));
        }
        let phase = self.named(&stretch.phase, names)?;
        Ok(PhaseSegment { phase, instructions, sleep, barrier: barrier.is_some() })
    }

    /// Placement of memory: `first-touch`, `first-thread`, `interleaved` or `node N`.
    fn pages(&self, form: Option<&Spanned<String>>) -> Result<Pages, String> {
        let Some(form) = form else { return Ok(Pages::default()) };
        let text = form.get_ref().as_str();
        match text {
            "first-touch" => return Ok(Pages::FirstTouch),
            "first-thread" => return Ok(Pages::FirstThread),
            "interleaved" => return Ok(Pages::Interleaved),
            _ => {}
        }
        let Some(number) = text.strip_prefix("node ") else {
            let expected = "first-touch, first-thread, interleaved or node N";
            return Err(self.lines.misfit(form, expected, format!("{text:?}")));
        };
        let number: Option<u32> = number.parse().ok();
        let place = self.machine.nodes.iter().position(|node| Some(node.os.0) == number);
        // A machine that reports no nodes counts as one node.
        let only = (self.machine.nodes.is_empty() && number == Some(0)).then_some(0);
        place.or(only).map(|place| Pages::On(NodeIdx::new(place))).ok_or_else(|| {
            let nodes = self.machine.nodes.len().max(1);
            let expected = format!("one of the {nodes} nodes of {}", self.machine.name);
            self.lines.misfit(form, expected, format!("{text:?}"))
        })
    }
}

/// The policy `name`, deciding once.
fn named(name: &str) -> Contender {
    Contender { policy: PolicySpec::named(name), waiting: None, guarded: false }
}

fn most_threads() -> u32 {
    u32::try_from(MAX_TASKS).unwrap_or(u32::MAX)
}
