/* chains PROCESSES: in each of some processes the first thread sets a mask of its own, PU 0, and the second one was
 * created before. It creates another thread after up to 4 ms and ends, and so on, until SIGUSR1. Prints nothing. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t over;

static void end(int number) {
    (void)number;
    over = 1;
}

static void create(void *(*begin)(void *), long seed) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, begin, (void *)seed) != 0) abort();
}

static void *link_of_chain(void *argument) {
    unsigned seed = (unsigned)(long)argument;
    usleep((useconds_t)(rand_r(&seed) % 4000));
    while (over) pause();
    create(link_of_chain, rand_r(&seed));
    return NULL;
}

int main(int count, char **words) {
    int processes = count > 1 ? atoi(words[1]) : 1;
    signal(SIGUSR1, end);
    for (int at = 1; at < processes; at++) {
        if (fork() == 0) break;
    }
    create(link_of_chain, getpid());
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(0, &own);
    if (sched_setaffinity(0, sizeof own, &own) != 0) abort();
    while (1) pause();
}
