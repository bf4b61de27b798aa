/* patterns PATTERN THREADS ITERATIONS [LINES]: threads that communicate in a known pattern through memory alone.
 *
 * In each iteration every thread writes LINES (128) cache lines for each of its readers, waits at a barrier, reads the lines
 * that are for it, and waits again. Patterns:
 *   producer-consumer  pairs: neighbours, and in every second quarter of the iterations threads that are half of all apart
 *                      (Cruz et al., JPDC 2014, figure 2)
 *   stencil            each with the one before and the one behind it
 *   ring               each for the next one, the last for the first
 *   all-to-all         each for all others
 *   reduction          all for thread 0
 *   master-worker      thread 0 for all others, and they for it
 *   none               none
 * Prints what was read, added up, and the nanoseconds that it took. Threads are those of pthreads or, compiled with -fopenmp, of
 * OpenMP. The same patterns are in crates/sim/src/coherent/patterns.rs. */
#ifdef _OPENMP
#include <omp.h>
#else
#include <pthread.h>
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINE 64

static const char *pattern;
static long threads, iterations, lines = 128;
#ifndef _OPENMP
static pthread_barrier_t all;
#endif
/* buffers[from * threads + to] */
static char **buffers;

static int is_reader(long iteration, long from, long to)
{
    long half = threads / 2, phase = iterations / 4 > 0 ? iterations / 4 : 1;

    if (from == to)
        return 0;
    if (!strcmp(pattern, "producer-consumer")) {
        if (iteration / phase % 2 == 0)
            return from % 2 == 0 && to == from + 1;
        return from < half && to == from + half;
    }
    if (!strcmp(pattern, "stencil"))
        return to == from + 1 || to == from - 1;
    if (!strcmp(pattern, "ring"))
        return to == (from + 1) % threads;
    if (!strcmp(pattern, "all-to-all"))
        return 1;
    if (!strcmp(pattern, "reduction"))
        return to == 0;
    if (!strcmp(pattern, "master-worker"))
        return from == 0 || to == 0;
    return 0;
}

static void barrier(void)
{
#ifdef _OPENMP
#pragma omp barrier
#else
    pthread_barrier_wait(&all);
#endif
}

static void *work(void *argument)
{
    long self = (long)argument, iteration, other, line;
    uint64_t sum = 0;

    for (iteration = 0; iteration < iterations; iteration++) {
        for (other = 0; other < threads; other++)
            if (is_reader(iteration, self, other))
                for (line = 0; line < lines; line++)
                    *(volatile uint64_t *)(buffers[self * threads + other] + line * LINE) = (uint64_t)(iteration + line);
        barrier();
        for (other = 0; other < threads; other++)
            if (is_reader(iteration, other, self))
                for (line = 0; line < lines; line++)
                    sum += *(volatile uint64_t *)(buffers[other * threads + self] + line * LINE);
        barrier();
    }
    return (void *)sum;
}

int main(int count, char **words)
{
    static const char *known[] = { "producer-consumer", "stencil", "ring", "all-to-all", "reduction", "master-worker", "none" };
#ifndef _OPENMP
    pthread_t *thread;
#endif
    struct timespec begun, ended;
    uint64_t sum = 0;
    size_t one;
    int is_known = 0;

    for (one = 0; count > 1 && one < sizeof(known) / sizeof(*known); one++)
        is_known |= !strcmp(words[1], known[one]);
    if (count < 4 || count > 5 || !is_known || (threads = atol(words[2])) < 1 || (iterations = atol(words[3])) < 1 ||
        (count > 4 && (lines = atol(words[4])) < 1)) {
        fprintf(stderr, "usage: patterns PATTERN THREADS ITERATIONS [LINES]\n");
        return 2;
    }
    pattern = words[1];
    buffers = calloc(threads * threads, sizeof(*buffers));
    if (!buffers)
        return 1;
#ifndef _OPENMP
    thread = calloc(threads, sizeof(*thread));
    if (!thread || pthread_barrier_init(&all, NULL, threads))
        return 1;
#endif
    /* Each on pages of its own. */
    for (long buffer = 0; buffer < threads * threads; buffer++)
        if (posix_memalign((void **)&buffers[buffer], 4096, (lines * LINE + 4095) / 4096 * 4096))
            return 1;
    clock_gettime(CLOCK_MONOTONIC, &begun);
#ifdef _OPENMP
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    sum += (uint64_t)work((void *)(long)omp_get_thread_num());
#else
    for (long self = 1; self < threads; self++)
        if (pthread_create(&thread[self], NULL, work, (void *)self))
            return 1;
    sum = (uint64_t)work(NULL);
    for (long self = 1; self < threads; self++) {
        void *read;
        pthread_join(thread[self], &read);
        sum += (uint64_t)read;
    }
#endif
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%llu %lld\n", (unsigned long long)sum,
           (ended.tv_sec - begun.tv_sec) * 1000000000LL + ended.tv_nsec - begun.tv_nsec);
    return 0;
}
