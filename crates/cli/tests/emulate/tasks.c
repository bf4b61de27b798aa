/* What tasks can do: tasks KIND [NUMBER]. The work of each is a number of scalar additions, which
 * nothing else in these programs does, so that the float class counts it exactly. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void add(long times) {
    for (long i = 0; i < times; i++)
        __asm__ volatile("addsd %%xmm1, %%xmm0" ::: "xmm0");
}

static void *work(void *times) {
    char name[16];
    snprintf(name, sizeof name, "adds-%ld", (long)times);
    pthread_setname_np(pthread_self(), name);
    add((long)times);
    return 0;
}

static pthread_t start(long times) {
    pthread_t thread;
    if (pthread_create(&thread, 0, work, (void *)times))
        exit(1);
    return thread;
}

static void *stay(void *started) {
    add(11);
    pthread_barrier_wait(started);
    pause();
    return 0;
}

/* Starts `number` threads that live until the process ends, and waits until all of them work. */
static void stay_alive(int number) {
    static pthread_barrier_t started;
    pthread_barrier_init(&started, 0, number + 1);
    for (int i = 0; i < number; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, stay, &started))
            exit(1);
    }
    pthread_barrier_wait(&started);
}

static int run(const char *kind, int number) {
    if (!strcmp(kind, "threads")) {
        pthread_t threads[64];
        for (int i = 0; i < number; i++)
            threads[i] = start(100 * (i + 1));
        for (int i = 0; i < number; i++)
            pthread_join(threads[i], 0);
        add(7);
    } else if (!strcmp(kind, "one-by-one")) {
        for (int i = 0; i < number; i++)
            pthread_join(start(3), 0);
    } else if (!strcmp(kind, "exit-group")) {
        stay_alive(number);
        _exit(4);
    } else if (!strcmp(kind, "main-goes-first")) {
        pthread_t thread = start(500);
        (void)thread;
        pthread_exit(0);
    } else if (!strcmp(kind, "fork")) {
        /* The parent's threads have numbers that the child's threads get again. */
        add(5);
        stay_alive(number);
        pid_t child = fork();
        if (!child) {
            add(20);
            for (int i = 0; i < number + 2; i++)
                pthread_join(start(30), 0);
            _exit(6);
        }
        int status;
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    } else if (!strcmp(kind, "join-and-exit")) {
        /* QEMU wakes the joining thread before it reports to plugins that the joined one has ended. */
        for (int i = 0; i < number; i++) {
            pid_t child = fork();
            if (!child) {
                pthread_join(start(3), 0);
                _exit(0);
            }
            waitpid(child, 0, 0);
        }
    } else if (!strcmp(kind, "fork-after-failure")) {
        /* A thread of another process is none. */
        if (syscall(SYS_clone, CLONE_THREAD, 0, 0, 0, 0) != -1)
            return 1;
        pid_t child = fork();
        if (!child)
            _exit(0);
        waitpid(child, 0, 0);
    } else if (!strcmp(kind, "left-behind")) {
        if (!fork()) {
            /* Nobody shall wait for these to be closed. */
            close(0), close(1), close(2);
            sleep(number);
        }
    } else if (!strcmp(kind, "execute")) {
        add(9);
        execl("/bin/true", "true", (char *)0);
    } else if (!strcmp(kind, "execute-nothing")) {
        execl("/nowhere/at/all", "all", (char *)0);
        add(9);
    } else if (!strcmp(kind, "raise")) {
        add(13);
        raise(number);
    } else if (!strcmp(kind, "close-all")) {
        for (int fd = 0; fd < 64; fd++)
            close(fd);
        add(17);
    } else if (!strcmp(kind, "avx512")) {
        /* vaddpd zmm2, zmm1, zmm0 */
        __asm__ volatile(".byte 0x62, 0xf1, 0xf5, 0x48, 0x58, 0xd0");
    } else {
        return 2;
    }
    return 0;
}

int main(int argc, char **argv) { return run(argv[1], argc > 2 ? atoi(argv[2]) : 0); }
