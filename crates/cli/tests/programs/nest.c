/* nest FILE [ends]: its first thread waits, or ends at once. Another one creates a thread each 50 ms, 20 in all, and writes the
 * process's number to FILE when it has created 15. All these compute a little every 20 ms. It ends after 20 s; SIGTERM is
 * ignored. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* Until all threads together have used a ms more. */
static void compute_a_little(void)
{
    clock_t end = clock() + CLOCKS_PER_SEC / 1000;
    while (clock() < end)
        ;
}

static void *compute(void *arg)
{
    for (;;) {
        compute_a_little();
        usleep(19000);
    }
    return arg;
}

static void *create(void *file)
{
    pthread_t thread;
    for (int number = 1; number <= 20; number++) {
        if (pthread_create(&thread, NULL, compute, NULL))
            _exit(1);
        for (int ms = 0; ms < 50; ms += 10) {
            compute_a_little();
            usleep(9000);
        }
        if (number == 15) {
            FILE *out = fopen(file, "w");
            fprintf(out, "%d\n", getpid());
            fclose(out);
        }
    }
    return compute(NULL);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc < 2)
        return 2;
    signal(SIGTERM, SIG_IGN);
    alarm(20);
    if (pthread_create(&thread, NULL, create, argv[1]))
        return 1;
    if (argc > 2)
        pthread_exit(NULL);
    pause();
    return 0;
}
