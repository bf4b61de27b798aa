/* Threads that wait for another one in a loop: waits KIND MS, waits list
 *
 * One thread works for MS milliseconds of its CPU time, while the other waits until it is done. With 0 milliseconds the
 * other waits for a byte of the standard input first, and then for ever: this is for tests that run it instruction by
 * instruction. `list` prints the kinds; the table at the end of this file says what each is.
 *
 * Prints the thread number of the one that waits and of the one that works, and the CPU time of each in ms at the end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define APART _Alignas(64)

struct node {
    _Atomic(struct node *) next;
    atomic_int locked;
};

static pthread_spinlock_t spin;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, ordinary = PTHREAD_MUTEX_INITIALIZER;
static APART atomic_int done, lock = 1, began;
static APART atomic_int taken;
/* Held by the thread that works until it is done. */
static APART atomic_flag held = ATOMIC_FLAG_INIT;
static APART atomic_uint bits = 1, next_ticket = 1, served;
static struct node holder = {.locked = 1};
static APART _Atomic(struct node *) tail = &holder;
static APART _Atomic(uint64_t *) box;
static APART atomic_bool barrier_sense, slots[8], children[4];
static APART atomic_int arrived;
static APART _Atomic uint64_t ring_head, ring_tail, count;
static APART atomic_int readers = -1, permits;
static volatile int plain;
static volatile unsigned entry = 1;
static volatile double temperature;
static _Thread_local bool own_sense;
static sem_t turn;
static uint64_t sum = 1;
static double waited_ms;

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void work(double ms) {
    uint64_t state = sum;
    for (double until = cpu_ms() + ms; cpu_ms() < until;)
        for (int i = 0; i < 2000; i++) state = state * 6364136223846793005u + 1442695040888963407u;
    sum = state;
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int look(atomic_int *at) { return atomic_load_explicit(at, memory_order_acquire); }

static void flag(void) {
    while (!atomic_load_explicit(&done, memory_order_acquire)) relax();
}
static void bare(void) {
    while (!atomic_load_explicit(&done, memory_order_acquire)) continue;
}
static void old(void) {
    while (!plain) continue;
}
static void hot(void) {
    while (temperature < 100.0) continue;
}
static void two_entries(void) {
    if (entry & 1) goto test;
    if (atomic_load_explicit(&done, memory_order_acquire)) return;
again:
    relax();
test:
    if (!atomic_load_explicit(&done, memory_order_acquire)) goto again;
}
static void bare_two_entries(void) {
    int rounds = 0;
    if (entry & 1) goto test;
again:
    rounds++;
    if (atomic_load_explicit(&lock, memory_order_relaxed) == 0) return;
test:
    if (!atomic_load_explicit(&done, memory_order_acquire)) goto again;
    sum += (uint64_t)rounds;
}
static void three_entries(void) {
    switch (entry) {
        for (;;) {
        case 1:
            if (atomic_load(&done)) return;
            relax();
        case 2:
            if (!atomic_load(&lock)) return;
            relax();
        case 3:
            if (plain) return;
            relax();
        }
    }
}
static void timed(void) {
    for (int over = 0; !over;)
        for (long i = 0; i < 1000000 && !over; i++) over = atomic_load_explicit(&done, memory_order_relaxed);
}
static void deadline(void) {
#if defined(__x86_64__)
    for (uint64_t end = __rdtsc() + (UINT64_C(1) << 50); __rdtsc() < end && !atomic_load(&done);) continue;
#else
    bare();
#endif
}
static void generation(void) {
    int mine = atomic_load(&lock);
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&lock) == mine) relax();
}
static void pointer(void) {
    uint64_t *found;
    while ((found = atomic_load_explicit(&box, memory_order_acquire)) == NULL) continue;
    sum += *found;
}
static void mailbox(void) {
    uint64_t *found;
    while ((found = atomic_exchange(&box, NULL)) == NULL) relax();
    sum += *found;
}
static void bare_mailbox(void) {
    uint64_t *found;
    while ((found = atomic_exchange(&box, NULL)) == NULL) continue;
    sum += *found;
}
static void enough(void) {
    uint64_t target = entry + 8;
    while (atomic_load_explicit(&count, memory_order_acquire) < target) continue;
}
static void mask(void) {
    while ((atomic_load_explicit(&bits, memory_order_acquire) & 6) != 6) continue;
}
static void either(void) {
    while (!atomic_load_explicit(&done, memory_order_acquire) && atomic_load_explicit(&lock, memory_order_acquire)) continue;
}
static void ring(void) {
    while (atomic_load_explicit(&ring_head, memory_order_acquire) == atomic_load_explicit(&ring_tail, memory_order_relaxed)) relax();
}
static void spinlock(void) { pthread_spin_lock(&spin); }
static void exchange(void) {
    while (atomic_exchange(&lock, 1)) continue;
}
static void test_and_set(void) {
    while (atomic_flag_test_and_set_explicit(&held, memory_order_acquire)) continue;
}
static void compare(void) {
    int unlocked = 0;
    while (!atomic_compare_exchange_weak(&lock, &unlocked, 1)) unlocked = 0, relax();
}
static void bare_compare(void) {
    int unlocked = 0;
    while (!atomic_compare_exchange_strong(&lock, &unlocked, 1)) unlocked = 0;
}
static void test_first(void) {
    while (atomic_exchange_explicit(&lock, 1, memory_order_acquire))
        while (atomic_load_explicit(&lock, memory_order_relaxed)) continue;
}
static void test_and_compare(void) {
    for (int seen;;) {
        seen = atomic_load_explicit(&lock, memory_order_relaxed);
        if (seen == 0 && atomic_compare_exchange_weak(&lock, &seen, 1)) break;
    }
}
static void bit(void) {
    while (atomic_fetch_or(&bits, 1) & 1) continue;
}
static void semaphore(void) {
    for (int seen;;) {
        seen = atomic_load_explicit(&permits, memory_order_relaxed);
        if (seen > 0 && atomic_compare_exchange_weak(&permits, &seen, seen - 1)) break;
    }
}
static void reader(void) {
    for (int seen;;) {
        while ((seen = atomic_load_explicit(&readers, memory_order_relaxed)) < 0) relax();
        if (atomic_compare_exchange_weak(&readers, &seen, seen + 1)) break;
    }
}
static void writer(void) {
    for (;;) {
        int seen = 0;
        if (atomic_compare_exchange_weak(&readers, &seen, -1)) break;
        for (int i = 0; i < 16 && atomic_load_explicit(&readers, memory_order_relaxed) != 0; i++) relax();
    }
}
static void ticket(void) {
    unsigned mine = atomic_fetch_add(&next_ticket, 1);
    while (atomic_load_explicit(&served, memory_order_acquire) != mine) continue;
}
static void proportional(void) {
    unsigned mine = atomic_fetch_add(&next_ticket, 1), now;
    while ((now = atomic_load_explicit(&served, memory_order_acquire)) != mine)
        for (unsigned i = 0; i < 8 * (mine - now); i++) relax();
}
static void mcs(void) {
    struct node node = {.locked = 1};
    struct node *before = atomic_exchange(&tail, &node);
    if (before != NULL) {
        atomic_store(&before->next, &node);
        while (atomic_load_explicit(&node.locked, memory_order_acquire)) relax();
    }
}
static void bare_mcs(void) {
    struct node node = {.locked = 1};
    struct node *before = atomic_exchange(&tail, &node);
    atomic_store(&before->next, &node);
    while (atomic_load_explicit(&node.locked, memory_order_acquire)) continue;
}
static void successor(void) {
    struct node node = {.locked = 1}, *after;
    atomic_store(&tail, &node);
    while ((after = atomic_load_explicit(&node.next, memory_order_acquire)) == NULL && !atomic_load(&done)) continue;
    if (after != NULL) atomic_store(&after->locked, 0);
}
static void clh(void) {
    struct node node = {.locked = 1};
    struct node *before = atomic_exchange(&tail, &node);
    while (atomic_load_explicit(&before->locked, memory_order_acquire)) continue;
}
static void array(void) {
    unsigned mine = atomic_fetch_add(&next_ticket, 1);
    while (!atomic_load_explicit(&slots[mine % 8], memory_order_acquire)) continue;
}
static void sense(void) {
    own_sense = !own_sense;
    if (atomic_fetch_add(&arrived, 1) == 1) {
        atomic_store(&arrived, 0);
        atomic_store(&barrier_sense, own_sense);
    } else
        while (atomic_load_explicit(&barrier_sense, memory_order_acquire) != own_sense) continue;
}
static void tree(void) {
    for (int i = 0; i < 4; i++)
        while (!atomic_load_explicit(&children[i], memory_order_acquire)) relax();
}
static void bare_tree(void) {
    for (int i = 0; i < 4; i++)
        while (!atomic_load_explicit(&children[i], memory_order_acquire)) continue;
}
static void backoff(void) {
    for (int pause = 1; !atomic_load(&done); pause = pause < 64 ? 2 * pause : 64)
        for (int i = 0; i < pause; i++) relax();
}
static void random_backoff(void) {
    uint32_t state = 2463534242u;
    for (uint32_t most = 1; atomic_exchange(&lock, 1); most = most < 256 ? 2 * most : 256) {
        state ^= state << 13, state ^= state >> 17, state ^= state << 5;
        for (uint32_t i = state % most; i > 0; i--) relax();
    }
}
static void function(void) {
    while (!look(&done)) relax();
}
static void yield(void) {
    while (!atomic_load_explicit(&done, memory_order_acquire)) sched_yield();
}
static void patient(void) {
    for (int looks = 0; atomic_load_explicit(&lock, memory_order_relaxed) || atomic_exchange(&lock, 1); looks++)
        if (looks < 100) relax();
        else sched_yield();
}
static void wait_adaptive(void) {
    while (sem_wait(&turn) == 0 && !atomic_load(&done)) {
#ifdef __GLIBC__
        /* As if waiting in a loop had paid before; glibc keeps the mean of that here (nptl/pthread_mutex_lock.c). */
        adaptive.__data.__spins = 16000;
#endif
        pthread_mutex_lock(&adaptive);
        atomic_fetch_add(&taken, 1);
        pthread_mutex_unlock(&adaptive);
    }
}
static void asleep(void) { pthread_mutex_lock(&ordinary); }

static const struct kind {
    const char *name;
    void (*wait)(void);
} kinds[] = {
    /* A variable. */
    {"flag", flag}, /* with a hint to the processor */
    {"bare", bare}, /* without one, as all that begins with it */
    {"old", old},   /* that is only volatile */
    {"hot", hot},   /* a floating-point number */
    {"two-entries", two_entries},           /* the loop is entered at two places */
    {"bare-two-entries", bare_two_entries}, /* */
    {"three-entries", three_entries},       /* into the midst of it, as by Duff */
    {"timed", timed},                       /* with so many rounds at most, again and again */
    {"deadline", deadline},                 /* until a time */
    {"generation", generation},             /* until it changes */
    {"pointer", pointer},                   /* until it is set */
    {"mailbox", mailbox},                   /* the same, and taken out */
    {"bare-mailbox", bare_mailbox},
    {"enough", enough}, /* until it is large enough */
    {"mask", mask},     /* until some of its bits are set */
    {"either", either}, /* or another one */
    {"ring", ring},     /* until a queue is not empty */
    {"function", function}, /* that a function reads */
    /* Locks. */
    {"spinlock", spinlock}, /* in pthread_spin_lock */
    {"exchange", exchange}, /* tried by exchange, without a hint */
    {"test-and-set", test_and_set},
    {"compare", compare}, /* tried by comparison, with a hint */
    {"bare-compare", bare_compare},
    {"test-first", test_first},             /* tried once it was seen free, by exchange */
    {"test-and-compare", test_and_compare}, /* by comparison with what was seen */
    {"bit", bit},                           /* one bit of a word */
    {"semaphore", semaphore},
    {"reader", reader}, /* of readers and writers */
    {"writer", writer},
    {"ticket", ticket},
    {"proportional", proportional}, /* the longer the more others are in front */
    {"mcs", mcs},                   /* queues, with a flag for each: its own */
    {"bare-mcs", bare_mcs},
    {"successor", successor}, /* until the next one has come */
    {"clh", clh},             /* that of the one in front */
    {"array", array},         /* one of an array */
    /* Barriers. */
    {"sense", sense},
    {"tree", tree}, /* one child after the other */
    {"bare-tree", bare_tree},
    /* Less often with time. */
    {"backoff", backoff}, /* longer and longer between two looks */
    {"random-backoff", random_backoff},
    {"yield", yield},     /* giving its PU to others each time */
    {"patient", patient}, /* a hundred looks with a hint, then giving its PU to others between two looks */
    /* In pthread_mutex_lock of an adaptive mutex, over and over: the other one takes it, posts a semaphore, works for 200 us, gives
     * it back, and does that again once it was taken. With GLIBC_TUNABLES=glibc.pthread.mutex_spin_count=32767, else the thread
     * that waits sleeps after some microseconds. */
    {"adaptive", wait_adaptive},
    {"asleep", asleep}, /* in pthread_mutex_lock of an ordinary mutex: it sleeps */
};
static const struct kind *kind;
static bool stepped;

static void *other(void *unused) {
    (void)unused;
    printf("waits %ld\n", syscall(SYS_gettid));
    fflush(stdout);
    atomic_store(&began, 1);
    char byte;
    if (stepped && read(0, &byte, 1) < 0) exit(1);
    kind->wait();
    waited_ms = cpu_ms();
    return NULL;
}

/* Ends all waiting. */
static void release(void) {
    atomic_store(&done, 1);
    atomic_store(&lock, 0);
    atomic_flag_clear(&held);
    atomic_store(&bits, 6);
    atomic_store(&served, 1);
    atomic_store(&box, &sum);
    atomic_store(&barrier_sense, 1);
    for (int i = 0; i < 8; i++) atomic_store(&slots[i], 1);
    for (int i = 0; i < 4; i++) atomic_store(&children[i], 1);
    atomic_store(&ring_head, 1);
    atomic_store(&count, UINT64_MAX);
    atomic_store(&readers, 0);
    atomic_store(&permits, 1);
    plain = 1;
    temperature = 101.0;
    atomic_store(&holder.locked, 0);
    struct node *next = atomic_load(&holder.next);
    if (next != NULL) atomic_store(&next->locked, 0);
    sem_post(&turn);
    pthread_spin_unlock(&spin);
    pthread_mutex_unlock(&ordinary);
}

int main(int words_count, char **words) {
    int all = sizeof kinds / sizeof kinds[0];
    for (int i = 0; words_count == 2 && !strcmp(words[1], "list") && i < all; i++) printf("%s\n", kinds[i].name);
    if (words_count == 2 && !strcmp(words[1], "list")) return 0;
    for (int i = 0; words_count == 3 && i < all; i++)
        if (!strcmp(words[1], kinds[i].name)) kind = &kinds[i];
    if (kind == NULL) return fprintf(stderr, "waits: expected KIND MS or list\n"), 2;
    double ms = atof(words[2]);
    stepped = ms == 0;
    pthread_t thread;
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    pthread_spin_lock(&spin);
    pthread_mutex_lock(&ordinary);
    atomic_flag_test_and_set(&held);
    printf("works %ld\n", syscall(SYS_gettid));
    fflush(stdout);
    if (stepped) {
        pthread_mutex_lock(&adaptive);
        sem_post(&turn);
    }
    pthread_create(&thread, NULL, other, NULL);
    while (stepped) pause();
    while (!atomic_load(&began)) work(1);
    double before = cpu_ms();
    if (kind->wait == wait_adaptive)
        for (int turns = 1; cpu_ms() < before + ms; turns++) {
            pthread_mutex_lock(&adaptive);
            sem_post(&turn);
            work(0.2);
            pthread_mutex_unlock(&adaptive);
            while (atomic_load(&taken) < turns) work(0.001);
        }
    else
        work(ms);
    release();
    double worked_ms = cpu_ms();
    pthread_join(thread, NULL);
    printf("cpu-ms waits %.1f works %.1f sum %llu\n", waited_ms, worked_ms, (unsigned long long)sum);
    return 0;
}
