/* pingpong ROUNDS: two processes on one PU pass a byte to and fro, and each sleeps until it comes. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int there[2], back[2];
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    char byte = 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof(one), &one) || pipe(there) || pipe(back))
        return 1;
    if (fork() == 0) {
        close(there[1]);
        while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
            ;
        _exit(0);
    }
    while (rounds-- > 0 && write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1)
        ;
    close(there[1]);
    wait(NULL);
    return 0;
}
