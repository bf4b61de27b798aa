/* busy THREADS ROUNDS: THREADS threads that share ROUNDS of arithmetic evenly and all live from the
 * start; prints the seconds it took. Used by measurements/run.toml. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long rounds_each;

static void *work(void *arg)
{
    volatile double sum = 0;
    for (long round = 0; round < rounds_each; round++)
        for (int i = 1; i <= 1000; i++)
            sum += 1.0 / i;
    return arg;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    int number = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t *threads = calloc(number, sizeof(*threads));
    double begun = now();
    rounds_each = (argc > 2 ? atol(argv[2]) : 1000) / number;
    for (int i = 0; i < number; i++)
        if (pthread_create(&threads[i], NULL, work, NULL))
            return 2;
    for (int i = 0; i < number; i++)
        pthread_join(threads[i], NULL);
    printf("%.4f\n", now() - begun);
    return 0;
}
