/* threads SHORT LONG [own]: creates SHORT threads one after the other, then LONG threads that wait
 * until standard input closes. With `own`, every long thread binds itself, 0.1 s after its birth, to the
 * first CPU that the program was allowed to use. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_barrier_t ready;
static int own;
static cpu_set_t first_only;

static void *nothing(void *arg) { return arg; }

static void *wait_for_end(void *arg)
{
    if (own) {
        usleep(100000);
        sched_setaffinity(0, sizeof(first_only), &first_only);
    }
    pthread_barrier_wait(&ready);
    for (;;)
        pause();
    return arg;
}

int main(int argc, char **argv)
{
    int number = argc > 1 ? atoi(argv[1]) : 0, lasting = argc > 2 ? atoi(argv[2]) : 0;
    char rest[64];
    cpu_set_t set;
    int first = 0;
    if (sched_getaffinity(0, sizeof(set), &set))
        return 4;
    while (!CPU_ISSET(first, &set))
        first++;
    CPU_ZERO(&first_only);
    CPU_SET(first, &first_only);
    own = argc > 3 && !strcmp(argv[3], "own");
    for (int i = 0; i < number; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL))
            return 2;
    }
    pthread_barrier_init(&ready, NULL, lasting + 1);
    for (int i = 0; i < lasting; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, wait_for_end, NULL))
            return 3;
    }
    pthread_barrier_wait(&ready);
    puts("ready");
    fflush(stdout);
    while (lasting && read(0, rest, sizeof(rest)) > 0)
        ;
    return 0;
}
