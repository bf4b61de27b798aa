/* phases SLEEPERS WORKERS:MS ...: a program whose phases are known. SLEEPERS threads sleep all the time. In each
 * phase so many threads compute, the first thread among them, for so many milliseconds; in one with 0 all sleep.
 * With MS 0 a phase lasts until SIGUSR1. Writes a line at the beginning of each: its number, its
 * workers and the nanoseconds on CLOCK_MONOTONIC; at the very end another one, with 0 workers.
 * Used by scripts/bounded-cost and scripts/phase-latency. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begins = PTHREAD_COND_INITIALIZER;
/* Of the phase that is on; the number is written under the lock and read by who computes. */
static atomic_long phase = -1;
static long workers;
static volatile sig_atomic_t over;

static void end_phase(int unused)
{
    (void)unused;
    over = 1;
}

static long long now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void compute(void)
{
    volatile double sum = 0;
    for (int i = 1; i <= 1000; i++)
        sum += 1.0 / i;
}

static void sleep_a_while(long long ns)
{
    if (ns > 0)
        usleep(ns / 1000 + 1);
}

static void *work(void *place)
{
    long mine = -1;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (phase == mine || (long)place >= workers) {
            mine = phase;
            pthread_cond_wait(&begins, &lock);
        }
        mine = phase;
        pthread_mutex_unlock(&lock);
        while (phase == mine)
            compute();
    }
    return NULL;
}

static void *sleep_on(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static int start(void *(*what)(void *), long place)
{
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    return pthread_create(&thread, &small, what, (void *)place);
}

static void begin(long number, long count)
{
    pthread_mutex_lock(&lock);
    workers = count;
    phase = number;
    over = 0;
    printf("%ld %ld %lld\n", number, count, now_ns());
    fflush(stdout);
    pthread_cond_broadcast(&begins);
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
    long most = 0, count, ms;
    for (int i = 2; i < argc; i++) {
        if (sscanf(argv[i], "%ld:%ld", &count, &ms) != 2)
            return 2;
        most = count > most ? count : most;
    }
    signal(SIGUSR1, end_phase);
    for (long i = argc > 1 ? atol(argv[1]) : 0; i > 0; i--)
        if (start(sleep_on, 0))
            return 3;
    for (long place = 1; place < most; place++)
        if (start(work, place))
            return 3;
    for (int i = 2; i < argc; i++) {
        sscanf(argv[i], "%ld:%ld", &count, &ms);
        begin(i - 2, count);
        long long end = now_ns() + ms * 1000000LL;
        while (ms ? now_ns() < end : !over)
            count ? compute() : sleep_a_while(ms ? end - now_ns() : 20000000);
    }
    begin(argc - 2, 0);
    return 0;
}
