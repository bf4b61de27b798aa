/* exec_by_thread FILE PROGRAM [ARG]...: a thread that is not the first executes PROGRAM, as soon as it and the first
 * one are bound to a CPU each, or after 1 s. If FILE is not "-", a child process does so, and the parent waits until
 * FILE is there. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char **command;

static int are_apart(void)
{
    cpu_set_t first, own;
    return !sched_getaffinity(getpid(), sizeof(first), &first) && !sched_getaffinity(0, sizeof(own), &own) &&
           CPU_COUNT(&first) == 1 && CPU_COUNT(&own) == 1 && !CPU_EQUAL(&first, &own);
}

static void *execute(void *arg)
{
    for (int i = 0; i < 1000 && !are_apart(); i++)
        usleep(1000);
    execvp(command[0], command);
    perror(command[0]);
    _exit(98);
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    struct stat found;
    if (argc < 3)
        return 2;
    command = argv + 2;
    if (strcmp(argv[1], "-") && fork()) {
        while (stat(argv[1], &found))
            usleep(1000);
        return 0;
    }
    if (pthread_create(&thread, NULL, execute, NULL))
        return 3;
    for (;;)
        pause();
}
