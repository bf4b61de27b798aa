/* headless: a thread that works for ever, in a process whose first thread has ended. All may run on one PU only, by
 * the program's own choice.
 * headless free: the same without that choice.
 * headless bare: the first thread waits, and the command line is cleared, as by setproctitle(3) with an empty title. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

static void *work(void *unused)
{
    (void)unused;
    for (;;)
        __asm__ volatile("" ::: "memory");
}

static int choose_one_pu(void)
{
    cpu_set_t pus, one;
    int pu = 0;
    if (sched_getaffinity(0, sizeof(pus), &pus))
        return 1;
    while (!CPU_ISSET(pu, &pus))
        pu++;
    CPU_ZERO(&one);
    CPU_SET(pu, &one);
    return sched_setaffinity(0, sizeof(one), &one);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc < 2 && choose_one_pu())
        return 1;
    if (pthread_create(&thread, NULL, work, NULL))
        return 1;
    if (argc > 1 && !strcmp(argv[1], "bare")) {
        memset(argv[0], 0, argv[1] + sizeof("bare") - argv[0]);
        for (;;)
            pause();
    }
    pthread_exit(NULL);
}
