/* Loops of work that look a little like waiting: works KIND MS
 *
 *   stencil    a heat equation on a grid
 *   chase      a list in random order, gone through
 *   search     the same list, searched for a value
 *   strlen     a plain strlen over long strings
 *   libc       strlen, memchr and strstr of the C library
 *   hash       look-ups in a hash table with linear probing
 *   binary     binary search
 *   sort       qsort of numbers
 *   sum        a sum, kept in memory that another thread could read
 *   checked    multiplications, with a look at a flag after each
 *   clock      pieces of work of a microsecond, with a look at the clock after each
 *   atomic     atomic additions and maxima that nobody contends for
 *   mutex      a small critical section of an ordinary mutex that nobody contends for
 *   spinlock   the same with pthread_spin_lock
 *   exchange   the same with a lock that is taken by exchange, without a hint
 *   hinted     the same, with a hint where it is not free
 *   yield      pieces of work of about 1 ms, after each of which the PU is offered to others
 *
 * Runs for MS milliseconds of CPU time and prints a sum. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 1 << 16 };

struct node {
    struct node *next;
    uint64_t value;
};

static struct node nodes[N];
static double grid[2][N];
static char text[N + 1];
static uint64_t table[2 * N], sorted[N], copy[N];
static _Atomic uint64_t shared, flag;
static atomic_int lock;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_spinlock_t spin;
static volatile uint64_t kept;

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void fill(void) {
    uint64_t state = 88172645463325252u;
    static uint32_t order[N];
    for (uint32_t i = 0; i < N; i++) order[i] = i;
    for (uint32_t i = N - 1; i > 0; i--) {
        uint32_t j = (uint32_t)(next(&state) % (i + 1)), swap = order[i];
        order[i] = order[j], order[j] = swap;
    }
    for (uint32_t i = 0; i < N; i++) {
        nodes[order[i]].next = i + 1 < N ? &nodes[order[i + 1]] : NULL;
        nodes[order[i]].value = i;
        sorted[i] = 3 * (uint64_t)i;
        text[i] = (char)('a' + next(&state) % 20);
        grid[0][i] = (double)(next(&state) % 100);
        uint64_t key = next(&state) | 1, at = key % (2 * N);
        while (table[at] != 0) at = (at + 1) % (2 * N);
        table[at] = key;
    }
}

static int compare(const void *a, const void *b) {
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

__attribute__((noinline)) static size_t plain_strlen(const char *string) {
    size_t length = 0;
    while (string[length] != 0) {
        length++;
        __asm__ volatile("" : "+r"(length));
    }
    return length;
}

/* One round of a kind, some ten microseconds to a millisecond. */
static uint64_t once(const char *kind, uint64_t *state) {
    uint64_t sum = 0;
    if (!strcmp(kind, "stencil"))
        for (int step = 0; step < 2; step++)
            for (int i = 1; i < N - 1; i++)
                grid[!step][i] = 0.25 * grid[step][i - 1] + 0.5 * grid[step][i] + 0.25 * grid[step][i + 1];
    else if (!strcmp(kind, "chase"))
        for (struct node *node = &nodes[next(state) % N]; node != NULL; node = node->next) sum++;
    else if (!strcmp(kind, "search")) {
        uint64_t wanted = next(state) % N;
        for (struct node *node = nodes; node != NULL; node = node->next)
            if (node->value == wanted) return sum + wanted;
    } else if (!strcmp(kind, "strlen")) sum = plain_strlen(text);
    else if (!strcmp(kind, "libc"))
        sum = strlen(text) + (memchr(text, 'z', N) != NULL) + (strstr(text, "abcdefghij") != NULL);
    else if (!strcmp(kind, "hash"))
        for (int i = 0; i < 1000; i++)
            for (uint64_t key = next(state) | 1, at = key % (2 * N); table[at] != 0; at = (at + 1) % (2 * N))
                if (table[at] == key) sum++;
                else continue;
    else if (!strcmp(kind, "binary"))
        for (int i = 0; i < 1000; i++) {
            uint64_t wanted = next(state) % (3 * N), low = 0, high = N;
            while (low < high) {
                uint64_t middle = (low + high) / 2;
                if (sorted[middle] < wanted) low = middle + 1;
                else high = middle;
            }
            sum += low;
        }
    else if (!strcmp(kind, "sort")) {
        for (int i = 0; i < N; i++) copy[i] = next(state);
        qsort(copy, N, sizeof copy[0], compare);
        sum = copy[N / 2];
    } else if (!strcmp(kind, "sum"))
        for (int i = 0; i < N; i++) kept += sorted[i];
    else if (!strcmp(kind, "checked"))
        for (int i = 0; i < 10000 && !atomic_load_explicit(&flag, memory_order_relaxed); i++)
            *state = *state * 6364136223846793005u + 1442695040888963407u;
    else if (!strcmp(kind, "clock"))
        for (int i = 0; i < 100; i++) {
            for (int j = 0; j < 500; j++) *state = *state * 6364136223846793005u + 1442695040888963407u;
            struct timespec t;
            clock_gettime(CLOCK_MONOTONIC, &t);
            sum += (uint64_t)t.tv_nsec;
        }
    else if (!strcmp(kind, "yield")) {
        for (int i = 0; i < 1000000; i++) *state = *state * 6364136223846793005u + 1442695040888963407u;
        sched_yield();
    }
    else if (!strcmp(kind, "atomic"))
        for (int i = 0; i < 10000; i++) {
            atomic_fetch_add(&shared, 1);
            uint64_t wanted = next(state) % 1000, seen = atomic_load(&flag) + 1000;
            while (seen < wanted && !atomic_compare_exchange_weak(&shared, &seen, wanted)) continue;
            uint64_t old = atomic_load(&shared);
            while (!atomic_compare_exchange_weak(&shared, &old, 3 * old + 1)) continue;
        }
    else
        for (int i = 0; i < 10000; i++) {
            if (!strcmp(kind, "mutex")) pthread_mutex_lock(&mutex);
            else if (!strcmp(kind, "spinlock")) pthread_spin_lock(&spin);
            else if (!strcmp(kind, "exchange"))
                while (atomic_exchange(&lock, 1)) continue;
            else if (!strcmp(kind, "hinted"))
                while (atomic_exchange(&lock, 1)) relax();
            else exit(2);
            for (int j = 0; j < 20; j++) *state = *state * 6364136223846793005u + 1442695040888963407u;
            kept += *state;
            if (!strcmp(kind, "mutex")) pthread_mutex_unlock(&mutex);
            else if (!strcmp(kind, "spinlock")) pthread_spin_unlock(&spin);
            else atomic_store(&lock, 0);
        }
    return sum;
}

int main(int count, char **words) {
    if (count != 3) return fprintf(stderr, "works: expected KIND MS\n"), 2;
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    fill();
    uint64_t sum = 0, state = 2463534242u;
    for (double until = cpu_ms() + atof(words[2]); cpu_ms() < until;) sum += once(words[1], &state);
    printf("sum %llu\n", (unsigned long long)(sum + state + kept));
    return 0;
}
