/* strangers COUNT: creates COUNT processes, some at once, that belong to no job: each sleeps a moment and says whether
 * its mask and policy are those of this process. Prints how many were killed, stopped, pinned and made idle. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AT_ONCE = 120, PINNED = 1, IDLE = 2 };

int main(int argc, char **argv)
{
    int wanted = argc > 1 ? atoi(argv[1]) : 1000;
    int begun = 0, alive = 0, killed = 0, stopped = 0, pinned = 0, idle = 0;
    cpu_set_t original;
    sched_getaffinity(0, sizeof(original), &original);
    while (begun < wanted || alive > 0) {
        if (begun < wanted && alive < AT_ONCE) {
            pid_t pid = fork();
            if (pid == 0) {
                cpu_set_t mask;
                /* Later ones live longer, so that numbers are taken over at all distances. */
                usleep(1000 + begun % 100 * 1000);
                sched_getaffinity(0, sizeof(mask), &mask);
                _exit((CPU_EQUAL(&mask, &original) ? 0 : PINNED) |
                      (sched_getscheduler(0) == SCHED_OTHER ? 0 : IDLE));
            }
            if (pid > 0) {
                begun++;
                alive++;
                if (alive < AT_ONCE)
                    continue;
            }
        }
        int status;
        pid_t pid = waitpid(-1, &status, WUNTRACED);
        if (pid < 0) {
            usleep(500);
            continue;
        }
        if (WIFSTOPPED(status)) {
            stopped++;
            kill(pid, SIGCONT);
            continue;
        }
        alive--;
        killed += WIFSIGNALED(status);
        pinned += WIFEXITED(status) && WEXITSTATUS(status) & PINNED;
        idle += WIFEXITED(status) && WEXITSTATUS(status) & IDLE;
    }
    printf("strangers %d killed %d stopped %d pinned %d idle %d\n", begun, killed, stopped, pinned, idle);
    return 0;
}
