/* Loops of work, many of which look a little like waiting: works KIND MS, works list
 *
 * Runs for MS milliseconds of CPU time and prints a sum. With 0 milliseconds it waits for a byte of the standard input once
 * its data is there, and then runs for ever: this is for tests that run it instruction by instruction. `list` prints
 * the kinds; the table at the end of this file says what each is. N is the size of its data, a power of two. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef N
#define N (1 << 16)
#endif
/* Rounds of what is done again and again. */
#define ROUNDS (N / 8)
#define STEP(state) ((state) * 6364136223846793005u + 1442695040888963407u)

struct node {
    struct node *next;
    uint64_t value;
};
struct leaf {
    struct leaf *below[2];
    uint64_t key;
};

static struct node nodes[N], *buckets[N / 4];
static struct leaf leaves[N];
static double grid[2][N];
static char text[N + 1], other_text[N + 1];
static uint64_t table[2 * N], sorted[N], copy[N], bitmap[N / 32];
static uint32_t parents[N], crc_table[256];
static unsigned char code[N], automaton[4][256];
static _Atomic uint64_t shared, flag, flags[N], ring[8], head, tail;
static _Atomic(struct node *) top;
static struct node *free_nodes;
static atomic_int lock;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_spinlock_t spin;
static volatile uint64_t kept;
static volatile int limit = N;

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
        text[i] = other_text[i] = (char)('a' + next(&state) % 20);
        grid[0][i] = (double)(next(&state) % 100);
        uint64_t key = next(&state) | 1, at = key % (2 * N);
        while (table[at] != 0) at = (at + 1) % (2 * N);
        table[at] = key;
        leaves[i].key = next(&state);
        for (struct leaf **place = &(struct leaf *){leaves}; i > 0;) {
            struct leaf *there = *place;
            place = &there->below[leaves[i].key > there->key];
            if (*place == NULL) {
                *place = &leaves[i];
                break;
            }
        }
        code[i] = (unsigned char)(next(&state) % 5);
        parents[i] = i == 0 ? 0 : (uint32_t)(next(&state) % i);
        atomic_store(&flags[i], next(&state) % 2);
    }
    for (uint32_t i = 0; i < 256; i++) {
        crc_table[i] = i;
        for (int bit = 0; bit < 8; bit++) crc_table[i] = crc_table[i] >> 1 ^ (crc_table[i] & 1 ? 0xedb88320u : 0);
        for (unsigned from = 0; from < 4; from++) automaton[from][i] = (unsigned char)((from * 7 + i) % 4);
    }
    for (int i = 0; i < N / 32; i++) bitmap[i] = i + 1 < N / 32 ? UINT64_MAX : 1;
}

/* Each of these is one round of a kind, some microseconds. */

static uint64_t stencil(uint64_t *state) {
    (void)state;
    for (int step = 0; step < 2; step++)
        for (int i = 1; i < N - 1; i++)
            grid[!step][i] = 0.25 * grid[step][i - 1] + 0.5 * grid[step][i] + 0.25 * grid[step][i + 1];
    return 0;
}
static uint64_t chase(uint64_t *state) {
    uint64_t sum = 0;
    for (struct node *node = &nodes[next(state) % N]; node != NULL; node = node->next) sum++;
    return sum;
}
static uint64_t search(uint64_t *state) {
    uint64_t wanted = next(state) % N;
    for (struct node *node = nodes; node != NULL; node = node->next)
        if (node->value == wanted) return wanted;
    return 0;
}
static uint64_t buckets_of_nodes(uint64_t *state) {
    static struct node entries[N];
    for (int i = 0; i < N; i++) {
        entries[i].value = next(state);
        struct node **bucket = &buckets[entries[i].value % (N / 4)];
        entries[i].next = *bucket, *bucket = &entries[i];
    }
    uint64_t sum = 0;
    for (int i = 0; i < N; i++) {
        uint64_t wanted = next(state);
        struct node *entry = buckets[wanted % (N / 4)];
        while (entry != NULL && entry->value != wanted) entry = entry->next;
        sum += entry != NULL;
    }
    memset(buckets, 0, sizeof buckets);
    return sum;
}
static uint64_t descend(uint64_t *state) {
    uint64_t sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t wanted = next(state);
        struct leaf *at = leaves;
        while (at != NULL && at->key != wanted) at = at->below[wanted > at->key];
        sum += at != NULL;
    }
    return sum;
}
__attribute__((noinline)) static size_t plain_strlen(const char *string) {
    size_t length = 0;
    while (string[length] != 0) {
        length++;
        __asm__ volatile("" : "+r"(length));
    }
    return length;
}
static uint64_t length(uint64_t *state) {
    (void)state;
    return plain_strlen(text);
}
static uint64_t find_byte(uint64_t *state) {
    char wanted = (char)('a' + next(state) % 26);
    const char *at = text;
    while (*at != 0 && *at != wanted) at++;
    return (uint64_t)(at - text);
}
static uint64_t compare_text(uint64_t *state) {
    const char *a = text + next(state) % (N / 2), *b = other_text + (a - text);
    while (*a != 0 && *a == *b) a++, b++;
    return (uint64_t)(*a - *b);
}
static uint64_t copy_text(uint64_t *state) {
    char *to = other_text;
    (void)state;
    for (const char *from = text; (*to++ = *from++) != 0;) continue;
    return (uint64_t)(to - other_text);
}
static uint64_t libc(uint64_t *state) {
    (void)state;
    return strlen(text) + (memchr(text, 'z', N) != NULL) + (strstr(text, "abcdefghij") != NULL) +
           (uint64_t)memcmp(text, other_text, N) + (strchr(text, 'y') != NULL);
}
static uint64_t fill_memory(uint64_t *state) {
    for (int i = 0; i < N; i++) copy[i] = 0;
    memset(other_text, (int)(next(state) % 20 + 'a'), N);
    memcpy(other_text, text, N);
    return copy[next(state) % N];
}
static uint64_t probe(uint64_t *state) {
    uint64_t sum = 0;
    for (int i = 0; i < ROUNDS; i++)
        for (uint64_t key = next(state) | 1, at = key % (2 * N); table[at] != 0; at = (at + 1) % (2 * N))
            if (table[at] == key) sum++;
    return sum;
}
static uint64_t binary(uint64_t *state) {
    uint64_t sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t wanted = next(state) % (3 * N), low = 0, high = N;
        while (low < high) {
            uint64_t middle = (low + high) / 2;
            if (sorted[middle] < wanted) low = middle + 1;
            else high = middle;
        }
        sum += low;
    }
    return sum;
}
static int order_of(const void *a, const void *b) {
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}
static uint64_t sort(uint64_t *state) {
    for (int i = 0; i < N; i++) copy[i] = next(state);
    qsort(copy, N, sizeof copy[0], order_of);
    return copy[N / 2];
}
static uint64_t insertion(uint64_t *state) {
    for (int i = 0; i < 32; i++) {
        uint64_t new = next(state);
        int at = i;
        for (; at > 0 && copy[at - 1] > new; at--) copy[at] = copy[at - 1];
        copy[at] = new;
    }
    return copy[0];
}
static uint64_t partition(uint64_t *state) {
    for (int i = 0; i < N; i++) copy[i] = next(state);
    uint64_t pivot = next(state), *low = copy, *high = copy + N - 1;
    while (low < high) {
        while (low < high && *low < pivot) low++;
        while (low < high && *high >= pivot) high--;
        uint64_t swap = *low;
        *low = *high, *high = swap;
    }
    return (uint64_t)(low - copy);
}
static uint64_t heap(uint64_t *state) {
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t new = next(state), at = 0;
        for (uint64_t below; (below = 2 * at + 1) < N; at = below) {
            if (below + 1 < N && sorted[below + 1] < sorted[below]) below++;
            if (sorted[below] >= new) break;
            copy[at] = sorted[below];
        }
        copy[at] = new;
    }
    return copy[0];
}
static uint64_t add_up(uint64_t *state) {
    uint64_t sum = *state;
    for (int i = 0; i < N; i++) sum += sorted[i];
    return sum;
}
static uint64_t sum_in_memory(uint64_t *state) {
    (void)state;
    for (int i = 0; i < N; i++) kept += sorted[i];
    return 0;
}
static uint64_t mean(uint64_t *state) {
    double sum = 0, squares = 0;
    (void)state;
    for (int i = 0; i < N; i++) sum += grid[0][i], squares += grid[0][i] * grid[0][i];
    return (uint64_t)(squares - sum * sum / N);
}
static uint64_t largest(uint64_t *state) {
    int found = (int)(*state % N);
    for (int i = 0; i < N; i++)
        if (grid[0][i] > grid[0][found]) found = i;
    return (uint64_t)found;
}
static uint64_t matrix(uint64_t *state) {
    enum { SIDE = 8 };
    static double a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];
    a[next(state) % SIDE][0] = 1, b[0][next(state) % SIDE] = 2;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            double sum = 0;
            for (int k = 0; k < SIDE; k++) sum += a[i][k] * b[k][j];
            c[i][j] += sum;
        }
    return (uint64_t)c[1][1];
}
static uint64_t prefix_sums(uint64_t *state) {
    copy[0] = *state;
    for (int i = 1; i < N; i++) copy[i] = copy[i - 1] + sorted[i];
    return copy[N - 1];
}
static uint64_t histogram(uint64_t *state) {
    (void)state;
    for (int i = 0; i < N; i++) copy[text[i] & 15]++;
    return copy[3];
}
static uint64_t sieve(uint64_t *state) {
    for (int i = 0; i < N; i++) other_text[i] = 1;
    for (int i = 2; i < N; i++)
        for (int j = 2 * i; other_text[i] && j < N; j += i) other_text[j] = 0;
    return (uint64_t)other_text[*state % N];
}
static uint64_t checksum(uint64_t *state) {
    uint32_t one = 1, two = 0, crc = (uint32_t)*state;
    for (int i = 0; i < N; i++) one = (one + (unsigned char)text[i]) % 65521, two = (two + one) % 65521;
    for (int i = 0; i < N; i++) crc = crc_table[(crc ^ (unsigned char)text[i]) & 255] ^ crc >> 8;
    for (int bit = 0; bit < 64; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    return one + two + crc;
}
static uint64_t hash(uint64_t *state) {
    uint64_t sum = 14695981039346656037u + *state;
    for (const char *at = text; *at != 0; at++) sum = (sum ^ (unsigned char)*at) * 1099511628211u;
    return sum;
}
static uint64_t digits(uint64_t *state) {
    char number[24];
    uint64_t rest = next(state), back = 0;
    int at = 0;
    do number[at++] = (char)('0' + rest % 10);
    while ((rest /= 10) != 0);
    while (at > 0) back = back * 10 + (uint64_t)(number[--at] - '0');
    return back;
}
static uint64_t words(uint64_t *state) {
    uint64_t count = *state % 2;
    for (int i = 1; i < N; i++) count += text[i] == 'a' && text[i - 1] != 'a';
    return count;
}
static uint64_t recognise(uint64_t *state) {
    unsigned at = *state % 4;
    for (int i = 0; i < N; i++) at = automaton[at][(unsigned char)text[i]];
    return at;
}
static uint64_t interpret(uint64_t *state) {
    uint64_t value = *state, stack[4] = {1, 2, 3, 4};
    for (int at = 0; at < N; at++)
        switch (code[at]) {
        case 0: value += stack[at % 4]; break;
        case 1: stack[at % 4] = value; break;
        case 2: value *= 3; break;
        case 3: value ^= value >> 7; break;
        default: at += value & 1;
        }
    return value;
}
static uint64_t divisor(uint64_t *state) {
    uint64_t a = next(state), b = next(state);
    while (b != 0) {
        uint64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}
static uint64_t collatz(uint64_t *state) {
    uint64_t steps = 0;
    for (uint64_t value = next(state) >> 40 | 1; value != 1; steps++) value = value % 2 == 0 ? value / 2 : 3 * value + 1;
    return steps;
}
static uint64_t prime(uint64_t *state) {
    uint64_t value = next(state) >> 44 | 1, factor = 3;
    while (factor * factor <= value && value % factor != 0) factor += 2;
    return factor;
}
static uint64_t root(uint64_t *state) {
    double value = (double)(next(state) % 1000000 + 2), guess = value, before;
    do before = guess, guess = 0.5 * (guess + value / guess);
    while (guess < before);
    return (uint64_t)guess;
}
static uint64_t power(uint64_t *state) {
    uint64_t result = 1, base = next(state) % 1000003;
    for (uint64_t exponent = next(state); exponent != 0; exponent >>= 1, base = base * base % 1000003)
        if (exponent & 1) result = result * base % 1000003;
    return result;
}
static uint64_t fibonacci(uint64_t *state) {
    uint64_t a = *state, b = 1;
    for (int i = 0; i < 90; i++) {
        uint64_t c = a + b;
        a = b, b = c;
    }
    return a;
}
static uint64_t count_bits(uint64_t *state) {
    uint64_t count = 0;
    for (uint64_t rest = next(state); rest != 0; rest &= rest - 1) count++;
    for (uint64_t rest = next(state) | UINT64_C(1) << 63; !(rest & 1); rest >>= 1) count++;
    return count;
}
static uint64_t reject(uint64_t *state) {
    uint64_t drawn;
    do drawn = next(state) >> 48;
    while (drawn > 700);
    return drawn;
}
static uint64_t random_numbers(uint64_t *state) {
    for (int i = 0; i < N; i++) *state = STEP(*state);
    return *state;
}
static uint64_t find_free(uint64_t *state) {
    int at = 0;
    while (bitmap[at] == UINT64_MAX) at++;
    int bit = 0;
    while (bitmap[at] >> bit & 1) bit++;
    bitmap[at] = *state | 1;
    return (uint64_t)(64 * at + bit);
}
static uint64_t allocate(uint64_t *state) {
    struct node *taken[16];
    for (int i = 0; i < N && free_nodes == NULL; i++) nodes[i].next = i + 1 < N ? &nodes[i + 1] : NULL;
    if (free_nodes == NULL) free_nodes = nodes;
    for (int i = 0; i < 16; i++) taken[i] = free_nodes, free_nodes = free_nodes->next, taken[i]->value = *state;
    for (int i = 15; i >= 0; i--) taken[i]->next = free_nodes, free_nodes = taken[i];
    return free_nodes->value;
}
static uint64_t heap_blocks(uint64_t *state) {
    void *blocks[16];
    for (int i = 0; i < 16; i++) blocks[i] = malloc(16 + next(state) % 200);
    for (int i = 0; i < 16; i++) free(blocks[i]);
    return 0;
}
static uint64_t union_find(uint64_t *state) {
    uint64_t sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t at = (uint32_t)(next(state) % N);
        while (parents[at] != at) at = parents[at];
        sum += at;
    }
    return sum;
}
static uint64_t checked(uint64_t *state) {
    for (int i = 0; i < N && !atomic_load_explicit(&flag, memory_order_relaxed); i++) *state = STEP(*state);
    return *state;
}
static uint64_t limited(uint64_t *state) {
    uint64_t sum = 0;
    for (int i = 0; i < limit; i++) sum ^= sum << 3 ^ *state;
    return sum;
}
static uint64_t scan_flags(uint64_t *state) {
    uint64_t ready = 0;
    (void)state;
    for (int i = 0; i < N; i++) ready += atomic_load_explicit(&flags[i], memory_order_relaxed);
    return ready;
}
static uint64_t first_flag(uint64_t *state) {
    uint64_t at = next(state) % (N / 2);
    while (at < N && !atomic_load_explicit(&flags[at], memory_order_acquire)) at++;
    return at;
}
static uint64_t progress(uint64_t *state) {
    for (int i = 0; i < N; i++) {
        *state = STEP(*state);
        atomic_store_explicit(&shared, (uint64_t)i, memory_order_relaxed);
    }
    return *state;
}
static uint64_t clock_looks(uint64_t *state) {
    uint64_t sum = 0;
    for (int i = 0; i < 100; i++) {
        for (int j = 0; j < 500; j++) *state = STEP(*state);
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        sum += (uint64_t)t.tv_nsec;
    }
    return sum;
}
static uint64_t atomics(uint64_t *state) {
    for (int i = 0; i < N; i++) {
        atomic_fetch_add(&shared, 1);
        uint64_t wanted = next(state) % 1000, seen = atomic_load(&flag) + 1000;
        while (seen < wanted && !atomic_compare_exchange_weak(&shared, &seen, wanted)) continue;
        uint64_t old = atomic_load(&shared);
        while (!atomic_compare_exchange_weak(&shared, &old, 3 * old + 1)) continue;
    }
    return 0;
}
static uint64_t references(uint64_t *state) {
    for (int i = 0; i < N; i++) {
        atomic_fetch_add_explicit(&flags[*state % N], 2, memory_order_relaxed);
        if (atomic_fetch_sub_explicit(&flags[*state % N], 2, memory_order_acq_rel) == 1) abort();
    }
    return 0;
}
static uint64_t set_bits(uint64_t *state) {
    uint64_t new = 0;
    for (int i = 0; i < N; i++) {
        uint64_t bit = UINT64_C(1) << (i % 64);
        new += (atomic_fetch_or(&flags[i], bit) & bit) == 0;
        atomic_fetch_and(&flags[i], ~bit);
    }
    return new + *state;
}
static uint64_t queue(uint64_t *state) {
    uint64_t sum = 0;
    for (int i = 0; i < 8; i++) {
        uint64_t at = atomic_load_explicit(&head, memory_order_relaxed);
        if (at - atomic_load_explicit(&tail, memory_order_acquire) == 8) break;
        atomic_store_explicit(&ring[at % 8], *state, memory_order_relaxed);
        atomic_store_explicit(&head, at + 1, memory_order_release);
    }
    for (uint64_t at; (at = atomic_load_explicit(&tail, memory_order_relaxed)) != atomic_load(&head);) {
        sum += atomic_load_explicit(&ring[at % 8], memory_order_relaxed);
        atomic_store_explicit(&tail, at + 1, memory_order_release);
    }
    return sum;
}
static uint64_t stack(uint64_t *state) {
    for (int i = 0; i < 8; i++) {
        struct node *new = &nodes[i], *old = atomic_load(&top);
        new->value = *state;
        do new->next = old;
        while (!atomic_compare_exchange_weak(&top, &old, new));
    }
    uint64_t sum = 0;
    for (struct node *old = atomic_load(&top); old != NULL;)
        if (atomic_compare_exchange_weak(&top, &old, old->next)) sum += old->value, old = atomic_load(&top);
    return sum;
}
static uint64_t yields(uint64_t *state) {
    for (int i = 0; i < 1000000; i++) *state = STEP(*state);
    sched_yield();
    return *state;
}
static void section(uint64_t *state) {
    for (int i = 0; i < 20; i++) *state = STEP(*state);
    kept += *state;
}
static uint64_t with_mutex(uint64_t *state) {
    for (int i = 0; i < N; i++) pthread_mutex_lock(&mutex), section(state), pthread_mutex_unlock(&mutex);
    return 0;
}
static uint64_t with_spinlock(uint64_t *state) {
    for (int i = 0; i < N; i++) pthread_spin_lock(&spin), section(state), pthread_spin_unlock(&spin);
    return 0;
}
static uint64_t with_exchange(uint64_t *state) {
    for (int i = 0; i < N; i++) {
        while (atomic_exchange(&lock, 1)) continue;
        section(state);
        atomic_store(&lock, 0);
    }
    return 0;
}
static uint64_t with_hint(uint64_t *state) {
    for (int i = 0; i < N; i++) {
        while (atomic_exchange(&lock, 1)) relax();
        section(state);
        atomic_store(&lock, 0);
    }
    return 0;
}

static const struct kind {
    const char *name;
    uint64_t (*once)(uint64_t *state);
} kinds[] = {
    /* Walks through memory. */
    {"stencil", stencil}, /* a heat equation on a grid */
    {"chase", chase},     /* a list in random order, gone through */
    {"search", search},   /* the same list, searched for a value */
    {"buckets", buckets_of_nodes}, /* a hash table with lists: filled, and searched for what is not there */
    {"descend", descend},          /* a binary tree */
    {"hash", probe},               /* look-ups in a hash table with linear probing */
    {"binary", binary},            /* binary search */
    {"strlen", length},            /* a plain strlen over long strings */
    {"memchr", find_byte},
    {"strcmp", compare_text},
    {"strcpy", copy_text},
    {"libc", libc},          /* strlen, memchr, strstr, memcmp and strchr of the C library */
    {"memset", fill_memory}, /* the same and memcpy, by hand and of the C library */
    {"sort", sort},          /* qsort of numbers */
    {"insertion", insertion},
    {"partition", partition},
    {"heap", heap},
    {"add", add_up},
    {"sum", sum_in_memory}, /* kept in memory that another thread could read */
    {"mean", mean},
    {"largest", largest},
    {"matrix", matrix},
    {"prefix", prefix_sums},
    {"histogram", histogram},
    {"sieve", sieve},
    {"checksum", checksum}, /* Adler-32, and CRC-32 by table and by bit */
    {"fnv", hash},
    {"words", words},
    {"automaton", recognise},
    {"interpret", interpret},
    {"bitmap", find_free},
    {"free-list", allocate},
    {"malloc", heap_blocks},
    {"union-find", union_find},
    /* Computes. */
    {"digits", digits},
    {"divisor", divisor},
    {"collatz", collatz},
    {"prime", prime},
    {"root", root},
    {"power", power},
    {"fibonacci", fibonacci},
    {"bits", count_bits},
    {"reject", reject},
    {"random", random_numbers},
    /* Looks at what others may write. */
    {"checked", checked}, /* multiplications, with a look at a flag after each */
    {"limited", limited}, /* with a look at how many are to be done */
    {"flags", scan_flags},
    {"first-flag", first_flag},
    {"progress", progress}, /* multiplications, whose number is published after each */
    {"clock", clock_looks}, /* pieces of work of a microsecond, with a look at the clock after each */
    {"queue", queue},
    /* Atomic operations without contention. */
    {"atomic", atomics}, /* additions, maxima and products */
    {"references", references},
    {"set-bits", set_bits},
    {"stack", stack},
    /* A small critical section without contention. */
    {"mutex", with_mutex},
    {"spinlock", with_spinlock}, /* pthread_spin_lock */
    {"exchange", with_exchange}, /* a lock that is taken by exchange, without a hint */
    {"hinted", with_hint},       /* the same, with a hint where it is not free */
    {"yield", yields},           /* pieces of work of about 1 ms, after each of which the PU is offered to others */
};

int main(int words_count, char **given) {
    int all = sizeof kinds / sizeof kinds[0];
    bool list = words_count == 2 && !strcmp(given[1], "list");
    const struct kind *kind = NULL;
    for (int i = 0; list && i < all; i++) printf("%s\n", kinds[i].name);
    if (list) return 0;
    for (int i = 0; words_count == 3 && i < all; i++)
        if (!strcmp(given[1], kinds[i].name)) kind = &kinds[i];
    if (kind == NULL) return fprintf(stderr, "works: expected KIND MS or list\n"), 2;
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    fill();
    uint64_t sum = 0, state = 2463534242u;
    double ms = atof(given[2]);
    char byte;
    if (ms == 0) {
        printf("ready\n");
        fflush(stdout);
        if (read(0, &byte, 1) < 0) return 1;
        for (;;) kept += kind->once(&state);
    }
    for (double until = cpu_ms() + ms; cpu_ms() < until;)
        for (int i = 0; i < 16; i++) sum += kind->once(&state);
    printf("sum %llu\n", (unsigned long long)(sum + state + kept));
    return 0;
}
