/* creations N: creates N threads one after the other; each computes for about 2 ms and ends. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static void *compute(void *arg)
{
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begun.tv_sec) * 1000000000L + now.tv_nsec - begun.tv_nsec < 2000000);
    return arg;
}

int main(int argc, char **argv)
{
    int number = argc > 1 ? atoi(argv[1]) : 500;
    pthread_t thread;
    while (number-- > 0)
        if (pthread_create(&thread, NULL, compute, NULL) || pthread_join(thread, NULL))
            return 1;
    return 0;
}
