/* What the eBPF program and its reader share, and the few fields of the kernel's that it reads. Where these lie is found when
 * the program is loaded, by the type information of the running kernel.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false, true };
#define NULL ((void *)0)

/* include/uapi/linux/bpf.h */
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_RINGBUF = 27 };
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define OF_KERNEL __attribute__((preserve_access_index))

struct sched_entity {
    __u64 sum_exec_runtime;
} OF_KERNEL;

struct ns_common {
    unsigned int inum;
} OF_KERNEL;

struct pid_namespace {
    struct ns_common ns;
} OF_KERNEL;

/* A number in one namespace. */
struct upid {
    int nr;
    struct pid_namespace *ns;
};

/* A thread's numbers, from the first namespace to its own one. */
struct pid {
    unsigned int level;
    struct upid numbers[1];
} OF_KERNEL;

struct task_struct {
    unsigned int __state;
    int pid;
    struct task_struct *group_leader;
    struct pid *thread_pid;
    struct sched_entity se;
} OF_KERNEL;

/* include/linux/pid_namespace.h: so deep they can be nested. */
enum { MAX_PID_NS_LEVEL = 32 };

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
    long orig_ax;
} OF_KERNEL;
#define SYSCALL_NR orig_ax
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
    __s32 syscallno;
} OF_KERNEL;
#define SYSCALL_NR syscallno
#endif

/* The rest is read in loaded.rs. */

/* A watched thread that has just been put in sleeps until it is seen to do something else. One that is woken sleeps until it
 * runs. */
enum state { SLEEPS, WAITS, RUNS };

/* No watched thread: thread 0 is the idle one. */
enum { OTHERS = 0 };

struct task {
    __u64 since;     /* when its state began, CLOCK_MONOTONIC */
    __u64 woken;     /* when it was last woken; 0 if it never was */
    __u32 state;
    __u32 waker;     /* that last woke it */
    __u32 waker_cpu; /* where that was */
    __u32 partner;   /* the thread that it last woke or that last woke it; 0 if there was none */
    __u32 job;
    __u32 is_counted; /* whether it is one of its job's runnable threads */
    __u64 ran_ns;     /* the kernel's sum until its state began */
    __u64 waited_ns;  /* for a PU, since it was watched; without a wait that has not ended */
    __u32 reported;   /* the reading, from 1, for which it was last reported */
    __u32 unused;
};

/* How many jobs there is room for. */
enum { JOBS = 1024 };

/* A phase that has lasted for so long is reported when it ends. Chosen: shorter ones are seen as a whole in the quanta of a policy,
 * and fork-joins of microseconds must not wake it. */
enum { LASTED_NS = 20000000 };

struct job {
    __u64 since;    /* when it last began or ceased to have more than one runnable thread */
    __s32 runnable; /* threads that have a PU or wait for one */
    __u32 unused;
};

struct pair {
    __u32 waker;
    __u32 wakee;
};

struct wake_ups {
    __u64 count;       /* until the wakee had a PU */
    __u64 same_pu;     /* of these: where the waker was */
    __u64 waited_ns;   /* from the wake-up until the wakee had a PU */
    __u64 both_ran_ns; /* at the same time; of (a, b) and (b, a) together */
};

/* When wake-ups and switches are followed. User space opens it anew, after it has ended. CLOCK_MONOTONIC. */
struct window {
    __u64 from;
    __u64 until; /* 0 after it has ended */
};

struct lost {
    __u64 tasks; /* no room for another thread */
    __u64 pairs; /* no room for another pair */
};
