/* headless: a thread that works for ever, in a process whose first thread has ended. All may run on one PU only, by
 * the program's own choice. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

static void *work(void *unused)
{
    (void)unused;
    for (;;)
        __asm__ volatile("" ::: "memory");
}

int main(void)
{
    pthread_t thread;
    cpu_set_t pus, one;
    int pu = 0;
    if (sched_getaffinity(0, sizeof(pus), &pus))
        return 1;
    while (!CPU_ISSET(pu, &pus))
        pu++;
    CPU_ZERO(&one);
    CPU_SET(pu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) || pthread_create(&thread, NULL, work, NULL))
        return 1;
    pthread_exit(NULL);
}
