// forks [SECONDS]: creates a process that executes no program, as a server does that saves its memory. Without an argument that ends at once
// and this one works for two seconds; else both work for so many seconds.
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int seconds = argc > 1 ? atoi(argv[1]) : 2;
    pid_t child = fork();
    if (argc < 2) {
        if (child == 0) _exit(0);
        waitpid(child, 0, 0);
    }
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec - begun.tv_sec < seconds || now.tv_nsec < begun.tv_nsec);
    return 0;
}
