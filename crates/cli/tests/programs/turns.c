/* turns: two processes pass a byte to and fro, each of which sleeps until it comes, as long as the one that created them lives. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void pass_on(int from, int to)
{
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (read(from, &byte, 1) == 1 && write(to, &byte, 1) == 1)
        ;
    _exit(0);
}

int main(void)
{
    int there[2], back[2];
    if (pipe(there) || pipe(back) || write(there[1], "", 1) != 1)
        return 1;
    if (fork() == 0)
        pass_on(there[0], back[1]);
    if (fork() == 0)
        pass_on(back[0], there[1]);
    wait(NULL);
    return 0;
}
