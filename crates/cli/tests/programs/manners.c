/* What --preload must not change: manners KIND
 *
 *   errno            prints errno as main finds it
 *   child            in a child that sees no /proc, waits for a spin lock, and prints errno after that; `no root` if that cannot be
 *   region           calls the function that runs GNU OpenMP's parallel regions, if there is one, and has none
 *   load LIBRARY     loads this file, compiled with -DPLUGIN: its constructor waits for a thread that takes a spin lock,
 *                    and with -fopenmp does a critical section of OpenMP's */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>

static pthread_spinlock_t lock;

#ifdef PLUGIN
static void *take(void *unused) {
    pthread_spin_lock(&lock);
    pthread_spin_unlock(&lock);
#pragma omp critical
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
    return unused;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
    pthread_create(&thread, NULL, take, NULL);
    pthread_join(thread, NULL);
}
#else
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *give_back(void *unused) {
    usleep(20000);
    pthread_spin_unlock(&lock);
    return unused;
}

static int child(void) {
    int status = 1;
    if (chroot("/proc/self/fdinfo") != 0) return puts("no root"), 0;
    if (fork() != 0) return wait(&status) < 0 || status != 0;
    pthread_t thread;
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
    pthread_spin_lock(&lock);
    pthread_create(&thread, NULL, give_back, NULL);
    errno = 0;
    pthread_spin_lock(&lock);
    int found = errno;
    pthread_join(thread, NULL);
    return printf("%d\n", found) < 0;
}

extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned) __attribute__((weak));

static void body(void *unused) {
    (void)unused;
    puts("ran");
}

static int region(void) {
    if (GOMP_parallel) GOMP_parallel(body, NULL, 0, 0);
    return 0;
}

int main(int argc, char **argv) {
    int found = errno;
    if (argc == 2 && !strcmp(argv[1], "errno")) return printf("%d\n", found) < 0;
    if (argc == 2 && !strcmp(argv[1], "child")) return child();
    if (argc == 2 && !strcmp(argv[1], "region")) return region();
    if (argc != 3) return 2;
    alarm(20); /* a thread that waits for the loader waits for ever */
    return dlopen(argv[2], RTLD_NOW) == NULL;
}
#endif
