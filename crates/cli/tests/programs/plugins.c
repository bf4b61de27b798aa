/* Libraries that bring an OpenMP of their own, for --preload, in one file:
 *
 *   -DPLUGIN -fopenmp   a library whose function `team` says how many threads a parallel region has, and adds up their work
 *   -DRUNTIME           an OpenMP runtime of another kind: its teams have 1,000 threads, of which one does the work
 *   neither             plugins LIBRARY... : loads each library for itself alone, calls it twice and prints what it says;
 *                       +LIBRARY is not called, but loaded for all, once those before it have been called */
#if defined(PLUGIN)
int team(void);
int team(void) {
    int threads = 0;
#pragma omp parallel reduction(+ : threads)
    {
        int others = 0;
#pragma omp barrier
#pragma omp critical
        others++;
        threads += others;
    }
    return threads;
}
#elif defined(RUNTIME)
void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);
void GOMP_barrier(void);
void GOMP_critical_start(void);
void GOMP_critical_end(void);
void GOMP_atomic_start(void);
void GOMP_atomic_end(void);
static int in_region;
void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags) {
    (void)threads, (void)flags;
    in_region = 1;
    for (int i = 0; i < 1000; i++) body(data);
    in_region = 0;
}
void GOMP_barrier(void) { if (!in_region) __builtin_trap(); }
void GOMP_critical_start(void) { if (!in_region) __builtin_trap(); }
void GOMP_critical_end(void) {}
void GOMP_atomic_start(void) {}
void GOMP_atomic_end(void) {}
#else
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int (*team[16])(void) = {0};
    for (int i = 1; i < argc && i < 16; i++) {
        int for_all = argv[i][0] == '+';
        for (int before = 1; for_all && before < i; before++)
            if (team[before]) printf("%d\n", team[before]());
        void *library = dlopen(argv[i] + for_all, RTLD_NOW | (for_all ? RTLD_GLOBAL : RTLD_LOCAL));
        if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
        if (!for_all) *(void **)&team[i] = dlsym(library, "team");
    }
    for (int round = 0; round < 2; round++)
        for (int i = 1; i < argc && i < 16; i++)
            if (team[i]) printf("%d\n", team[i]());
    return 0;
}
#endif
