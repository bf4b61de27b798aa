/* An OpenMP team of two threads, of which one works while the other waits: teams KIND MS
 *
 *   end        at the end of the region
 *   start      for the next region
 *   barrier    at a barrier in a region
 *   tasks      at a barrier, while a task runs
 *   critical   for a critical section
 *
 * To be compiled with -fopenmp and run with OMP_WAIT_POLICY=active (libgomp, libomp) or KMP_BLOCKTIME=infinite (libomp).
 * The first thread works for MS milliseconds. With 0 milliseconds the other waits for a byte of the standard input first, and
 * then for ever: this is for tests that run it instruction by instruction. Prints the thread numbers. */
#define _GNU_SOURCE
#include <omp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double ms;
static atomic_int works;
static volatile uint64_t sum;

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void work(void) {
    uint64_t state = 1;
    atomic_store(&works, 1);
    while (ms == 0) pause();
    for (double until = cpu_ms() + ms; cpu_ms() < until;)
        for (int i = 0; i < 20000; i++) state = state * 6364136223846793005u + 1442695040888963407u;
    sum = state;
}

/* The other thread is there, and waits from now on. */
static void before_waiting(int until_it_works) {
    char byte;
    while (until_it_works && !atomic_load(&works)) usleep(1000);
    if (ms == 0 && read(0, &byte, 1) < 0) exit(1);
}

int main(int count, char **words) {
    const char *kinds[] = {"end", "start", "barrier", "tasks", "critical"};
    int kind = 0;
    while (count == 3 && kind < 5 && strcmp(words[1], kinds[kind]) != 0) kind++;
    if (count != 3 || kind == 5) return fprintf(stderr, "teams: expected KIND MS\n"), 2;
    ms = atof(words[2]);
#pragma omp parallel num_threads(2)
    {
        int first = omp_get_thread_num() == 0;
        printf("%s %ld\n", first ? "works" : "waits", syscall(SYS_gettid));
        fflush(stdout);
        if (!first) before_waiting(kind >= 3);
        if (kind == 3 && first) {
#pragma omp task
            work();
#pragma omp taskwait
        } else if (kind == 4) {
#pragma omp critical
            if (first) work();
        } else if (kind != 1 && first) {
            work();
        }
        if (kind == 2) {
#pragma omp barrier
        }
    }
    if (kind == 1) work();
#pragma omp parallel num_threads(2)
    sum++;
    printf("sum %llu\n", (unsigned long long)sum);
    return 0;
}
