/* widens SECONDS LATER: two workers set the mask of the program's start again, 3 ms after they have begun, as LLVM's OpenMP does it, and
 * once more LATER seconds later, unless that is 0. All work, and each worker prints how many PUs it has at the end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static cpu_set_t all;
static time_t end, again;

static void *work(void *unused)
{
    cpu_set_t mask;
    int is_due = again > 0;
    usleep(3000);
    sched_setaffinity(0, sizeof(all), &all);
    while (time(NULL) < end)
        if (is_due && time(NULL) >= again) {
            sched_setaffinity(0, sizeof(all), &all);
            is_due = 0;
        }
    sched_getaffinity(0, sizeof(mask), &mask);
    printf("%d\n", CPU_COUNT(&mask));
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t workers[2];
    if (argc < 3)
        return 2;
    sched_getaffinity(0, sizeof(all), &all);
    end = time(NULL) + atoi(argv[1]);
    again = atoi(argv[2]) ? time(NULL) + atoi(argv[2]) : 0;
    for (int i = 0; i < 2; i++)
        pthread_create(workers + i, NULL, work, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(workers[i], NULL);
    return 0;
}
