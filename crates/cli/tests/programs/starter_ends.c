/* A thread that begins the first region ends, then another one begins a region. Prints 4. */
#include <pthread.h>
#include <stdio.h>

static pthread_barrier_t ended;
static long count;

static void region(void) {
#pragma omp parallel num_threads(2)
    {
#pragma omp critical
        count++;
    }
}

static void *first(void *none) {
    region();
    return none;
}

static void *second(void *none) {
    pthread_barrier_wait(&ended);
    region();
    return none;
}

int main(void) {
    pthread_t one, two;
    pthread_barrier_init(&ended, NULL, 2);
    pthread_create(&two, NULL, second, NULL);
    pthread_create(&one, NULL, first, NULL);
    pthread_join(one, NULL);
    pthread_barrier_wait(&ended);
    pthread_join(two, NULL);
    printf("%ld\n", count);
    return 9;
}
