/* daemon FILE [works]: leaves a process behind that has forked twice and left the session, as daemons do;
 * it writes its number to FILE and waits, or works, for a minute. The parent waits until then. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void spend_a_ms(void)
{
    clock_t end = clock() + CLOCKS_PER_SEC / 1000;
    while (clock() < end)
        ;
}

int main(int argc, char **argv)
{
    struct stat found;
    if (argc < 2)
        return 2;
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            char name[4096];
            FILE *file;
            fclose(stdin), fclose(stdout), fclose(stderr);
            /* Long enough to be placed, and not needed for the test to pass. */
            for (int ms = 0; ms < 300; ms++)
                argc > 2 ? spend_a_ms() : (void)usleep(1000);
            snprintf(name, sizeof(name), "%s.new", argv[1]);
            file = fopen(name, "w");
            fprintf(file, "%d\n", getpid());
            fclose(file);
            rename(name, argv[1]);
            alarm(60);
            while (argc > 2)
                spend_a_ms();
            pause();
        }
        _exit(0);
    }
    while (stat(argv[1], &found))
        usleep(1000);
    return 0;
}
