/* storm KIND MS: creates short-lived processes (fork, exec, daemon) or threads (thread) as fast as it can for MS
 * milliseconds, 0: for ever. Some daemons live on, so that what is left behind shows. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ALIVE = 6, LASTING = 12 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void work_ms(double ms)
{
    double end = now_ms() + ms;
    while (now_ms() < end)
        ;
}

static void *work(void *arg)
{
    work_ms(1);
    return arg;
}

static void threads(void)
{
    pthread_t ids[ALIVE];
    int n = 0;
    while (n < ALIVE && !pthread_create(&ids[n], NULL, work, NULL))
        n++;
    for (int i = 0; i < n; i++)
        pthread_join(ids[i], NULL);
}

static void processes(const char *self, int executes)
{
    int n = 0;
    for (int i = 0; i < ALIVE; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (executes)
                execl(self, self, "leaf", (char *)NULL);
            work_ms(1);
            _exit(0);
        }
        n += pid > 0;
    }
    while (n > 0 && wait(NULL) > 0)
        n--;
}

/* As daemon(3) does it; a few live on as children of nobody here. */
static void daemons(int lasts)
{
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        if (fork() != 0)
            _exit(0);
        work_ms(2);
        while (lasts)
            pause();
        usleep(20000);
        _exit(0);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "leaf")) {
        work_ms(1);
        return 0;
    }
    if (argc != 3)
        return 2;
    double end = now_ms() + atof(argv[2]);
    for (int round = 0; atof(argv[2]) == 0 || now_ms() < end; round++) {
        if (!strcmp(argv[1], "thread"))
            threads();
        else if (!strcmp(argv[1], "daemon"))
            daemons(round % 4 == 3 && round / 4 < LASTING);
        else
            processes(argv[0], !strcmp(argv[1], "exec"));
    }
    return 0;
}
