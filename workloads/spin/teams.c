/* An OpenMP team of which one thread works while the others wait at the end of the region: teams MS
 *
 * To be compiled with -fopenmp and run with OMP_WAIT_POLICY=active (libgomp, libomp) or KMP_BLOCKTIME=infinite (libomp).
 * Every other region is without work for the first thread, so that it waits, too. Prints the thread numbers. */
#define _GNU_SOURCE
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int count, char **words) {
    double ms = count > 1 ? atof(words[1]) : 500;
    uint64_t sum = 0;
#pragma omp parallel num_threads(2) reduction(+ : sum)
    {
        printf("%s %ld\n", omp_get_thread_num() == 0 ? "works" : "waits", syscall(SYS_gettid));
        fflush(stdout);
        if (omp_get_thread_num() == 0) {
            uint64_t state = 1;
            for (double until = cpu_ms() + ms; cpu_ms() < until;)
                for (int i = 0; i < 20000; i++) state = state * 6364136223846793005u + 1442695040888963407u;
            sum += state;
        }
    }
    printf("sum %llu\n", (unsigned long long)sum);
    return 0;
}
