/* daemon FILE: leaves a process behind that has forked twice and left the session, as daemons do;
 * it writes its number to FILE and waits. The parent waits until then. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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
            usleep(300000); /* long enough to be placed, and not needed for the test to pass */
            snprintf(name, sizeof(name), "%s.new", argv[1]);
            file = fopen(name, "w");
            fprintf(file, "%d\n", getpid());
            fclose(file);
            rename(name, argv[1]);
            sleep(60);
        }
        _exit(0);
    }
    while (stat(argv[1], &found))
        usleep(1000);
    return 0;
}
