/* OpenMP threads, for --preload: teams KIND MS
 *
 *   docks      the first thread works alone for MS, then all work for MS, five times over: the others wait in between
 *   barrier    the same within one parallel region, where they wait at a barrier
 *   lock       one thread works with a lock for MS, five times over, and the others wait for that lock
 *   lock_      the same, as Fortran takes it
 *   tasks      as docks, but in each region one thread makes tasks, which the others do while they wait for it
 * MS are milliseconds of CPU time of each thread that works. Prints how many threads there were. */
#define _GNU_SOURCE
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 5 };

static long cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void work(long ms) {
    for (long until = cpu_ms() + ms; cpu_ms() < until;)
        for (volatile int i = 0; i < 10000; i++) continue;
}

static void docks(long ms) {
    for (int round = 0; round < ROUNDS; round++) {
        work(ms);
#pragma omp parallel
        work(ms);
    }
}

static void barrier(long ms) {
#pragma omp parallel
    for (int round = 0; round < ROUNDS; round++) {
        if (omp_get_thread_num() == 0) work(ms);
#pragma omp barrier
        work(ms);
#pragma omp barrier
    }
}

extern void omp_set_lock_(omp_lock_t *);

static void lock(long ms, void (*set)(omp_lock_t *)) {
    omp_lock_t only;
    omp_init_lock(&only);
#pragma omp parallel
    for (int round = 0; round < ROUNDS; round++) {
        if (omp_get_thread_num() == 0) set(&only);
#pragma omp barrier
        if (omp_get_thread_num() == 0) {
            work(ms);
            omp_unset_lock(&only);
        } else {
            set(&only);
            omp_unset_lock(&only);
        }
#pragma omp barrier
        work(ms);
    }
    omp_destroy_lock(&only);
}

static void tasks(long ms) {
    for (int round = 0; round < ROUNDS; round++)
#pragma omp parallel
#pragma omp single
        for (int i = 0; i < 2 * omp_get_num_threads(); i++)
#pragma omp task
            work(ms);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    long ms = atol(argv[2]);
    if (!strcmp(argv[1], "docks")) docks(ms);
    else if (!strcmp(argv[1], "barrier")) barrier(ms);
    else if (!strcmp(argv[1], "lock")) lock(ms, omp_set_lock);
    else if (!strcmp(argv[1], "lock_")) lock(ms, omp_set_lock_);
    else if (!strcmp(argv[1], "tasks")) tasks(ms);
    else return 2;
#pragma omp parallel
#pragma omp single
    printf("%d\n", omp_get_num_threads());
    return 0;
}
