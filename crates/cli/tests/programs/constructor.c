/* constructor LIBRARY: loads this file, compiled with -DPLUGIN and -fopenmp: its constructor waits for a thread that is in a
 * critical section of OpenMP's. */
#include <pthread.h>
#include <stddef.h>

#ifdef PLUGIN
static int shared;

static void *enter(void *unused) {
#pragma omp critical
    shared++;
    return unused;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, enter, NULL);
    pthread_join(thread, NULL);
}
#else
#include <dlfcn.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    alarm(20); /* a thread that waits for the loader waits for ever */
    return dlopen(argv[1], RTLD_NOW) == NULL;
}
#endif
