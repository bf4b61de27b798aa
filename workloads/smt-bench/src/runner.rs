//! Runs a kernel for a number of iterations, or until stopped by its control.

use crate::control::Control;
use crate::kernel::{Kernel, KernelSpec};
use crate::list::List;
use crate::loops;

/// A prepared workload, with the state kept between calls.
pub struct Runner {
    kernel: Kernel,
    list: Option<List>,
}

impl Runner {
    /// Prepares `workload`; allocates and writes its list here, not while running.
    #[must_use]
    pub fn new(workload: KernelSpec) -> Self {
        let walks = workload.kernel == Kernel::LoadDep;
        Self { kernel: workload.kernel, list: walks.then(|| List::new(workload.list)) }
    }

    /// Runs `iterations` iterations, or fewer if stopped by `control`, and returns the number done.
    /// The stop flag is read after each iteration, so at least one is done unless `iterations` is
    /// 0.
    pub fn run(&mut self, control: &Control, iterations: u64) -> u64 {
        let before = control.done();
        if iterations > 0 {
            // `u64::MAX` iterations stand for a run until the stop flag.
            self.run_to(control, before.saturating_add(iterations));
        }
        control.done() - before
    }

    /// A function that runs as many iterations as it is called with.
    pub(crate) fn repeated(&mut self) -> impl FnMut(u64) {
        let control = Control::new();
        move |iterations| _ = self.run(&control, iterations)
    }

    /// Runs until `control.done()` is `limit`, and returns the result of the loop's computation.
    fn run_to(&mut self, control: &Control, limit: u64) -> f64 {
        match self.kernel {
            Kernel::Branch => loops::branch(control, limit),
            Kernel::FpAdd => loops::fp_add(control, limit),
            Kernel::FpMul => loops::fp_mul(control, limit),
            Kernel::FpDiv => loops::fp_div(control, limit),
            Kernel::IntAdd => loops::int_add(control, limit),
            Kernel::IntMul => loops::int_mul(control, limit),
            Kernel::IntDiv => loops::int_div(control, limit),
            Kernel::IntDivTp => loops::int_div_tp(control, limit),
            Kernel::LoadDep => {
                let list = self.list.as_mut().expect("`new` made the list");
                let end = loops::load_dep(control, limit, list.at());
                list.set_at(end);
                0.0
            }
        }
    }
}

/// Runs `iterations` iterations of `workload` and returns their number.
pub fn run_iterations(workload: impl Into<KernelSpec>, iterations: u64) -> u64 {
    Runner::new(workload.into()).run(&Control::new(), iterations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_does_the_requested_iterations() {
        for kernel in Kernel::ALL {
            for iterations in [0, 1, 2, 63, 64, 65, 1_000] {
                assert_eq!(run_iterations(kernel, iterations), iterations, "{kernel}");
            }
        }
    }

    #[test]
    fn progress_adds_up_over_calls() {
        for kernel in Kernel::ALL {
            let (control, mut runner) = (Control::new(), Runner::new(kernel.into()));
            assert_eq!((runner.run(&control, 10), runner.run(&control, 5)), (10, 5), "{kernel}");
            assert_eq!(control.done(), 15, "{kernel}");
        }
    }

    #[test]
    fn every_kernel_stops() {
        for kernel in Kernel::ALL {
            let control = Control::new();
            let done = std::thread::scope(|scope| {
                let worker = scope.spawn(|| Runner::new(kernel.into()).run(&control, u64::MAX));
                colocate_testing::wait_until("an iteration", || control.done() > 0);
                control.stop();
                worker.join().unwrap()
            });
            assert!(done >= 1 && done == control.done(), "{kernel}");
        }
    }

    #[test]
    fn a_stopped_control_lets_one_iteration_pass() {
        let control = Control::new();
        control.stop();
        assert_eq!(Runner::new(Kernel::IntAdd.into()).run(&control, 100), 1);
        assert!(control.stopped());
    }

    /// Denormals, infinities and NaNs are slow on many processors and would spoil the figures.
    #[test]
    fn floating_point_values_stay_normal() {
        for kernel in [Kernel::FpAdd, Kernel::FpMul, Kernel::FpDiv] {
            let mut runner = Runner::new(kernel.into());
            for limit in [1, 1_000, 1_000_000] {
                let sum = runner.run_to(&Control::new(), limit);
                assert!(sum.is_normal() && sum.abs() < 1e9, "{kernel}: {sum} after {limit}");
            }
        }
    }

    /// What the loops compute, worked out again one operation at a time.
    #[test]
    fn loops_compute_what_they_say() {
        let run_to =
            |kernel: Kernel, limit| Runner::new(kernel.into()).run_to(&Control::new(), limit);
        for (limit, passes) in [(1, 1.0), (250, 250.0)] {
            // Each loop adds 1 to every register, 32 times over all of them.
            let registers = loops::FP_CHAINS as f64;
            assert_eq!(run_to(Kernel::FpAdd, limit), registers + 32.0 * passes);
        }
        // Multiplying or dividing by 3/2 and 2/3 in turn leads back to where it began.
        for kernel in [Kernel::FpMul, Kernel::FpDiv] {
            let start = loops::FP_CHAINS as f64;
            assert!((run_to(kernel, 1_000) / start - 1.0).abs() < 1e-9, "{kernel}");
        }
    }

    #[test]
    fn the_traversal_goes_on_where_it_stopped() {
        let mut runner = Runner::new("load-dep:64".parse().unwrap());
        let at = |runner: &Runner| runner.list.as_ref().unwrap().at().addr();
        let (control, start) = (Control::new(), at(&runner));
        runner.run(&control, 3);
        assert_eq!(at(&runner) - start, 3 * 32 * 128);
        // 64 KiB are 512 nodes, 16 iterations of 32 steps.
        runner.run(&control, 13);
        assert_eq!(at(&runner), start);
    }

    /// `branch` again, one decision at a time.
    fn branch_model(iterations: u64) -> f64 {
        let mut pattern: u64 = 0xd1b5_4a32_d192_ed03;
        let [mut a, mut b, mut c, mut d] = [0_u64; 4];
        for _ in 0..iterations {
            pattern = pattern.rotate_left(1);
            let p = pattern;
            let add = |to: &mut u64, what: u64| *to = to.wrapping_add(what);
            let sub = |from: &mut u64, what: u64| *from = from.wrapping_sub(what);
            for bits in (0..8).map(|round| p >> (8 * round)) {
                if bits & 1 == 1 {
                    add(&mut a, bits)
                } else {
                    sub(&mut a, bits)
                }
                match bits >> 1 & 3 {
                    0 => (add(&mut a, p), b ^= p, sub(&mut c, p), add(&mut d, p)),
                    1 => (sub(&mut b, p), d ^= p, add(&mut c, p), add(&mut a, p)),
                    2 => (sub(&mut d, p), c ^= p, add(&mut a, p), add(&mut b, p)),
                    _ => (add(&mut d, p), a ^= p, sub(&mut b, p), add(&mut c, p)),
                };
            }
        }
        (a ^ b ^ c ^ d) as f64
    }

    #[test]
    fn every_branch_leads_where_it_should() {
        for limit in [1, 2, 3, 64, 65, 1_000] {
            let found = Runner::new(Kernel::Branch.into()).run_to(&Control::new(), limit);
            assert_eq!(found, branch_model(limit), "{limit} iterations");
        }
    }

    /// A quotient or remainder that became 0 or small would let the divider leave early.
    #[test]
    fn divisions_stay_hard() {
        for kernel in [Kernel::IntDiv, Kernel::IntDivTp] {
            for limit in [1, 2, 1_000] {
                let left = Runner::new(kernel.into()).run_to(&Control::new(), limit);
                assert!(left > 1e6, "{kernel}: {left} after {limit}");
            }
        }
    }
}
