/* Wake-ups between watched threads, their run and wait times, and the ends of the phases of jobs, summed in the kernel.
 *
 * Thread numbers are those of user space's PID namespace; threads without a number there are not watched.
 * A thread is watched if user space has added it to `tasks`, or if its creator is watched. Threads and pairs that find no
 * room are counted in `lost`. Between two windows only creations and ends of threads are followed.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 * Loaded as "Dual MIT/GPL": some of the kernel's functions require a GPL-compatible licence.
 */
#include "types.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Watched threads, by thread number. User space sets the size at load time. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __type(key, __u32);
    __type(value, struct task);
} tasks SEC(".maps");

/* Number of a thread created by a watched thread, by the kernel's own number. Used only outside the first PID namespace, as
 * the tracepoint of an exec has the kernel's number only. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __type(key, __u32);
    __type(value, __u32);
} numbers SEC(".maps");

/* Sums of each pair of threads; user space reads and clears them. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __type(key, struct pair);
    __type(value, struct wake_ups);
} pairs SEC(".maps");

/* Wake-ups of watched threads by processes without watched threads, by process. Processes beyond the size are not counted. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 256);
    __type(key, __u32);
    __type(value, __u64);
} outside SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, JOBS);
    __type(key, __u32);
    __type(value, struct job);
} jobs SEC(".maps");

/* Reports of ended phases: number of the job. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} ended SEC(".maps");

/* Threads that have left or got a PU since the last reading of user space. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 256 * 1024);
} changed SEC(".maps");

/* Number of readings of user space so far. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} readings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct window);
} windows SEC(".maps");

struct lost lost;

/* Inode number of user space's PID namespace; 0 for the first namespace, which has the kernel's own numbers. User space sets
 * the three constants before loading. */
const volatile __u32 namespace_inode = 0;
/* Events followed in addition to the times of threads. */
const volatile bool follows_pairs = true;
const volatile bool follows_phases = true;

static struct task *task_of(__u32 tid)
{
    return bpf_map_lookup_elem(&tasks, &tid);
}

/* Number of a thread in user space's PID namespace; 0 for a thread without a number there, or an ended one. */
static __u32 tid_of(struct task_struct *task)
{
    struct pid *pid;
    unsigned int level;

    if (!namespace_inode)
        return task->pid;
    pid = BPF_CORE_READ(task, thread_pid);
    if (!pid)
        return 0;
    level = BPF_CORE_READ(pid, level);
    for (unsigned int i = 1; i <= MAX_PID_NS_LEVEL && i <= level; i++) {
        void *at = (void *)pid + bpf_core_field_offset(struct pid, numbers) + i * sizeof(struct upid);
        struct upid number = {};

        bpf_probe_read_kernel(&number, sizeof(number), at);
        if (number.ns && BPF_CORE_READ(number.ns, ns.inum) == namespace_inode)
            return number.nr;
    }
    return 0;
}

/* The current window; NULL after its end. */
static struct window *window_of(void)
{
    __u32 first = 0;
    struct window *window = bpf_map_lookup_elem(&windows, &first);

    return window && window->until ? window : NULL;
}

/* True if the window is over. */
static bool is_over(struct window *window, __u64 now)
{
    __u64 until = window->until;

    if (now <= until)
        return false;
    /* User space may have opened the next window meanwhile. */
    __sync_val_compare_and_swap(&window->until, until, 0);
    return true;
}

/* True if the state of a thread is from before the window, and so may be out of date. */
static bool is_stale(struct task *task, struct window *window)
{
    return task->since < window->from && task->woken < window->from;
}

static struct wake_ups *wake_ups_of(__u32 waker, __u32 wakee)
{
    struct pair pair = { .waker = waker, .wakee = wakee };
    struct wake_ups none = {};
    struct wake_ups *found;

    if (!follows_pairs)
        return NULL;
    found = bpf_map_lookup_elem(&pairs, &pair);
    if (found)
        return found;
    bpf_map_update_elem(&pairs, &pair, &none, BPF_NOEXIST);
    found = bpf_map_lookup_elem(&pairs, &pair);
    if (!found)
        __sync_fetch_and_add(&lost.pairs, 1);
    return found;
}

/* Reports that the times of a thread have changed, at most once per reading of user space. */
static void changes(struct task *task, __u32 tid)
{
    __u32 first = 0, *readings_so_far, next;

    if (!follows_phases)
        return;
    readings_so_far = bpf_map_lookup_elem(&readings, &first);
    if (!readings_so_far)
        return;
    next = *readings_so_far + 1;
    /* If the buffer is full, the next change is reported. */
    if (task->reported != next && !bpf_ringbuf_output(&changed, &tid, sizeof(tid), BPF_RB_NO_WAKEUP))
        task->reported = next;
}

/* Updates the number of runnable threads of a job. A job is in a serial phase while it has at most one. */
static void counts(struct task *task, bool is_runnable, __u64 now)
{
    struct job *job;
    __s32 by = is_runnable ? 1 : -1, before;
    __u64 lasted;

    if (!follows_phases || task->is_counted == is_runnable)
        return;
    task->is_counted = is_runnable;
    job = bpf_map_lookup_elem(&jobs, &task->job);
    if (!job)
        return;
    before = __sync_fetch_and_add(&job->runnable, by);
    if ((before > 1) == (before + by > 1))
        return;
    lasted = now - job->since;
    job->since = now;
    /* A full buffer already has a report. */
    if (lasted > LASTED_NS)
        bpf_ringbuf_output(&ended, &task->job, sizeof(task->job), BPF_RB_FORCE_WAKEUP);
}

/* True if current was interrupted in user mode, so the event is not current's. */
static bool is_interrupted(void)
{
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

    /* Number of the current system call; negative outside a system call. */
    return BPF_CORE_READ(regs, SYSCALL_NR) < 0;
}

static void counts_outside(__u32 pid)
{
    __u64 one = 1, *count = bpf_map_lookup_elem(&outside, &pid);

    if (count)
        __sync_fetch_and_add(count, 1);
    else
        bpf_map_update_elem(&outside, &pid, &one, BPF_NOEXIST);
}

/* Ends the turn of a thread, if it has one: the thread has woken its waker, or sleeps. The turn is added to its pair when the
 * thread next runs, where the pair is looked up anyway. A long one is dropped: other threads had the PU meanwhile, or its work
 * is so long that wake-ups are cheap beside it. */
static void ends_turn(struct task *task, struct window *window, __u64 now)
{
    __u64 lasted = task->turn_from >= window->from && now > task->turn_from ? now - task->turn_from : 0;

    if (task->turn_from && lasted <= LONGEST_TURN_NS)
        task->turn_ns = lasted;
    task->turn_from = 0;
}

/* A thread runs after a wake-up on the same PU as its waker, or another. Adds its last turn, if that had the same waker. */
static void begins_turn(struct task *task, struct wake_ups *wake_ups, bool is_same)
{
    __u32 was_same = task->turn_same & 1;

    if (task->turn_ns && task->turn_waker == task->waker) {
        __sync_fetch_and_add(&wake_ups->turns[was_same], 1);
        __sync_fetch_and_add(&wake_ups->turns_ns[was_same], task->turn_ns);
    }
    task->turn_ns = 0;
    task->turn_waker = task->waker;
    task->turn_from = task->woken;
    task->turn_same = is_same;
}

SEC("tp_btf/sched_waking")
int on_waking(__u64 *args)
{
    struct task_struct *woken = (void *)args[0];
    struct window *window = window_of();
    __u32 woken_tid = window ? tid_of(woken) : 0;
    struct task *wakee = woken_tid ? task_of(woken_tid) : NULL;
    struct task *waker;
    struct task_struct *current = bpf_get_current_task_btf();
    bool interrupted;
    __u32 tid;
    __u64 now;

    if (!wakee)
        return 0;
    now = bpf_ktime_get_ns();
    if (is_over(window, now))
        return 0;
    if (is_stale(wakee, window))
        wakee->state = SLEEPS;
    tid = tid_of(current);
    interrupted = is_interrupted();
    waker = interrupted ? NULL : task_of(tid);
    if (!waker) {
        if (tid && !interrupted)
            counts_outside(tid_of(current->group_leader));
        tid = OTHERS;
    }
    /* The thread may still be on its PU, and stay there: the wake-up counts once the thread runs after a sleep. */
    wakee->woken = now;
    wakee->waker = tid;
    wakee->waker_cpu = bpf_get_smp_processor_id();
    if (waker) {
        if (waker->turn_waker == woken_tid)
            ends_turn(waker, window, now);
        wakee->partner = tid;
        waker->partner = woken_tid;
    }
    if (wakee->state == SLEEPS) {
        counts(wakee, true, now);
        changes(wakee, woken_tid);
    }
    return 0;
}

/* A thread leaves its PU. Adds the time during which its partner, the thread it last woke or was woken by, ran too. Only the
 * first of the two to stop adds the time, so no time counts twice. */
static void leaves(struct task *task, __u32 tid, bool is_runnable, struct window *window, __u64 now)
{
    struct task *partner = follows_pairs && task->partner ? task_of(task->partner) : NULL;

    if (is_stale(task, window)) {
        task->state = RUNS;
        task->since = window->from;
    }
    if (partner && partner->state == RUNS && partner->since >= window->from && task->state == RUNS) {
        struct wake_ups *both = wake_ups_of(task->partner, tid);
        __u64 from = partner->since > task->since ? partner->since : task->since;

        if (both && now > from)
            __sync_fetch_and_add(&both->both_ran_ns, now - from);
    }
    task->since = now;
    task->state = is_runnable ? WAITS : SLEEPS;
    if (!is_runnable)
        ends_turn(task, window, now);
    counts(task, is_runnable, now);
    changes(task, tid);
}

/* A thread gets a PU. */
static void runs(struct task *task, __u32 tid, struct window *window, __u64 now)
{
    if (is_stale(task, window)) {
        task->state = SLEEPS;
        task->woken = 0;
    }
    if (task->state == WAITS) {
        task->waited_ns += now - task->since;
    } else if (task->state == SLEEPS && task->woken) {
        struct wake_ups *wake_ups = wake_ups_of(task->waker, tid);
        __u64 from = task->woken > task->since ? task->woken : task->since;
        bool is_same = task->waker_cpu == bpf_get_smp_processor_id();

        if (now > from)
            task->waited_ns += now - from;
        if (wake_ups) {
            __sync_fetch_and_add(&wake_ups->count, 1);
            if (now > from)
                __sync_fetch_and_add(&wake_ups->waited_ns, now - from);
            if (is_same)
                __sync_fetch_and_add(&wake_ups->same_pu, 1);
            begins_turn(task, wake_ups, is_same);
        }
    }
    task->since = now;
    task->state = RUNS;
    counts(task, true, now);
    changes(task, tid);
}

SEC("tp_btf/sched_switch")
int on_switch(__u64 *args)
{
    bool is_preempted = args[0];
    struct task_struct *prev = (void *)args[1], *next = (void *)args[2];
    struct window *window = window_of();
    struct task *task;
    __u32 tid;
    __u64 now;

    if (!window)
        return 0;
    tid = tid_of(prev);
    task = tid ? task_of(tid) : NULL;
    if (task) {
        now = bpf_ktime_get_ns();
        if (is_over(window, now))
            return 0;
        task->ran_ns = prev->se.sum_exec_runtime;
        leaves(task, tid, is_preempted || !prev->__state, window, now);
    }
    tid = tid_of(next);
    task = tid ? task_of(tid) : NULL;
    if (task) {
        now = bpf_ktime_get_ns();
        if (is_over(window, now))
            return 0;
        task->ran_ns = next->se.sum_exec_runtime;
        runs(task, tid, window, now);
    }
    return 0;
}

SEC("tp_btf/sched_process_fork")
int on_creation(__u64 *args)
{
    struct task_struct *creator = (void *)args[0], *created = (void *)args[1];
    struct task task = { .state = WAITS, .since = bpf_ktime_get_ns() };
    struct task *from = task_of(tid_of(creator));
    __u32 tid, of_kernel = created->pid;

    if (!from)
        return 0;
    tid = tid_of(created);
    if (namespace_inode)
        bpf_map_update_elem(&numbers, &of_kernel, &tid, BPF_ANY);
    task.job = from->job;
    counts(&task, true, task.since);
    if (bpf_map_update_elem(&tasks, &tid, &task, BPF_ANY)) {
        counts(&task, false, task.since);
        __sync_fetch_and_add(&lost.tasks, 1);
    }
    return 0;
}

/* A thread other than its process's first takes over the number of the first. */
SEC("tp_btf/sched_process_exec")
int on_exec(__u64 *args)
{
    struct task_struct *executing = (void *)args[0];
    __u32 before = args[1], of_kernel = executing->pid, tid = tid_of(executing);
    struct task *task;

    if (before == of_kernel)
        return 0;
    if (namespace_inode) {
        __u32 *number = bpf_map_lookup_elem(&numbers, &before), found = number ? *number : 0;

        bpf_map_delete_elem(&numbers, &before);
        bpf_map_update_elem(&numbers, &of_kernel, &tid, BPF_ANY);
        before = found;
    }
    task = task_of(before);
    if (task) {
        bpf_map_update_elem(&tasks, &tid, task, BPF_ANY);
        bpf_map_delete_elem(&tasks, &before);
    }
    return 0;
}

SEC("tp_btf/sched_process_exit")
int on_end(__u64 *args)
{
    struct task_struct *exiting = (void *)args[0];
    __u32 tid = tid_of(exiting), of_kernel = exiting->pid;
    struct task *task = task_of(tid);

    if (namespace_inode)
        bpf_map_delete_elem(&numbers, &of_kernel);
    if (!task)
        return 0;
    counts(task, false, bpf_ktime_get_ns());
    bpf_map_delete_elem(&tasks, &tid);
    return 0;
}
