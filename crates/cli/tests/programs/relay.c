/* relay FILE: leaves a process behind in which threads follow one another, each created by the one
 * before, in 20 rows. It writes its number to FILE when all rows have begun; the parent waits until
 * then. The rows stand still when the file FILE.stop is there, and end with the process. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char stop[4096];

static void *next(void *arg)
{
    pthread_t thread;
    struct stat found;
    usleep(1000);
    if (stat(stop, &found) == 0)
        sleep(60);
    if (pthread_create(&thread, NULL, next, arg) == 0)
        pthread_detach(thread);
    return NULL;
}

int main(int argc, char **argv)
{
    struct stat found;
    if (argc < 2)
        return 2;
    snprintf(stop, sizeof(stop), "%s.stop", argv[1]);
    if (fork() == 0) {
        char name[4096];
        FILE *file;
        fclose(stdin), fclose(stdout), fclose(stderr);
        for (int i = 0; i < 20; i++)
            next(NULL);
        snprintf(name, sizeof(name), "%s.new", argv[1]);
        file = fopen(name, "w");
        fprintf(file, "%d\n", getpid());
        fclose(file);
        rename(name, argv[1]);
        sleep(60);
        _exit(0);
    }
    while (stat(argv[1], &found))
        usleep(1000);
    return 0;
}
