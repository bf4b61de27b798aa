/* Threads that wake each other, and where the kernel puts them: wakes SCENARIO...
 *
 * A scenario is KIND:THREADS:LOOPS:US:MS. It has LOOPS threads that compute beside, and lasts MS ms:
 *   pipe     pairs of threads pass a byte by pipes, each after US us of CPU time
 *   futex    the same by futexes
 *   ring     one byte goes round all threads, by pipes
 *   barrier  all threads meet at a barrier of pthreads after US us of CPU time each
 * The first third is not counted. Wake-ups are those of the tracepoints sched_waking and sched_wakeup, in a
 * buffer of their own; a wake-up in an interrupt is left out. Needs root and tracefs, which it mounts in a
 * mount namespace of its own.
 *
 * Prints columns between tabs:
 *   kernel    release  number of PUs
 *   scenario  as above
 *   chosen    wake-ups after which the thread was put on its waker's PU, on its own previous PU that was not
 *             its waker's, and on another; those of all these under its waker's last-level cache
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_THREADS = 256, MOST_PID = 1 << 22, MOST_PUS = 1024 };

struct scenario {
    char kind[16];
    int threads, loops;
    int64_t work_ns, ms;
};

static struct scenario what;
static const char *root = "/run/wakes-tracefs", *buffer = "/run/wakes-tracefs/instances/wakes";
static int pipes[MOST_THREADS][2];
static uint32_t turns[MOST_THREADS];
static pthread_barrier_t barrier;

static void fail(const char *what_failed) {
    perror(what_failed);
    exit(1);
}

static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void work(void) {
    int64_t end = cpu_ns() + what.work_ns;
    while (cpu_ns() < end) {
    }
}

static bool is(const char *kind) {
    return strcmp(what.kind, kind) == 0;
}

/* The thread that is woken by this one. */
static int next(int own) {
    return is("ring") ? (own + 1) % what.threads : own ^ 1;
}

static _Noreturn void *pass_by_pipe(void *argument) {
    int own = (int)(intptr_t)argument;
    char byte;
    for (;;) {
        if (read(pipes[own][0], &byte, 1) != 1) fail("wakes: read");
        work();
        if (write(pipes[next(own)][1], &byte, 1) != 1) fail("wakes: write");
    }
}

static _Noreturn void *pass_by_futex(void *argument) {
    int own = (int)(intptr_t)argument;
    for (;;) {
        while (__atomic_load_n(&turns[own], __ATOMIC_ACQUIRE) == 0)
            syscall(SYS_futex, &turns[own], FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        __atomic_store_n(&turns[own], 0, __ATOMIC_RELEASE);
        work();
        __atomic_store_n(&turns[own ^ 1], 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &turns[own ^ 1], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

static _Noreturn void *meet(void *argument) {
    (void)argument;
    for (;;) {
        work();
        pthread_barrier_wait(&barrier);
    }
}

static _Noreturn void *loop(void *argument) {
    for (;;) __asm__ volatile("" ::"r"(argument) : "memory");
}

static void begin(void *(*life)(void *), int threads) {
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, life, (void *)(intptr_t)i) != 0) fail("wakes: pthread_create");
    }
}

static void write_file(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", buffer, name);
    int file = open(path, O_WRONLY | O_TRUNC);
    if (file < 0 || write(file, text, strlen(text)) < 0) fail(path);
    close(file);
}

static void sleep_ms(int64_t ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* A process of its own for each scenario, which its parent kills. */
static _Noreturn void play(void) {
    begin(loop, what.loops);
    if (is("barrier")) {
        pthread_barrier_init(&barrier, NULL, (unsigned)what.threads);
        begin(meet, what.threads);
    } else if (is("futex")) {
        begin(pass_by_futex, 2 * what.threads);
        for (int i = 0; i < what.threads; i++) {
            __atomic_store_n(&turns[2 * i], 1, __ATOMIC_RELEASE);
            syscall(SYS_futex, &turns[2 * i], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        }
    } else {
        int threads = is("ring") ? what.threads : 2 * what.threads;
        for (int i = 0; i < threads; i++)
            if (pipe(pipes[i]) != 0) fail("wakes: pipe");
        begin(pass_by_pipe, threads);
        for (int i = 0; i < threads; i += is("ring") ? threads : 2)
            if (write(pipes[i][1], "", 1) != 1) fail("wakes: write");
    }
    for (;;) pause();
}

/* The first PU under the last-level cache of a PU; the PU itself if that is unknown. */
static int cache_of(int pu) {
    static int caches[MOST_PUS];
    char path[128];
    if (pu >= MOST_PUS) return pu;
    for (int level = 3; caches[pu] == 0 && level >= 2; level--) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", pu, level);
        FILE *file = fopen(path, "r");
        int first;
        if (file != NULL && fscanf(file, "%d", &first) == 1) caches[pu] = first + 1;
        if (file != NULL) fclose(file);
    }
    return caches[pu] == 0 ? pu : caches[pu] - 1;
}

/* Counts the PUs chosen, from lines like
 * "wakes-71 [001] d.... 5.000001: sched_waking: comm=wakes pid=72 prio=120 target_cpu=000". */
static void count(void) {
    static int wakers[MOST_PID], previous[MOST_PID];
    char path[256], line[512];
    long chosen[3] = {0, 0, 0}, near = 0;
    memset(wakers, -1, sizeof wakers);
    snprintf(path, sizeof path, "%s/trace", buffer);
    FILE *file = fopen(path, "r");
    if (file == NULL) fail(path);
    while (fgets(line, sizeof line, file) != NULL) {
        char by[64], flags[16], event[32];
        int on, pid, target;
        const char *fields = strstr(line, " comm=wakes ");
        if (fields == NULL || sscanf(line, " %63s [%d] %15s %*s %31s", by, &on, flags, event) != 4 ||
            sscanf(fields, " comm=wakes pid=%d prio=%*d target_cpu=%d", &pid, &target) != 2 || pid >= MOST_PID)
            continue;
        if (strcmp(event, "sched_waking:") == 0) {
            bool in_interrupt = strchr("hHsZz", flags[2]) != NULL;
            wakers[pid] = strncmp(by, "wakes-", 6) == 0 && !in_interrupt ? on : -1;
            previous[pid] = target;
        } else if (wakers[pid] >= 0) {
            chosen[target == wakers[pid] ? 0 : target == previous[pid] ? 1 : 2]++;
            near += cache_of(target) == cache_of(wakers[pid]);
            wakers[pid] = -1;
        }
    }
    fclose(file);
    printf("chosen\t%ld\t%ld\t%ld\t%ld\n", chosen[0], chosen[1], chosen[2], near);
    fflush(stdout);
}

static void run(const char *words) {
    int64_t us;
    int found = sscanf(words, "%15[a-z]:%d:%d:%ld:%ld", what.kind, &what.threads, &what.loops, &us, &what.ms);
    if (found != 5 || what.threads < 1 || what.threads > MOST_THREADS / 2) {
        fprintf(stderr, "wakes: expected KIND:THREADS:LOOPS:US:MS, found %s\n", words);
        exit(2);
    }
    what.work_ns = us * 1000;
    printf("scenario\t%s\n", words);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) play();
    sleep_ms(what.ms / 3);
    write_file("trace", "");
    write_file("tracing_on", "1");
    sleep_ms(what.ms - what.ms / 3);
    write_file("tracing_on", "0");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    count();
}

int main(int arguments, char **scenarios) {
    struct utsname system;
    uname(&system);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) fail("wakes: unshare");
    mkdir(root, 0700);
    if (mount("tracefs", root, "tracefs", 0, NULL) != 0) fail("wakes: mount tracefs");
    if (mkdir(buffer, 0700) != 0) fail(buffer);
    write_file("tracing_on", "0");
    write_file("buffer_size_kb", "8192");
    write_file("events/sched/sched_waking/filter", "comm == \"wakes\"");
    write_file("events/sched/sched_wakeup/filter", "comm == \"wakes\"");
    write_file("events/sched/sched_waking/enable", "1");
    write_file("events/sched/sched_wakeup/enable", "1");
    printf("kernel\t%s\t%ld\n", system.release, sysconf(_SC_NPROCESSORS_ONLN));
    for (int i = 1; i < arguments; i++) run(scenarios[i]);
    write_file("events/enable", "0");
    if (rmdir(buffer) != 0) fail(buffer);
    umount(root);
    rmdir(root);
    return 0;
}
