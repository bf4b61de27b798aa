/* binds_itself PU SECONDS [PU]: a worker starts; the first thread binds itself to the first PU, and the worker to the second one if there
 * is one, as GOMP_CPU_AFFINITY=1,0 has it. Both work, and the first thread prints the PUs that it has at the end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static time_t end;

static void bind_to(int pu)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(pu, &mask);
    sched_setaffinity(0, sizeof(mask), &mask);
}

static void *work(void *pu)
{
    if (pu)
        bind_to(atoi(pu));
    while (time(NULL) < end)
        ;
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t worker;
    cpu_set_t mask;
    if (argc < 3)
        return 2;
    end = time(NULL) + atoi(argv[2]);
    pthread_create(&worker, NULL, work, argc > 3 ? argv[3] : NULL);
    usleep(20000);
    bind_to(atoi(argv[1]));
    work(NULL);
    sched_getaffinity(0, sizeof(mask), &mask);
    for (int pu = 0; pu < CPU_SETSIZE; pu++)
        if (CPU_ISSET(pu, &mask))
            printf("%d\n", pu);
    pthread_join(worker, NULL);
    return 0;
}
