/* live_threads A_SECOND: creates so many threads a second that sleep for ever, until it is killed. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void *sleeps(void *unused)
{
    (void)unused;
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    struct timespec between = {0, 1000000000L / (argc > 1 ? atoi(argv[1]) : 1)};
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (;;) {
        pthread_t thread;
        pthread_create(&thread, &small, sleeps, NULL);
        nanosleep(&between, NULL);
    }
}
