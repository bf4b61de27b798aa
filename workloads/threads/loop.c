/* One parallel loop, executed once: loop WORK SCHEDULE ITERATIONS OUTSIDE INSIDE
 *
 * WORK is what an iteration does outside of its critical section and in it:
 *   compute  OUTSIDE and INSIDE rounds of arithmetic
 *   sleep    sleeps for OUTSIDE and INSIDE microseconds, so that times hardly depend on the PUs
 *   memory   goes through OUTSIDE KiB of memory; there is no critical section
 *   device   sleeps for OUTSIDE microseconds while it has a device that serves one thread at a time, which OpenMP does not
 *            see. The device stands for a memory that one thread uses up; there is no critical section
 *   waits    as sleep, but from the half on each even iteration waits until the next one has begun, for 20 s at most in all
 * SCHEDULE is dynamic, monotonic (also dynamic), guided, static, runtime (OMP_SCHEDULE), ordered (dynamic, with an ordered section), or region: two
 * loops with dynamic schedule in one region, with half of the iterations each.
 *
 * Prints a sum over the iterations, a value of the last one, how many threads did something at a time in the last quarter at
 * most, the size of the team, and the seconds of the loop. The first two depend on nothing but the arguments. */
#include <omp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KIB = 1024, MEMORY = 512 << 20 };

static const char *work;
static long outside, inside, iterations;
static long done, at_once, largest, begun, waited_ms;
static int team;
static uint64_t merged;
static uint64_t *memory;
static pthread_mutex_t device = PTHREAD_MUTEX_INITIALIZER;

static uint64_t rounds(uint64_t value, long count) {
    for (long i = 0; i < count; i++) value = value * 6364136223846793005u + 1442695040888963407u;
    return value;
}

/* One read and one write of each word of the part that belongs to iteration `i`. */
static uint64_t pass_over(long i) {
    size_t words = (size_t)outside * KIB / sizeof *memory, all = MEMORY / sizeof *memory;
    uint64_t *part = memory + (size_t)i * words % (all - words + 1), sum = 0;
    for (size_t k = 0; k < words; k++) sum += part[k] += 1;
    return sum & 0; /* iterations may share words, so it depends on their order */
}

/* What an iteration does between others: it counts as running for so long. */
static uint64_t part(long i, long amount, int is_outside) {
    long now = __atomic_add_fetch(&at_once, 1, __ATOMIC_RELAXED);
    if (__atomic_load_n(&done, __ATOMIC_RELAXED) >= iterations * 3 / 4) {
        long most = __atomic_load_n(&largest, __ATOMIC_RELAXED);
        while (now > most && !__atomic_compare_exchange_n(&largest, &most, now, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    }
    uint64_t value = 0;
    if (!strcmp(work, "compute")) value = rounds((uint64_t)i, amount);
    else if (!strcmp(work, "memory")) value = is_outside ? pass_over(i) : 0;
    else if (amount > 0) usleep((useconds_t)amount);
    __atomic_sub_fetch(&at_once, 1, __ATOMIC_RELAXED);
    return value;
}

static uint64_t iteration(long i) {
    if (omp_get_thread_num() == 0) team = omp_get_num_threads();
    long others = __atomic_add_fetch(&begun, 1, __ATOMIC_RELAXED);
    if (!strcmp(work, "waits") && i >= iterations / 2 && i % 2 == 0)
        for (; others < i + 2 && __atomic_add_fetch(&waited_ms, 1, __ATOMIC_RELAXED) < 20000; usleep(1000))
            others = __atomic_load_n(&begun, __ATOMIC_RELAXED);
    if (!strcmp(work, "device")) pthread_mutex_lock(&device);
    uint64_t value = part(i, outside, 1);
    if (!strcmp(work, "device")) pthread_mutex_unlock(&device);
    if (strcmp(work, "memory") && strcmp(work, "device")) {
#pragma omp critical
        merged += part(i, inside, 0) ^ (uint64_t)i;
    }
    __atomic_add_fetch(&done, 1, __ATOMIC_RELAXED);
    return value + (uint64_t)i;
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    work = argv[1];
    const char *schedule = argv[2];
    iterations = atol(argv[3]), outside = atol(argv[4]), inside = atol(argv[5]);
    uint64_t sum = 0;
    long last = -1, half = iterations / 2;
    if (!strcmp(work, "memory")) {
        memory = malloc(MEMORY);
        if (memory == NULL) return 1;
        memset(memory, 1, MEMORY);
    }
    double begin = omp_get_wtime();
    if (!strcmp(schedule, "dynamic")) {
        last = iterations - 1; /* LLVM 14 loses `lastprivate` of this schedule at times */
#pragma omp parallel for schedule(dynamic) reduction(+ : sum)
        for (long i = 0; i < iterations; i++) sum += iteration(i);
    } else if (!strcmp(schedule, "monotonic")) {
#pragma omp parallel for schedule(monotonic : dynamic) reduction(+ : sum) lastprivate(last)
        for (long i = 0; i < iterations; i++) sum += iteration(i), last = i;
    } else if (!strcmp(schedule, "guided")) {
#pragma omp parallel for schedule(guided) reduction(+ : sum) lastprivate(last)
        for (long i = 0; i < iterations; i++) sum += iteration(i), last = i;
    } else if (!strcmp(schedule, "static")) {
#pragma omp parallel for schedule(static) reduction(+ : sum) lastprivate(last)
        for (long i = 0; i < iterations; i++) sum += iteration(i), last = i;
    } else if (!strcmp(schedule, "runtime")) {
#pragma omp parallel for schedule(runtime) reduction(+ : sum) lastprivate(last)
        for (long i = 0; i < iterations; i++) sum += iteration(i), last = i;
    } else if (!strcmp(schedule, "ordered")) {
#pragma omp parallel for schedule(dynamic) ordered reduction(+ : sum) lastprivate(last)
        for (long i = 0; i < iterations; i++) {
            sum += iteration(i), last = i;
#pragma omp ordered
            merged += (uint64_t)i;
        }
    } else if (!strcmp(schedule, "region")) {
#pragma omp parallel
        {
#pragma omp for schedule(dynamic) reduction(+ : sum)
            for (long i = 0; i < half; i++) sum += iteration(i);
#pragma omp for schedule(monotonic : dynamic) reduction(+ : sum) lastprivate(last)
            for (long i = half; i < iterations; i++) sum += iteration(i), last = i;
        }
    } else {
        return 2;
    }
    double seconds = omp_get_wtime() - begin;
    printf("%llu %ld at once %ld of %d, %.3f s\n", (unsigned long long)(sum + merged), last, largest, team, seconds);
    return 0;
}
