/* daemons DIR: a hundred threads each leave a process behind that has forked twice and left the session, as daemons do, and writes its
 * number to a file of that name in DIR; the program works on for a minute, and they wait as long. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *dir;

static void *leave(void *unused)
{
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() == 0) {
            char name[4096];
            FILE *file;
            snprintf(name, sizeof(name), "%s/%d", dir, getpid());
            if ((file = fopen(name, "w")))
                fclose(file);
            alarm(60);
            for (;;)
                pause();
        }
        _exit(0);
    }
    waitpid(child, NULL, 0);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[100];
    time_t end = time(NULL) + 60;
    if (argc < 2)
        return 2;
    dir = argv[1];
    /* Until it is placed, and its threads are created on one PU. */
    char go[4096];
    snprintf(go, sizeof(go), "%s/go", dir);
    while (access(go, F_OK))
        ;
    for (int i = 0; i < 100; i++)
        pthread_create(threads + i, NULL, leave, NULL);
    for (int i = 0; i < 100; i++)
        pthread_join(threads[i], NULL);
    while (time(NULL) < end)
        ;
    return 0;
}
