//! A perf event: opening, enabling and disabling.

#![allow(unsafe_code)] // perf_event_open and its ioctls

use colocate_linux::{SysError, Tid, privilege};
use colocate_machine::PuNr;
use perf_event_open_sys as sys;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use sys::bindings as c;

/// Fields that the kernel adds to every record, in this order: process and thread, time, CPU.
/// [`record::parse`](super::record::parse) depends on the order.
pub const STAMP: u32 = c::PERF_SAMPLE_TID | c::PERF_SAMPLE_TIME | c::PERF_SAMPLE_CPU;

/// Instruction pointer's index among the sampled registers: PERF_REG_X86_IP and PERF_REG_ARM64_PC
/// of the kernel's asm/perf_regs.h.
const INSTRUCTION_POINTER: u32 = if cfg!(target_arch = "aarch64") { 32 } else { 8 };

/// Register that shows whether a thread is in a system call: PERF_REG_X86_AX of the kernel's
/// asm/perf_regs.h. `None` on other architectures.
const SYSTEM_CALL: Option<u32> = if cfg!(target_arch = "x86_64") { Some(0) } else { None };

/// Mask of the general registers of x86-64 in the kernel's numbering (asm/perf_regs.h):
/// PERF_REG_X86_AX to _SP, and _R8 to _R15.
const GENERAL: u64 = 0xff_00ff;

/// Hardware number of each register of [`Attr::with_registers`], in the order of a sample: `rax`,
/// `rbx`, `rcx`, `rdx`, `rsi`, `rdi`, `rbp`, `rsp`, `r8` and so on.
pub(super) const REGISTERS: [u8; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

/// Attributes of an event. Times are on `CLOCK_MONOTONIC`. Kernel and hypervisor are excluded by
/// default: they need a privilege, and are not the program's instructions.
#[derive(Clone, Copy, Debug)]
pub struct Attr(c::perf_event_attr);

impl Attr {
    /// Dummy event: counts nothing, and only carries the kernel's task events.
    ///
    /// Reports thread creations, exits and new names. A poll(2) wakes when `watermark_b` bytes
    /// wait; 1 wakes at each record.
    pub fn task_events(watermark_b: u32) -> Self {
        let mut attr = Self::software(c::PERF_COUNT_SW_DUMMY);
        attr.0.set_task(1);
        attr.0.set_comm(1);
        // Without this flag, an exec is reported like any other change of a name.
        attr.0.set_comm_exec(1);
        attr.0.set_watermark(1);
        attr.0.__bindgen_anon_2.wakeup_watermark = watermark_b;
        attr
    }

    /// Samples of the instruction pointer, one every `period_ns` of CPU time, with records of
    /// tasks, executable mappings and, at a task's exit, its CPU time. A poll(2) wakes when
    /// `watermark_b` bytes wait.
    pub fn clock_samples(period_ns: u64, watermark_b: u32) -> Self {
        let mut attr = Self::clock(period_ns, watermark_b);
        attr.0.set_task(1);
        attr.0.set_comm(1);
        attr.0.set_comm_exec(1);
        attr.0.set_mmap(1);
        attr.0.set_mmap2(1);
        attr.0.set_inherit_stat(1);
        attr
    }

    /// Samples of the software CPU clock without task records; idle PUs give no samples.
    pub fn clock(period_ns: u64, watermark_b: u32) -> Self {
        let mut attr = Self::software(c::PERF_COUNT_SW_CPU_CLOCK);
        attr.0.sample_type |= u64::from(c::PERF_SAMPLE_IP);
        attr.0.__bindgen_anon_1.sample_period = period_ns;
        attr.0.set_exclude_idle(1);
        attr.0.set_watermark(1);
        attr.0.__bindgen_anon_2.wakeup_watermark = watermark_b;
        attr
    }

    /// Task records as in [`Attr::clock_samples`], without samples.
    pub fn task_events_and_maps(watermark_b: u32) -> Self {
        let mut attr = Self::task_events(watermark_b);
        attr.0.set_mmap(1);
        attr.0.set_mmap2(1);
        attr
    }

    /// Samples of memory accesses, about `rate_hz` per second of CPU time, for
    /// [`accessed`](super::accessed). The event is `config` and `config1` of PMU `kind`; `precise`
    /// is its `precise_ip` (perf_event_open(2)).
    pub fn memory(kind: u32, [config, config1]: [u64; 2], precise: u8, rate_hz: u32) -> Self {
        let mut attr = Self::of(kind, config).stamped();
        attr.0.set_sample_id_all(1);
        attr.0.__bindgen_anon_3.config1 = config1;
        let data = c::PERF_SAMPLE_IP | c::PERF_SAMPLE_ADDR | c::PERF_SAMPLE_DATA_SRC;
        attr.0.sample_type |= u64::from(data);
        attr.0.set_precise_ip(precise.into());
        attr.0.set_freq(1);
        attr.0.__bindgen_anon_1.sample_freq = rate_hz.into();
        attr
    }

    /// Samples of the tracepoint with the kernel's number `id`, about `rate_hz` per second, for
    /// [`Tracepoint::records`](super::Tracepoint::records). Each sample has the event's count so
    /// far, the tracepoint's data and, on x86-64, the register that shows whether the thread is in
    /// a system call.
    pub fn tracepoint(id: u64, rate_hz: u64) -> Self {
        let data = c::PERF_SAMPLE_READ | c::PERF_SAMPLE_RAW;
        let mut attr = Self::of(c::PERF_TYPE_TRACEPOINT, id).stamped();
        attr.0.sample_type |= u64::from(data);
        if let Some(register) = SYSTEM_CALL {
            attr.0.sample_type |= u64::from(c::PERF_SAMPLE_REGS_USER);
            attr.0.sample_regs_user = 1 << register;
        }
        attr.0.set_freq(1);
        attr.0.__bindgen_anon_1.sample_freq = rate_hz;
        // Tracepoints fire in the kernel; without this they would never be sampled.
        attr.with_kernel()
    }

    /// User-mode counter, event `config` of PMU `kind`, read with its group.
    pub fn counter(kind: u32, config: u64) -> Self {
        let mut attr = Self::of(kind, config);
        attr.0.read_format = u64::from(
            c::PERF_FORMAT_GROUP
                | c::PERF_FORMAT_TOTAL_TIME_ENABLED
                | c::PERF_FORMAT_TOTAL_TIME_RUNNING,
        );
        attr
    }

    /// Follow future threads and processes of the watched task, too.
    pub fn inherited(mut self) -> Self {
        self.0.set_inherit(1);
        self
    }

    /// Sample the kernel, too; needs `CAP_PERFMON` or a `perf_event_paranoid` of at most 1.
    pub fn with_kernel(mut self) -> Self {
        self.0.set_exclude_kernel(0);
        self
    }

    /// As [`Attr::with_kernel`]; samples in the kernel also have the user-mode instruction pointer.
    pub fn with_kernel_and_caller(mut self) -> Self {
        self.0.sample_type |= u64::from(c::PERF_SAMPLE_REGS_USER);
        self.0.sample_regs_user |= 1 << INSTRUCTION_POINTER;
        self.with_kernel()
    }

    /// Samples also have the general registers of x86-64, in the order of [`REGISTERS`].
    pub fn with_registers(mut self) -> Self {
        self.0.sample_type |= u64::from(c::PERF_SAMPLE_REGS_USER);
        self.0.sample_regs_user |= GENERAL;
        self
    }

    /// Start disabled.
    pub fn disabled(mut self) -> Self {
        self.0.set_disabled(1);
        self
    }

    /// Enable when the thread executes a program.
    pub fn at_exec(mut self) -> Self {
        self.0.set_enable_on_exec(1);
        self
    }

    /// Count records dropped from a full ring, for [`PerfEvent::lost`]. Since Linux 6.0; earlier
    /// kernels refuse with `EINVAL`.
    pub fn counting_lost(mut self) -> Self {
        self.0.read_format |= u64::from(c::PERF_FORMAT_LOST);
        self
    }

    fn software(config: c::perf_sw_ids) -> Self {
        let mut attr = Self::of(c::PERF_TYPE_SOFTWARE, u64::from(config)).stamped();
        attr.0.set_sample_id_all(1);
        attr
    }

    /// Adds [`STAMP`] to each record.
    fn stamped(mut self) -> Self {
        self.0.sample_type = u64::from(STAMP);
        self.0.clockid = libc::CLOCK_MONOTONIC;
        self.0.set_use_clockid(1);
        self
    }

    fn of(kind: u32, config: u64) -> Self {
        let mut attr = c::perf_event_attr {
            type_: kind,
            size: u32::try_from(size_of::<c::perf_event_attr>()).expect("a few hundred bytes"),
            config,
            ..Default::default()
        };
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        Self(attr)
    }
}

/// An open event, closed on drop together with its inherited copies.
#[derive(Debug)]
pub struct PerfEvent(OwnedFd);

impl PerfEvent {
    /// Opens `attr` for thread `tid`, counting on `cpu`, or on all CPUs if `None`.
    ///
    /// # Errors
    /// The kernel's: `EACCES` or `EPERM` if `perf_event_paranoid`, a security module or the
    /// thread's owner forbid the event; `ENOSYS` if a seccomp filter or the kernel lacks the call;
    /// `ESRCH` if the thread is gone; `EMFILE` without a free descriptor.
    pub fn open(attr: &Attr, tid: Tid, cpu: Option<PuNr>) -> Result<Self, SysError> {
        Self::open_in(attr, tid, cpu, None)
    }

    /// As [`PerfEvent::open`], in the group of `leader`.
    pub(crate) fn open_in(
        attr: &Attr,
        tid: Tid,
        cpu: Option<PuNr>,
        leader: Option<&Self>,
    ) -> Result<Self, SysError> {
        // -1 stands for any CPU and, below, for no group (perf_event_open(2)).
        let cpu = cpu.map_or(-1, |cpu| cpu.0.cast_signed());
        let leader = leader.map_or(-1, |leader| leader.0.as_raw_fd());
        let mut attr = attr.0;
        let flags = libc::c_ulong::from(c::PERF_FLAG_FD_CLOEXEC);
        privilege::watching(|| {
            // SAFETY: `attr` is a whole attribute structure with its size filled in, and lives
            // through the call.
            let fd = unsafe { sys::perf_event_open(&raw mut attr, tid.0, cpu, leader, flags) };
            if fd < 0 {
                return Err(SysError::last("perf_event_open"));
            }
            // SAFETY: the kernel has just given us this descriptor; it has no other owner.
            Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
        })
    }

    /// Enables all events of the group.
    pub(crate) fn enable_group(&self) -> Result<(), SysError> {
        // SAFETY: this ioctl takes a flag, no pointer.
        let done = unsafe { sys::ioctls::ENABLE(self.0.as_raw_fd(), c::PERF_IOC_FLAG_GROUP) };
        ok(done, "ioctl(PERF_EVENT_IOC_ENABLE)")
    }

    /// Enables or disables the event.
    pub(crate) fn switch(&self, on: bool) -> Result<(), SysError> {
        let fd = self.0.as_raw_fd();
        // SAFETY: these ioctls take a flag, no pointer.
        let done =
            unsafe { if on { sys::ioctls::ENABLE(fd, 0) } else { sys::ioctls::DISABLE(fd, 0) } };
        ok(done, "ioctl(PERF_EVENT_IOC_ENABLE)")
    }

    /// Reads the words that `read_format` requests.
    pub(crate) fn read(&self, words: &mut [u64]) -> Result<(), SysError> {
        const CALL: &str = "read of a perf event";
        let wanted = size_of_val(words);
        // SAFETY: `words` has room for `wanted` bytes.
        let got = unsafe { libc::read(self.0.as_raw_fd(), words.as_mut_ptr().cast(), wanted) };
        match usize::try_from(got) {
            Ok(got) if got == wanted => Ok(()),
            Ok(_) => Err(SysError::of(CALL, libc::EIO)),
            Err(_) => Err(SysError::last(CALL)),
        }
    }

    /// Records of the event and its inherited copies dropped from a full ring. Valid only if opened
    /// with [`Attr::counting_lost`].
    pub(crate) fn lost(&self) -> Result<u64, SysError> {
        // `read_format` puts the event's count before the lost records.
        let mut words = [0; 2];
        self.read(&mut words).map(|()| words[1])
    }

    /// Count of the event; `with_lost` says whether it was opened with [`Attr::counting_lost`].
    pub(crate) fn count(&self, with_lost: bool) -> Result<u64, SysError> {
        let mut words = [0; 2];
        self.read(&mut words[..1 + usize::from(with_lost)]).map(|()| words[0])
    }

    /// Sends the event's records to the ring of `other`, an event on the same CPU.
    ///
    /// # Errors
    /// `EINVAL` if the CPU or the clock differs.
    pub fn output_to(&self, other: &Self) -> Result<(), SysError> {
        // SAFETY: this ioctl takes a descriptor, no pointer.
        let done = unsafe { sys::ioctls::SET_OUTPUT(self.0.as_raw_fd(), other.0.as_raw_fd()) };
        ok(done, "ioctl(PERF_EVENT_IOC_SET_OUTPUT)")
    }
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn ok(done: libc::c_int, call: &'static str) -> Result<(), SysError> {
    if done < 0 { Err(SysError::last(call)) } else { Ok(()) }
}
