/* Creates so many processes that sleep until this one ends, and prints their numbers, each on a line, and an empty line. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **words)
{
    int children = count > 1 ? atoi(words[1]) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int child = 0; child < children; child++) {
        pid_t pid = fork();
        if (pid < 0)
            return 1;
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
        printf("%d\n", pid);
    }
    puts("");
    for (;;)
        pause();
}
