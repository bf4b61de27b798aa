/* Threads that ask memory for lines, at the same time: memory SECONDS KIND:MIB:CPU [KIND:MIB:CPU ...]
 *
 * A thread uses a buffer of its own of MIB mebibytes, in huge pages where the kernel gives them, and is
 * kept on CPU. KIND:
 *   chase   one line after the other in random order, each found in the one before
 *   chases  the same eight times side by side
 *   stream  one line after the other in order of address, of which one word is read
 *   write   the same, and the word is written
 *   sweeps  as stream, but each time only up to a line that is chosen at random: of the lines used since
 *           a line was used last there are more than c with probability 1 - (c / all)^2
 *   spin    asks for nothing: keeps others of this system off its CPU
 * Prints a line for each: nanoseconds of its CPU time for a line, and the share of the time in which it
 * had the CPU.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LINE = 64, CHAINS = 8, ROUND = 4096 };

struct line {
    struct line *next;
    uint64_t word[LINE / 8 - 1];
};

struct task {
    char kind[16];
    size_t lines;
    int cpu;
    struct line *buffer;
    double ns_per_line, share;
    pthread_t thread;
};

static pthread_barrier_t ready;
static double seconds;
static volatile uint64_t sink;

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Sattolo's shuffle makes one ring of all lines. */
static void make_ring(struct line *lines, size_t count, uint64_t seed) {
    for (size_t i = 0; i < count; i++) lines[i].next = &lines[i];
    for (size_t i = count - 1; i > 0; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t j = (size_t)((seed >> 20) % i);
        struct line *kept = lines[i].next;
        lines[i].next = lines[j].next;
        lines[j].next = kept;
    }
}

static struct line *chase(struct line *at) {
    for (int i = 0; i < ROUND; i++) at = at->next;
    return at;
}

static void chases(struct line **at) {
    struct line *a = at[0], *b = at[1], *c = at[2], *d = at[3];
    struct line *e = at[4], *f = at[5], *g = at[6], *h = at[7];
    for (int i = 0; i < ROUND / CHAINS; i++) {
        a = a->next, b = b->next, c = c->next, d = d->next;
        e = e->next, f = f->next, g = g->next, h = h->next;
    }
    at[0] = a, at[1] = b, at[2] = c, at[3] = d, at[4] = e, at[5] = f, at[6] = g, at[7] = h;
}

static uint64_t stream(struct line *at) {
    uint64_t sum = 0;
    for (int i = 0; i < ROUND; i++) sum += at[i].word[0];
    return sum;
}

static void write_lines(struct line *at, uint64_t value) {
    for (int i = 0; i < ROUND; i++) at[i].word[0] += value;
}

static void spin(void) {
    for (int i = 0; i < ROUND; i++) __asm__ volatile("");
}

static void *run(void *given) {
    struct task *task = given;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(task->cpu, &only);
    if (sched_setaffinity(0, sizeof only, &only)) perror("sched_setaffinity"), exit(1);
    /* Others shall not have the CPU meanwhile, if we may say so. */
    struct sched_param first = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &first);
    size_t bytes = task->lines * sizeof *task->buffer;
    void *mapped = NULL;
    if (posix_memalign(&mapped, 2 << 20, bytes)) fputs("no memory\n", stderr), exit(1);
    madvise(mapped, bytes, MADV_HUGEPAGE);
    memset(mapped, 1, bytes);
    struct line *lines = task->buffer = mapped, *at[CHAINS];
    int many = !strcmp(task->kind, "chases"), one = !strcmp(task->kind, "chase");
    int writes = !strcmp(task->kind, "write"), sweeps = !strcmp(task->kind, "sweeps");
    int spins = !strcmp(task->kind, "spin");
    if (many || one) make_ring(lines, task->lines, 1 + (uint64_t)task->cpu);
    for (size_t i = 0; i < CHAINS; i++) at[i] = &lines[i * task->lines / CHAINS];
    double begun = 0, cpu = 0;
    uint64_t done = 0, place = 0, seed = 7 + (uint64_t)task->cpu;
    size_t end = task->lines;
    /* The first part brings the caches to where they stay. */
    for (int warm = 1; warm >= 0; warm--) {
        pthread_barrier_wait(&ready);
        begun = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID), done = 0;
        while (now(CLOCK_MONOTONIC) - begun < (warm ? 0.5 * seconds : seconds)) {
            for (int i = 0; i < 16; i++, done += ROUND) {
                if (one) at[0] = chase(at[0]);
                else if (many) chases(at);
                else if (spins) spin();
                else {
                    if (writes) write_lines(lines + place, done);
                    else sink += stream(lines + place);
                    place += ROUND;
                    if (place + ROUND <= end) continue;
                    place = 0;
                    if (sweeps) {
                        seed = seed * 6364136223846793005u + 1442695040888963407u;
                        end = ROUND + (size_t)((double)(seed >> 11) * 0x1p-53 * (double)(task->lines - ROUND));
                    }
                }
            }
        }
    }
    double used = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
    task->ns_per_line = 1e9 * used / (double)done;
    task->share = used / (now(CLOCK_MONOTONIC) - begun);
    for (int i = 0; i < CHAINS; i++) sink += (uint64_t)(uintptr_t)at[i];
    return NULL;
}

int main(int argc, char **argv) {
    int count = argc - 2;
    if (count < 1 || (seconds = atof(argv[1])) <= 0) {
        fputs("usage: memory SECONDS KIND:MIB:CPU [KIND:MIB:CPU ...]\n", stderr);
        return 2;
    }
    struct task *tasks = calloc((size_t)count, sizeof *tasks);
    pthread_barrier_init(&ready, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        double mib;
        if (sscanf(argv[i + 2], "%15[a-z]:%lf:%d", tasks[i].kind, &mib, &tasks[i].cpu) != 3) {
            fprintf(stderr, "memory: expected KIND:MIB:CPU, found %s\n", argv[i + 2]);
            return 2;
        }
        tasks[i].lines = (size_t)(mib * (1 << 20) / LINE);
        pthread_create(&tasks[i].thread, NULL, run, &tasks[i]);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(tasks[i].thread, NULL);
        printf("%.4f %.4f\n", tasks[i].ns_per_line, tasks[i].share);
    }
}
