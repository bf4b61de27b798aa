/* Threads that wait for another one in a loop: waits KIND MS
 *
 * One thread works for MS milliseconds of its CPU time, while the other waits until it is done:
 *   flag       for a variable, with a hint to the processor
 *   bare       the same, without a hint
 *   timed      the same, with so many rounds at most, again and again
 *   spinlock   in pthread_spin_lock
 *   exchange   for a lock that it tries by exchange, without a hint
 *   compare    for a lock that it tries by comparison, with a hint
 *   backoff    for a variable, longer and longer between two looks
 *   yield      for a variable, giving its PU to others each time
 *   patient    for a lock: a hundred looks with a hint, then giving its PU to others between two looks
 *   adaptive   in pthread_mutex_lock of an adaptive mutex, over and over: the other one takes it, says so, works for 200 us,
 *              gives it back, and does that again once it was taken. With GLIBC_TUNABLES=glibc.pthread.mutex_spin_count=32767, else who
 *              waits sleeps after some microseconds
 *   asleep     in pthread_mutex_lock of an ordinary mutex: it sleeps
 *
 * Prints the thread number of who waits and of who works, and the CPU time of each in ms at the end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_spinlock_t spin;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, ordinary = PTHREAD_MUTEX_INITIALIZER;
static _Alignas(64) atomic_int done, lock = 1, began;
static _Alignas(64) atomic_int taken;
static sem_t turn;
static const char *kind;
static uint64_t sum = 1;
static double waited_ms;

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void work(double ms) {
    uint64_t state = sum;
    for (double until = cpu_ms() + ms; cpu_ms() < until;)
        for (int i = 0; i < 2000; i++) state = state * 6364136223846793005u + 1442695040888963407u;
    sum = state;
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wait_for_it(void) {
    if (!strcmp(kind, "flag"))
        while (!atomic_load_explicit(&done, memory_order_acquire)) relax();
    else if (!strcmp(kind, "bare"))
        while (!atomic_load_explicit(&done, memory_order_acquire)) continue;
    else if (!strcmp(kind, "timed"))
        for (int over = 0; !over;)
            for (long i = 0; i < 1000000 && !over; i++) over = atomic_load_explicit(&done, memory_order_relaxed);
    else if (!strcmp(kind, "spinlock")) pthread_spin_lock(&spin);
    else if (!strcmp(kind, "exchange"))
        while (atomic_exchange(&lock, 1)) continue;
    else if (!strcmp(kind, "compare")) {
        int free = 0;
        while (!atomic_compare_exchange_weak(&lock, &free, 1)) free = 0, relax();
    } else if (!strcmp(kind, "backoff"))
        for (int pause = 1; !atomic_load(&done); pause = pause < 64 ? 2 * pause : 64)
            for (int i = 0; i < pause; i++) relax();
    else if (!strcmp(kind, "yield"))
        while (!atomic_load_explicit(&done, memory_order_acquire)) sched_yield();
    else if (!strcmp(kind, "patient"))
        for (int look = 0; atomic_load_explicit(&lock, memory_order_relaxed) || atomic_exchange(&lock, 1); look++)
            if (look < 100) relax();
            else sched_yield();
    else if (!strcmp(kind, "adaptive"))
        while (sem_wait(&turn) == 0 && !atomic_load(&done)) {
#ifdef __GLIBC__
            /* As if waiting in a loop had paid before; glibc keeps the mean of that here (nptl/pthread_mutex_lock.c). */
            adaptive.__data.__spins = 16000;
#endif
            pthread_mutex_lock(&adaptive);
            atomic_fetch_add(&taken, 1);
            pthread_mutex_unlock(&adaptive);
        }
    else if (!strcmp(kind, "asleep")) pthread_mutex_lock(&ordinary);
    else exit(2);
}

static void *other(void *unused) {
    (void)unused;
    printf("waits %ld\n", syscall(SYS_gettid));
    fflush(stdout);
    atomic_store(&began, 1);
    wait_for_it();
    waited_ms = cpu_ms();
    return NULL;
}

int main(int count, char **words) {
    if (count != 3) return fprintf(stderr, "waits: expected KIND MS\n"), 2;
    kind = words[1];
    double ms = atof(words[2]);
    pthread_t thread;
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    pthread_spin_lock(&spin);
    pthread_mutex_lock(&ordinary);
    printf("works %ld\n", syscall(SYS_gettid));
    fflush(stdout);
    pthread_create(&thread, NULL, other, NULL);
    while (!atomic_load(&began)) work(1);
    double before = cpu_ms();
    if (!strcmp(kind, "adaptive"))
        for (int turns = 1; cpu_ms() < before + ms; turns++) {
            pthread_mutex_lock(&adaptive);
            sem_post(&turn);
            work(0.2);
            pthread_mutex_unlock(&adaptive);
            while (atomic_load(&taken) < turns) work(0.001);
        }
    else
        work(ms);
    atomic_store(&done, 1);
    atomic_store(&lock, 0);
    sem_post(&turn);
    pthread_spin_unlock(&spin);
    pthread_mutex_unlock(&ordinary);
    double worked_ms = cpu_ms();
    pthread_join(thread, NULL);
    printf("cpu-ms waits %.1f works %.1f sum %llu\n", waited_ms, worked_ms, (unsigned long long)sum);
    return 0;
}
