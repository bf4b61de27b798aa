// Creates a process that ends at once without executing a program, as a server does that saves its memory, and works for two seconds.
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, 0, 0);
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec - begun.tv_sec < 2 || now.tv_nsec < begun.tv_nsec);
    return 0;
}
