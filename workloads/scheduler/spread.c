/* Threads that compute, and where the kernel lets them: spread SCENARIO...
 *
 * A scenario is KIND:THREADS:MS and maybe more numbers; each begins after a second of rest, and its first
 * thread, which makes the others, computes as they do:
 *   together:N:MS            all at once
 *   apart:N:MS:GAP           one after the other, GAP ms apart
 *   freed:N:MS:AT            all kept on one PU until AT ms, then free
 *   half:N:MS:CPU            at once; every second thread ends when it has had CPU ms
 *   naps:N:MS:CPU:SLEEP      at once; each sleeps SLEEP ms after every CPU ms that it has had
 * Nobody looks at the threads from outside: each notes where it is when that is another PU than before. So a
 * thread that is moved while it waits is seen when it runs next.
 *
 * Prints columns between tabs:
 *   kernel    release  PUs that may be used, by number
 *   scenario  as above
 *   free      0        ns       when all are free
 *   on        thread   ns  PU   seen there for the first time, or again after another PU; also at its start
 *   woke      thread   ns  PU   the same after a sleep
 *   cpu       thread   ns  ns   CPU time had until then: half way, and at the end
 *   naps      thread   number   how often it slept
 *   end       thread   ns
 *   others    0        ns       CPU time that other programs had on the PUs meanwhile
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 1000, BATCHES = 16, MOST_SEEN = 1 << 15, MOST_THREADS = 1024 };

struct seen {
    int64_t ns;
    int pu;
    bool woke;
};

struct task {
    int number;
    pthread_t thread;
    volatile pid_t tid;
    struct seen *seen;
    int seens;
    long naps;
    int64_t end_ns, half_at, half_cpu, last_at, last_cpu;
};

struct scenario {
    char kind[16];
    int threads;
    int64_t ns, first, second;
};

static struct scenario what;
static struct task tasks[MOST_THREADS];
static int born;
static int64_t begin_ns, freed_ns;
static volatile bool stop;
static cpu_set_t all;

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t now(void) {
    return clock_ns(CLOCK_MONOTONIC) - begin_ns;
}

/* CPU time of all programs on all PUs since the system began, to the tick. */
static int64_t everybody(void) {
    long long user = 0, nice = 0, system = 0;
    FILE *file = fopen("/proc/stat", "r");
    if (file == NULL || fscanf(file, "cpu %lld %lld %lld", &user, &nice, &system) != 3) {
        fprintf(stderr, "spread: cannot read /proc/stat\n");
        exit(1);
    }
    fclose(file);
    return (user + nice + system) * (1000000000 / sysconf(_SC_CLK_TCK));
}

static bool is(const char *kind) {
    return strcmp(what.kind, kind) == 0;
}

static void see(struct task *task, bool woke) {
    int pu = sched_getcpu();
    if (task->seens > 0 && task->seen[task->seens - 1].pu == pu) return;
    if (task->seens == MOST_SEEN) {
        fprintf(stderr, "spread: a thread moved more than %d times\n", MOST_SEEN);
        exit(1);
    }
    task->seen[task->seens++] = (struct seen){now(), pu, woke};
}

static void compute(struct task *task) {
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int spin = 0; spin < SPINS; spin++) __asm__ volatile("" ::: "memory");
        see(task, false);
    }
}

static void sleep_ns(int64_t ns) {
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

static void *live(void *);

static void bear(void) {
    struct task *task = &tasks[born++];
    if (pthread_create(&task->thread, NULL, live, task) != 0) {
        perror("spread: cannot make a thread");
        exit(1);
    }
}

/* Their CPU time until now; of one that has ended what it noted itself. */
static void take_times(bool half) {
    for (int i = 0; i < born; i++) {
        clockid_t clock;
        struct task *task = &tasks[i];
        if (task->end_ns != 0 || pthread_getcpuclockid(task->thread, &clock) != 0) continue;
        int64_t cpu = clock_ns(clock), at = now();
        if (half) task->half_at = at, task->half_cpu = cpu;
        else task->last_at = at, task->last_cpu = cpu;
    }
}

/* What the first thread does beside computing. */
static void direct(void) {
    int64_t at = now();
    bool is_apart = is("apart");
    while (born < what.threads && (!is_apart || at >= born * what.first)) bear();
    if (is("freed") && freed_ns == 0 && at >= what.first) {
        for (int i = 0; i < born; i++)
            if (tasks[i].tid == 0) return;
        freed_ns = now();
        for (int i = born - 1; i >= 0; i--) sched_setaffinity(tasks[i].tid, sizeof all, &all);
    }
    if (tasks[0].half_at == 0 && at >= what.ns / 2) take_times(true);
    if (at >= what.ns) {
        take_times(false);
        stop = true;
    }
}

static void *live(void *argument) {
    struct task *task = argument;
    task->tid = (pid_t)syscall(SYS_gettid);
    int64_t had = clock_ns(CLOCK_THREAD_CPUTIME_ID), first = had;
    bool ends = is("half") && task->number % 2 == 1, naps = is("naps");
    see(task, false);
    while (!stop) {
        if (task->number == 0) direct();
        compute(task);
        if (!ends && !naps) continue;
        int64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        if (ends && cpu - first >= what.first) break;
        if (naps && cpu - had >= what.first) {
            sleep_ns(what.second);
            task->naps++;
            see(task, true);
            had = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        }
    }
    if (task->last_at == 0) task->last_at = now(), task->last_cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    task->end_ns = now();
    return NULL;
}

static void print(const char *words) {
    printf("scenario\t%s\n", words);
    if (freed_ns != 0) printf("free\t0\t%lld\n", (long long)freed_ns);
    for (int i = 0; i < born; i++) {
        struct task *task = &tasks[i];
        for (int s = 0; s < task->seens; s++) {
            struct seen *seen = &task->seen[s];
            printf("%s\t%d\t%lld\t%d\n", seen->woke ? "woke" : "on", i, (long long)seen->ns, seen->pu);
        }
        if (task->half_at != 0)
            printf("cpu\t%d\t%lld\t%lld\n", i, (long long)task->half_at, (long long)task->half_cpu);
        printf("cpu\t%d\t%lld\t%lld\n", i, (long long)task->last_at, (long long)task->last_cpu);
        if (task->naps != 0) printf("naps\t%d\t%ld\n", i, task->naps);
        printf("end\t%d\t%lld\n", i, (long long)task->end_ns);
    }
    fflush(stdout);
}

/* A process of its own for each scenario, so that none inherits anything of the one before. */
static void *play(void *words) {
    for (int i = 0; i < what.threads; i++) {
        tasks[i].number = i;
        tasks[i].seen = malloc(MOST_SEEN * sizeof(struct seen));
        if (tasks[i].seen == NULL) abort();
    }
    tasks[0].thread = pthread_self();
    int pu = sched_getcpu();
    if (is("freed")) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(pu, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    int64_t before = everybody() - clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    begin_ns = clock_ns(CLOCK_MONOTONIC);
    born = 1;
    live(&tasks[0]);
    for (int i = 1; i < born; i++) pthread_join(tasks[i].thread, NULL);
    int64_t others = everybody() - clock_ns(CLOCK_PROCESS_CPUTIME_ID) - before;
    print(words);
    printf("others\t0\t%lld\n", (long long)(others > 0 ? others : 0));
    return NULL;
}

static bool parse(const char *words) {
    double ms, first = 0, second = 0;
    int read = sscanf(words, "%15[a-z]:%d:%lf:%lf:%lf", what.kind, &what.threads, &ms, &first, &second);
    what.ns = (int64_t)(ms * 1e6);
    what.first = (int64_t)(first * 1e6);
    what.second = (int64_t)(second * 1e6);
    int needed = is("together") ? 3 : is("naps") ? 5 : is("apart") || is("freed") || is("half") ? 4 : 9;
    return read >= needed && what.threads >= 1 && what.threads <= MOST_THREADS;
}

int main(int argc, char **argv) {
    struct utsname system;
    uname(&system);
    sched_getaffinity(0, sizeof all, &all);
    printf("kernel\t%s\t", system.release);
    for (int pu = 0, comma = 0; pu < CPU_SETSIZE; pu++)
        if (CPU_ISSET(pu, &all)) printf("%s%d", comma++ ? "," : "", pu);
    printf("\n");
    fflush(stdout);
    for (int i = 1; i < argc; i++) {
        if (!parse(argv[i])) {
            fprintf(stderr, "spread: expected KIND:THREADS:MS..., found %s\n", argv[i]);
            return 2;
        }
        sleep(1);
        pid_t child = fork();
        if (child == 0) {
            play(argv[i]);
            return 0;
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "spread: %s failed\n", argv[i]);
            return 1;
        }
    }
    return 0;
}
