/* What taking a lock costs, for scripts/waits-cost: locks THREADS
 *
 * Prints, one a line, a name and nanoseconds: for a lock that nobody else wants to be taken and given back, in the only
 * thread; for two threads that both want a lock all the time, as far as they run at once; for an OpenMP barrier, and a parallel region, of THREADS threads
 * with nothing in them, whose threads do not sleep. CPU time of the first thread; of many rounds the least, as whatever else
 * runs only adds to it. */
#define _GNU_SOURCE
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 200, LOCKS = 20000, CONTENDED = 20000, REGIONS = 100 };

static pthread_spinlock_t spin;
static pthread_mutex_t ordinary = PTHREAD_MUTEX_INITIALIZER, adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static omp_lock_t omp;
static int threads;
static volatile long counter;

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void spins(int times) {
    for (int i = 0; i < times; i++) pthread_spin_lock(&spin), counter++, pthread_spin_unlock(&spin);
}

static void ordinaries(int times) {
    for (int i = 0; i < times; i++) pthread_mutex_lock(&ordinary), counter++, pthread_mutex_unlock(&ordinary);
}

static void adaptives(int times) {
    for (int i = 0; i < times; i++) pthread_mutex_lock(&adaptive), counter++, pthread_mutex_unlock(&adaptive);
}

static void omps(int times) {
    for (int i = 0; i < times; i++) omp_set_lock(&omp), counter++, omp_unset_lock(&omp);
}

static void criticals(int times) {
    for (int i = 0; i < times; i++) {
#pragma omp critical
        counter++;
    }
}

static void barriers(int times) {
#pragma omp parallel num_threads(threads)
    for (int i = 0; i < times; i++) {
#pragma omp barrier
    }
}

static void regions(int times) {
    for (int i = 0; i < times; i++) {
#pragma omp parallel num_threads(threads)
        __asm__ volatile("");
    }
}

struct contended {
    void (*lock)(int);
    pthread_barrier_t begin;
};

static void *contend(void *given) {
    struct contended *both = given;
    pthread_barrier_wait(&both->begin);
    both->lock(CONTENDED);
    return NULL;
}

static double alone(void (*lock)(int), int times) {
    double begin = now_ns();
    lock(times);
    return (now_ns() - begin) / times;
}

static double together(void (*lock)(int)) {
    struct contended both = {.lock = lock};
    pthread_t other;
    pthread_barrier_init(&both.begin, NULL, 2);
    if (pthread_create(&other, NULL, contend, &both) != 0) exit(1);
    pthread_barrier_wait(&both.begin);
    double begin = now_ns();
    lock(CONTENDED);
    double took = now_ns() - begin;
    pthread_join(other, NULL);
    return took / CONTENDED;
}

static void told(const char *name, const double *found) {
    double least = found[0];
    for (int round = 1; round < ROUNDS; round++) least = found[round] < least ? found[round] : least;
    printf("%s %.2f\n", name, least);
}

int main(int argc, char **argv) {
    threads = argc > 1 ? atoi(argv[1]) : 2;
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    omp_init_lock(&omp);
    struct { const char *name; void (*lock)(int); } locks[] = {
        {"spin-lock", spins}, {"mutex", ordinaries}, {"adaptive-mutex", adaptives}, {"omp-lock", omps}, {"omp-critical", criticals}};
    double found[ROUNDS];
    regions(1);
    for (int which = 0; which < 5; which++) {
        for (int round = 0; round < ROUNDS; round++) found[round] = alone(locks[which].lock, LOCKS);
        told(locks[which].name, found);
    }
    for (int which = 0; which < 3; which++) {
        char name[64];
        snprintf(name, sizeof name, "%s-of-two", locks[which].name);
        for (int round = 0; round < ROUNDS; round++) found[round] = together(locks[which].lock);
        told(name, found);
    }
    for (int round = 0; round < ROUNDS; round++) found[round] = alone(barriers, REGIONS);
    told("omp-barrier", found);
    for (int round = 0; round < ROUNDS; round++) found[round] = alone(regions, REGIONS);
    told("omp-region", found);
    return 0;
}
