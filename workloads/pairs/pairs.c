/* pairs PAIRS SECONDS WORK_US pipe|futex: pairs that hand a message to and fro.
 *
 * Each side computes for WORK_US microseconds before it passes the message on. Prints the round trips a second of all pairs, and the
 * 99th percentile of what a round trip took, in microseconds. pipe: two processes, a byte through pipes; futex: two threads, a word
 * in memory. SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BINS 2000 /* of a microsecond up to a millisecond, then of one each: enough for a percentile */

struct pair {
    _Alignas(64) uint32_t turn;
    uint64_t trips, bins[BINS];
};

static struct pair *pairs;
static double seconds;
static long turns; /* of the loop that is the work */
static int uses_futex;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void work(void)
{
    for (volatile long i = 0; i < turns; i++)
        ;
}

/* The loop takes WORK_US then: the fastest of some tries. */
static void calibrate(double work_us)
{
    uint64_t best = UINT64_MAX;
    turns = 100000;
    for (int try = 0; try < 20; try++) {
        uint64_t begin = now_ns(), took;
        work();
        took = now_ns() - begin;
        best = took < best ? took : best;
    }
    turns = work_us * 1000 * 100000 / best;
}

static void note(struct pair *pair, uint64_t ns)
{
    uint64_t bin = ns < 1000000 ? ns / 1000 : 1000 + ns / 1000000;
    pair->trips++;
    pair->bins[bin < BINS ? bin : BINS - 1]++;
}

static void wait_for(uint32_t *turn, uint32_t wanted)
{
    uint32_t seen;
    while ((seen = __atomic_load_n(turn, __ATOMIC_ACQUIRE)) != wanted)
        syscall(SYS_futex, turn, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void pass(uint32_t *turn, uint32_t to)
{
    __atomic_store_n(turn, to, __ATOMIC_RELEASE);
    syscall(SYS_futex, turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *partner(void *of)
{
    struct pair *pair = of;
    for (;;) {
        wait_for(&pair->turn, 1);
        work();
        pass(&pair->turn, 0);
    }
    return NULL;
}

static void by_futex(struct pair *pair)
{
    pthread_t thread;
    uint64_t begin = now_ns(), before = begin;
    pthread_create(&thread, NULL, partner, pair);
    while (before - begin < seconds * 1e9) {
        uint64_t now;
        work();
        pass(&pair->turn, 1);
        wait_for(&pair->turn, 0);
        now = now_ns();
        note(pair, now - before);
        before = now;
    }
}

/* Both sides are created by the first process, which does nothing else: one that creates processes is left to the kernel. */
static void by_pipe(struct pair *pair)
{
    int to[2], fro[2];
    char byte = 0;
    uint64_t begin, before;
    if (pipe(to) || pipe(fro))
        exit(1);
    if (!fork()) {
        close(to[1]);
        close(fro[0]);
        while (read(to[0], &byte, 1) == 1) {
            work();
            if (write(fro[1], &byte, 1) != 1)
                break;
        }
        _exit(0);
    }
    if (fork()) {
        for (int end = 0; end < 2; end++) {
            close(to[end]);
            close(fro[end]);
        }
        return;
    }
    close(to[0]);
    begin = before = now_ns();
    while (before - begin < seconds * 1e9) {
        uint64_t now;
        work();
        if (write(to[1], &byte, 1) != 1 || read(fro[0], &byte, 1) != 1)
            exit(1);
        now = now_ns();
        note(pair, now - before);
        before = now;
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    int number = argc == 5 ? atoi(argv[1]) : 0;
    uint64_t trips = 0, seen = 0;
    if (number < 1) {
        fprintf(stderr, "usage: pairs PAIRS SECONDS WORK_US pipe|futex\n");
        return 2;
    }
    seconds = atof(argv[2]);
    calibrate(atof(argv[3]));
    uses_futex = !strcmp(argv[4], "futex");
    pairs = mmap(NULL, number * sizeof *pairs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int pair = 0; pair < number; pair++)
        if (!uses_futex)
            by_pipe(pairs + pair);
        else if (!fork()) {
            by_futex(pairs + pair);
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
    for (int pair = 0; pair < number; pair++)
        trips += pairs[pair].trips;
    for (int bin = 0; bin < BINS; bin++) {
        for (int pair = 0; pair < number; pair++)
            seen += pairs[pair].bins[bin];
        if (seen * 100 >= trips * 99) {
            printf("rate: %.0f\np99: %d\n", trips / seconds, bin < 1000 ? bin + 1 : (bin - 999) * 1000);
            return 0;
        }
    }
    return 0;
}
