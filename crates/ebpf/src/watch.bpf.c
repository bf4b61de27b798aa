/* Which watched thread wakes which, summed up in the kernel.
 *
 * A thread is watched if user space has put it into `tasks`, or if the thread that created it is watched. What finds no room
 * is counted in `lost`.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 * Loaded as "Dual MIT/GPL": some of the kernel's functions are for programs under a licence that goes with the GPL.
 */
#include "types.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* By thread number. Room is made when it is loaded. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __type(key, __u32);
    __type(value, struct task);
} tasks SEC(".maps");

/* User space takes out what has come together since it last did. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __type(key, struct pair);
    __type(value, struct wake_ups);
} pairs SEC(".maps");

struct lost lost;

static struct task *task_of(__u32 tid)
{
    return bpf_map_lookup_elem(&tasks, &tid);
}

static struct wake_ups *wake_ups_of(__u32 waker, __u32 wakee)
{
    struct pair pair = { .waker = waker, .wakee = wakee };
    struct wake_ups none = {};
    struct wake_ups *found = bpf_map_lookup_elem(&pairs, &pair);

    if (found)
        return found;
    bpf_map_update_elem(&pairs, &pair, &none, BPF_NOEXIST);
    found = bpf_map_lookup_elem(&pairs, &pair);
    if (!found)
        __sync_fetch_and_add(&lost.pairs, 1);
    return found;
}

/* Whether current was interrupted in user mode, so that it has nothing to do with what happens now. */
static bool is_interrupted(void)
{
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

    /* The number of the system call that it is in; negative if it is in none. */
    return BPF_CORE_READ(regs, SYSCALL_NR) < 0;
}

SEC("tp_btf/sched_waking")
int on_waking(__u64 *args)
{
    struct task_struct *woken = (void *)args[0];
    struct task *wakee = task_of(woken->pid);
    struct task *waker;
    __u32 tid = (__u32)bpf_get_current_pid_tgid();

    if (!wakee)
        return 0;
    waker = task_of(tid);
    if (!waker || is_interrupted()) {
        waker = NULL;
        tid = OTHERS;
    }
    /* It may not have left its PU yet, and may not do so: it counts when the thread runs after it slept. */
    wakee->woken = bpf_ktime_get_ns();
    wakee->waker = tid;
    wakee->waker_cpu = bpf_get_smp_processor_id();
    if (waker) {
        wakee->partner = tid;
        waker->partner = woken->pid;
    }
    return 0;
}

/* A thread leaves its PU. Adds for how long the thread that it last woke, or that last woke it, ran beside it. Of two that stop
 * one after the other the first one does so, and no time counts twice. */
static void leaves(struct task *task, __u32 tid, bool is_runnable, __u64 now)
{
    struct task *partner = task->partner ? task_of(task->partner) : NULL;

    if (partner && partner->state == RUNS && task->state == RUNS) {
        struct wake_ups *both = wake_ups_of(task->partner, tid);
        __u64 from = partner->since > task->since ? partner->since : task->since;

        if (both && now > from)
            __sync_fetch_and_add(&both->both_ran_ns, now - from);
    }
    task->since = now;
    task->state = is_runnable ? WAITS : SLEEPS;
}

/* A thread gets a PU. */
static void runs(struct task *task, __u32 tid, __u64 now)
{
    if (task->state == SLEEPS && task->woken) {
        struct wake_ups *wake_ups = wake_ups_of(task->waker, tid);
        __u64 from = task->woken > task->since ? task->woken : task->since;

        if (wake_ups) {
            __sync_fetch_and_add(&wake_ups->count, 1);
            if (now > from)
                __sync_fetch_and_add(&wake_ups->waited_ns, now - from);
            if (task->waker_cpu == bpf_get_smp_processor_id())
                __sync_fetch_and_add(&wake_ups->same_pu, 1);
        }
    }
    task->since = now;
    task->state = RUNS;
}

SEC("tp_btf/sched_switch")
int on_switch(__u64 *args)
{
    bool is_preempted = args[0];
    struct task_struct *prev = (void *)args[1], *next = (void *)args[2];
    struct task *task = prev->pid ? task_of(prev->pid) : NULL;

    if (task)
        leaves(task, prev->pid, is_preempted || !prev->__state, bpf_ktime_get_ns());
    task = next->pid ? task_of(next->pid) : NULL;
    if (task)
        runs(task, next->pid, bpf_ktime_get_ns());
    return 0;
}

SEC("tp_btf/sched_process_fork")
int on_creation(__u64 *args)
{
    struct task_struct *creator = (void *)args[0], *created = (void *)args[1];
    struct task task = { .state = WAITS, .since = bpf_ktime_get_ns() };
    __u32 tid = created->pid;

    if (task_of(creator->pid) && bpf_map_update_elem(&tasks, &tid, &task, BPF_ANY))
        __sync_fetch_and_add(&lost.tasks, 1);
    return 0;
}

/* A thread that is not its process's first one takes over the first one's number. */
SEC("tp_btf/sched_process_exec")
int on_exec(__u64 *args)
{
    struct task_struct *executing = (void *)args[0];
    __u32 before = args[1], tid = executing->pid;
    struct task *task = task_of(before);

    if (task && before != tid) {
        bpf_map_update_elem(&tasks, &tid, task, BPF_ANY);
        bpf_map_delete_elem(&tasks, &before);
    }
    return 0;
}

SEC("tp_btf/sched_process_exit")
int on_end(__u64 *args)
{
    struct task_struct *ended = (void *)args[0];
    __u32 tid = ended->pid;

    bpf_map_delete_elem(&tasks, &tid);
    return 0;
}
