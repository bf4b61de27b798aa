/* Programs that `advise-threads --apply` must not change: relies KIND
 *
 * With OpenMP, a parallel region that is executed over and over, nearly all of it in a critical section:
 *   max, max_              shares the work out among as many threads as omp_get_max_threads says, as C or as Fortran calls it
 *   set, set_, set_8_      among the two that it asks for with omp_set_num_threads
 *   grows                  has one thread at first, and two later; both are set behind the back of whoever watches
 *   reduction              has a reduction over tasks
 * Prints how much of the work was done, and the largest team. Without OpenMP:
 *   none                   asks for one thread where there is an OpenMP, and prints how many there may be. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 200, WORK = 4 };

#ifdef _OPENMP
#include <omp.h>

extern int omp_get_max_threads_(void);
extern void omp_set_num_threads_(const int32_t *);
extern void omp_set_num_threads_8_(const int64_t *) __attribute__((weak)); /* GNU's alone has it */

static long done;
static int largest;

/* All of the work, if there are so many threads. */
static void shared_out(int threads) {
#pragma omp parallel
    {
        int mine = omp_get_thread_num();
        for (int i = mine * WORK / threads; i < WORK && i < (mine + 1) * WORK / threads; i++)
#pragma omp critical
        {
            usleep(300);
            done++;
            if (omp_get_num_threads() > largest) largest = omp_get_num_threads();
        }
    }
}

static void reduced(void) {
    long sum = 0;
#pragma omp parallel reduction(task, + : sum)
#pragma omp master
    for (int i = 0; i < WORK; i++)
#pragma omp task in_reduction(+ : sum)
        sum++;
    done += sum;
}

/* omp_set_num_threads as dlsym finds it in the runtime itself, which is how Python's threadpoolctl calls it. */
static void set_unseen(int threads) {
    void *runtime = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (runtime == NULL) runtime = dlopen("libomp.so.5", RTLD_LAZY | RTLD_NOLOAD);
    void (*set)(int) = NULL;
    if (runtime != NULL) *(void **)&set = dlsym(runtime, "omp_set_num_threads");
    if (set != NULL) set(threads);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    const char *kind = argv[1];
    int32_t two = 2;
    int64_t two_8 = 2;
    int threads = 2;
    if (!strcmp(kind, "max")) threads = omp_get_max_threads();
    else if (!strcmp(kind, "max_")) threads = omp_get_max_threads_();
    else if (!strcmp(kind, "set")) omp_set_num_threads(two);
    else if (!strcmp(kind, "set_")) omp_set_num_threads_(&two);
    else if (!strcmp(kind, "set_8_")) omp_set_num_threads_8_(&two_8);
    else if (!strcmp(kind, "grows")) {
        set_unseen(1);
        for (int round = 0; round < ROUNDS; round++) shared_out(1);
        set_unseen(2);
    }
    for (int round = 0; round < ROUNDS; round++)
        if (!strcmp(kind, "reduction")) reduced();
        else shared_out(strcmp(kind, "grows") ? threads : 1);
    printf("%ld %d\n", done, largest);
    return 0;
}
#else
extern void omp_set_num_threads(int) __attribute__((weak));
extern int omp_get_max_threads(void) __attribute__((weak));
extern void omp_set_num_threads_(const int32_t *) __attribute__((weak));

int main(void) {
    int32_t one = 1;
    if (omp_set_num_threads) omp_set_num_threads(one);
    if (omp_set_num_threads_) omp_set_num_threads_(&one);
    printf("%d\n", omp_get_max_threads ? omp_get_max_threads() : 1);
    return 0;
}
#endif
