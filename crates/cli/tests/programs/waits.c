/* Threads that wait for others, for --preload: waits KIND MS
 *
 * The first thread works for MS milliseconds of its CPU time; meanwhile the second one
 *   spin       waits for a spin lock,
 *   adaptive   waits for an adaptive mutex, which puts it to sleep soon,
 *   mutex      waits for an ordinary mutex,
 *   free       takes and gives back locks that nobody else wants, as fast as it can,
 *   compute    works as well, and takes a spin lock now and then that the first one seldom has,
 *   fork       has forked a child, in which it waits for a spin lock,
 *   execute    waits for a spin lock, and the program then executes itself with `spin`.
 * Prints the thread number of the second one. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_spinlock_t spin, own;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int ready, done;
static const char *kind;

static long cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void work(long ms) {
    for (long until = cpu_ms() + ms; cpu_ms() < until;)
        for (volatile int i = 0; i < 10000; i++) continue;
}

static void *second(void *unused) {
    (void)unused;
    printf("%ld\n", syscall(SYS_gettid));
    fflush(stdout);
    atomic_store(&ready, 1);
    if (!strcmp(kind, "adaptive")) pthread_mutex_lock(&adaptive);
    else if (!strcmp(kind, "mutex")) pthread_mutex_lock(&mutex);
    else if (!strcmp(kind, "free"))
        while (!atomic_load(&done))
            for (int i = 0; i < 1000; i++) {
                pthread_spin_lock(&own);
                pthread_spin_unlock(&own);
                pthread_mutex_lock(&adaptive);
                pthread_mutex_unlock(&adaptive);
                pthread_mutex_lock(&mutex);
                pthread_mutex_unlock(&mutex);
            }
    else if (!strcmp(kind, "compute"))
        while (!atomic_load(&done)) {
            work(1);
            pthread_spin_lock(&spin);
            pthread_spin_unlock(&spin);
        }
    else pthread_spin_lock(&spin);
    return NULL;
}

static void pair(long ms) {
    pthread_t thread;
    int held = strcmp(kind, "free") && strcmp(kind, "compute");
    if (held) {
        pthread_spin_lock(&spin);
        pthread_mutex_lock(&adaptive);
        pthread_mutex_lock(&mutex);
    }
    pthread_create(&thread, NULL, second, NULL);
    while (!atomic_load(&ready)) work(1);
    for (long i = 0; i < ms; i++) {
        work(1);
        if (!held) {
            pthread_spin_lock(&spin);
            pthread_spin_unlock(&spin);
        }
    }
    atomic_store(&done, 1);
    if (held) {
        pthread_spin_unlock(&spin);
        pthread_mutex_unlock(&adaptive);
        pthread_mutex_unlock(&mutex);
    }
    pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    kind = argv[1];
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    pthread_spin_init(&own, PTHREAD_PROCESS_PRIVATE);
    if (!strcmp(kind, "fork")) {
        kind = "spin";
        pair(20);
        atomic_store(&ready, 0);
        pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
        pid_t child = fork();
        int status = 0;
        if (child != 0) return waitpid(child, &status, 0) == child ? status : 1;
    }
    int again = !strcmp(kind, "execute");
    if (again) kind = "spin";
    pair(atol(argv[2]));
    if (again) execl("/proc/self/exe", argv[0], "spin", argv[2], NULL);
    return 0;
}
