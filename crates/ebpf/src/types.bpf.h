/* Types shared by the eBPF program and its reader, and the kernel's fields that the program reads. Their offsets are found at
 * load time, from the type information of the running kernel.
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

/* Number of a thread in one PID namespace. */
struct upid {
    int nr;
    struct pid_namespace *ns;
};

/* Numbers of a thread, from the first PID namespace to its own. */
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

/* include/linux/pid_namespace.h: greatest nesting of PID namespaces. */
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

/* loaded.rs reads the following types by offset. */

/* State of a watched thread. A newly added thread counts as asleep until its first event, and a woken thread until it runs. */
enum state { SLEEPS, WAITS, RUNS };

/* Number of a waker that is not watched: thread 0 is the idle thread. */
enum { OTHERS = 0 };

struct task {
    __u64 since;     /* beginning of the state, CLOCK_MONOTONIC */
    __u64 woken;     /* time of the last wake-up; 0 if never woken */
    __u32 state;
    __u32 waker;     /* last waker */
    __u32 waker_cpu; /* CPU of the last waker */
    __u32 partner;   /* last thread woken or last waker; 0 for none */
    __u32 job;
    __u32 is_counted; /* 1 if counted among the job's runnable threads */
    __u64 ran_ns;     /* CPU time until the beginning of the state */
    __u64 waited_ns;  /* wait for a PU since added, without an unfinished wait */
    __u32 reported;   /* reading of the last report, from 1 */
    __u32 turn_waker; /* waker of the last turn */
    __u64 turn_from;  /* wake-up that began the current turn; 0 while there is none */
    __u64 turn_ns;    /* length of the last turn, until it is added to its pair; 0 for none */
    __u32 turn_same;  /* 1 if the last turn began on the waker's PU */
    __u32 unused;
};

/* Most jobs with phases. */
enum { JOBS = 1024 };

/* Least length of a phase whose end is reported. Chosen: shorter phases fit into the quanta of a policy, and fork-joins of
 * microseconds must not wake it. */
enum { LASTED_NS = 20000000 };

/* Longest turn that counts. Chosen: a time slice of another thread lasts longer, and wake-ups of turns as long cost a hundredth
 * of them. */
enum { LONGEST_TURN_NS = 2000000 };

struct job {
    __u64 since;    /* beginning of the current phase */
    __s32 runnable; /* threads that have a PU or wait for one */
    __u32 unused;
};

struct pair {
    __u32 waker;
    __u32 wakee;
};

struct wake_ups {
    __u64 count;       /* wake-ups after which the wakee had a PU */
    __u64 same_pu;     /* of these, on the waker's PU */
    __u64 waited_ns;   /* from the wake-up until the wakee had a PU */
    __u64 both_ran_ns; /* time both ran; the sum of (a, b) and (b, a) is the whole */
    /* Turns of the wakee, from the wake-up until it wakes its waker or sleeps: at 0 those that began on another PU than the
     * waker's, at 1 those on the same. */
    __u64 turns[2];
    __u64 turns_ns[2];
};

/* Time in which wake-ups and switches are followed, CLOCK_MONOTONIC. User space opens the next window after the end. */
struct window {
    __u64 from;
    __u64 until; /* 0 after the end */
};

struct lost {
    __u64 tasks; /* no room for another thread */
    __u64 pairs; /* no room for another pair */
};
