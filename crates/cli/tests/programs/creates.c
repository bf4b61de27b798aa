/* creates threads|processes SECONDS [CREATORS]: CREATORS threads (1) create threads or processes that do nothing and end,
 * each as fast as it can, for so many seconds. Prints how many there were, and the CPU time of all in nanoseconds.
 * Used by scripts/bounded-cost. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long end_ns;
static int processes;
static atomic_long created;

static long long now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static long long cpu_ns(int whose)
{
    struct rusage usage;
    getrusage(whose, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000LL +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000LL;
}

static void *nothing(void *arg)
{
    return arg;
}

static int create(void)
{
    pthread_t thread;
    pid_t pid;
    if (!processes)
        return pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL);
    pid = fork();
    if (pid == 0)
        _exit(0);
    return pid < 0 || waitpid(pid, NULL, 0) != pid;
}

static void *work(void *arg)
{
    while (now_ns() < end_ns) {
        if (create())
            exit(1);
        created++;
    }
    return arg;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    processes = !strcmp(argv[1], "processes");
    end_ns = now_ns() + (long long)(atof(argv[2]) * 1e9);
    for (int more = argc > 3 ? atoi(argv[3]) - 1 : 0; more > 0; more--) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL))
            return 1;
    }
    work(NULL);
    printf("%ld %lld\n", (long)created, cpu_ns(RUSAGE_SELF) + cpu_ns(RUSAGE_CHILDREN));
    return 0;
}
