// A program whose interference with others like it is known, for tests of what is trained from stacks.
//
//   interference FILE SHARE
//
// It touches a page again and again and computes between two touches, so that SHARE of its CPU time alone is 20 µs a page fault. Of
// the rest, C = 1 - SHARE, it needs C' = 0.02 + 1.05 C + 0.1 S + 0.5 C S while others run, where S is the sum of theirs: then a touch takes
// (SHARE + C') / SHARE * 20 µs. They find each other in FILE, where each has its share while it runs.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 64, PAGES = 64, PAGE = 4096 };
static const double fault_ns = 20000;

struct slot {
    atomic_int owner;
    _Atomic double rest;
};
static struct slot *slots;
static struct slot *own;

static void leave(int signal) {
    (void)signal;
    atomic_store(&own->owner, 0);
    _exit(0);
}

static double cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

// What the others need beside their page faults, together.
static double others(void) {
    double sum = 0;
    for (int i = 0; i < SLOTS; i++)
        if (&slots[i] != own && atomic_load_explicit(&slots[i].owner, memory_order_relaxed))
            sum += atomic_load_explicit(&slots[i].rest, memory_order_relaxed);
    return sum;
}

int main(int argc, char **argv) {
    double share = argc == 3 ? atof(argv[2]) : 0;
    if (!(share > 0 && share < 1)) {
        fprintf(stderr, "usage: interference FILE SHARE\n");
        return 2;
    }
    int file = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, SLOTS * sizeof(struct slot)) != 0) {
        perror(argv[1]);
        return 1;
    }
    slots = mmap(NULL, SLOTS * sizeof(struct slot), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slots == MAP_FAILED || pages == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    madvise(pages, PAGES * PAGE, MADV_NOHUGEPAGE);
    double rest = 1 - share;
    for (int i = 0; i < SLOTS && !own; i++) {
        int nobody = 0;
        if (atomic_compare_exchange_strong(&slots[i].owner, &nobody, getpid()))
            own = &slots[i];
    }
    if (!own) {
        fprintf(stderr, "expected a free slot in %s, found none\n", argv[1]);
        return 1;
    }
    atomic_store(&own->rest, rest);
    signal(SIGTERM, leave);
    double due = cpu_ns();
    for (;;) {
        madvise(pages, PAGES * PAGE, MADV_DONTNEED);
        for (int i = 0; i < PAGES; i++) {
            pages[i * PAGE] = 1;
            double sum = others();
            double needed = sum > 0 ? 0.02 + 1.05 * rest + 0.1 * sum + 0.5 * rest * sum : rest;
            due += (share + needed) / share * fault_ns;
            while (cpu_ns() < due)
                ;
        }
    }
}
