/* A program that is serial for a given share of its time: serial [OPTION]...
 *
 *   --threads N        threads; the first does the serial phases alone [2]
 *   --serial PERCENT   share of the time that is serial, where PUs are alike and every thread has one: 0 to 90 [50]
 *   --phase MS         length of the shorter kind of phase on such PUs [200]
 *   --length MS        length of the whole, rounded to whole pairs of phases [4000]
 *   --spin             threads wait for each other in a loop instead of sleeping
 *   --spin-lock        the same with spin locks of the C library
 *   --pin PU,PU,...    thread i stays on the i-th of these, and again from the first
 *   --oracle PU,PU,... serial phases are on the first of these, the fast one; in parallel phases the threads take turns
 *                      on all of them, and the last one to work has the fast one
 *   --turn MS          the time between two turns [5]
 *   --log              a line on standard error when a phase begins: ms since the beginning, and its kind
 *
 * A serial and a parallel phase take turns, each as long as the share wants it; without serial phases the threads wait
 * for each other after each parallel one. Milliseconds of work are STEPS of a loop, so the work is the same on every
 * PU, and the time is not. Prints a checksum of the work, which --pin, --oracle, --spin, --spin-lock and time do not
 * change.
 */
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

/* Steps of a millisecond of work: an integer multiplication and an addition that wait for each other, some 5 cycles.
 * On a virtual machine with a Sapphire Rapids a ms of them took 0.84 to 1.0 ms, as its neighbours let it. A piece is what is
 * done between two looks at the clock. */
enum { STEPS = 610000, PIECES_PER_MS = 20, MOST_THREADS = 1024, MOST_PUS = 1024 };

struct options {
    int threads, turn_ms, pus, pu[MOST_PUS];
    double serial, phase_ms, length_ms;
    bool spin, spin_lock, pin, oracle, log;
};

struct thread {
    pthread_t thread;
    int number, on, gate;
    uint64_t state;
};

static struct options options = {.threads = 2, .turn_ms = 5, .serial = 50, .phase_ms = 200, .length_ms = 4000};
static struct thread threads[MOST_THREADS];
static long serial_pieces, parallel_pieces, pairs;
static int64_t begin_ns;
static pthread_barrier_t sleepers;
/* The one that threads now wait at is closed, that is locked; the other one is open while they leave it. */
static pthread_spinlock_t gates[2];
static atomic_int arrived, generation, at_work;
static _Atomic int64_t phase_ns;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits at a closed gate until all threads have come. The last one closes the other gate, which all have left, and opens
 * this one; each that goes through opens it for the next. */
static void wait_at_gate(struct thread *thread) {
    int gate = thread->gate;
    thread->gate = 1 - gate;
    if (atomic_fetch_add(&arrived, 1) + 1 == options.threads) {
        atomic_store(&arrived, 0);
        pthread_spin_lock(&gates[1 - gate]);
    } else {
        pthread_spin_lock(&gates[gate]);
    }
    pthread_spin_unlock(&gates[gate]);
}

/* Waits until all threads wait. */
static void wait_for_all(struct thread *thread) {
    if (options.spin_lock) {
        wait_at_gate(thread);
        return;
    }
    if (!options.spin) {
        pthread_barrier_wait(&sleepers);
        return;
    }
    int mine = atomic_load(&generation);
    if (atomic_fetch_add(&arrived, 1) + 1 == options.threads) {
        atomic_store(&arrived, 0);
        atomic_fetch_add(&generation, 1);
    }
    while (atomic_load(&generation) == mine) relax();
}

/* Keeps the calling thread on the PU at this place of the list. */
static void go(struct thread *thread, int place) {
    if (thread->on == place) return;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(options.pu[place], &only);
    if (sched_setaffinity(0, sizeof only, &only) != 0) {
        perror("serial: cannot go to the PU");
        exit(1);
    }
    thread->on = place;
}

static void work(struct thread *thread) {
    uint64_t state = thread->state;
    for (int i = 0; i < STEPS / PIECES_PER_MS; i++) state = state * 6364136223846793005u + 1442695040888963407u;
    thread->state = state;
}

static void begins(const char *kind) {
    int64_t now = now_ns();
    atomic_store(&phase_ns, now);
    if (options.log) fprintf(stderr, "%.3f %s\n", (double)(now - begin_ns) / 1e6, kind);
}

static void serial_phase(struct thread *thread) {
    if (options.oracle) go(thread, 0);
    begins("serial");
    for (long piece = 0; piece < serial_pieces; piece++) work(thread);
}

/* Whose turn it is where: all threads move at the same moments. */
static void take_turn(struct thread *thread) {
    int64_t turns = (now_ns() - atomic_load(&phase_ns)) / (options.turn_ms * INT64_C(1000000));
    bool last = atomic_load(&at_work) == 1;
    go(thread, last ? 0 : (int)((thread->number + turns) % options.pus));
}

static void parallel_phase(struct thread *thread) {
    for (long piece = 0; piece < parallel_pieces; piece++) {
        if (options.oracle) take_turn(thread);
        work(thread);
    }
    atomic_fetch_sub(&at_work, 1);
}

static void *live(void *given) {
    struct thread *thread = given;
    bool first = thread->number == 0;
    if (options.pin) go(thread, thread->number % options.pus);
    wait_for_all(thread);
    for (long pair = 0; pair < pairs; pair++) {
        if (first) {
            if (serial_pieces > 0) serial_phase(thread);
            atomic_store(&at_work, options.threads);
            begins("parallel");
        }
        wait_for_all(thread);
        parallel_phase(thread);
        wait_for_all(thread);
    }
    return NULL;
}

static void usage(const char *expected, const char *found) {
    fprintf(stderr, "serial: expected %s, found %s\n", expected, found == NULL ? "nothing" : found);
    exit(2);
}

static double number(const char *name, const char *text, double low, double high) {
    char *end = NULL, expected[128];
    double value = text == NULL ? -1 : strtod(text, &end);
    snprintf(expected, sizeof expected, "a number from %g to %g after %s", low, high, name);
    if (text == NULL || end == text || *end != 0 || !(value >= low && value <= high)) usage(expected, text);
    return value;
}

static void list(const char *text) {
    const char *at = text == NULL ? "" : text;
    options.pus = 0;
    do {
        char *end;
        long pu = strtol(at, &end, 10);
        if (end == at || pu < 0 || pu >= CPU_SETSIZE || options.pus == MOST_PUS || (*end != 0 && *end != ','))
            usage("PUs by number, with commas", text);
        options.pu[options.pus++] = (int)pu;
        at = end + 1;
        if (*end == 0) return;
    } while (true);
}

static void read_options(char **words) {
    for (; *words != NULL; words++) {
        const char *name = *words;
        if (!strcmp(name, "--spin")) options.spin = true;
        else if (!strcmp(name, "--spin-lock")) options.spin_lock = true;
        else if (!strcmp(name, "--log")) options.log = true;
        else if (!strcmp(name, "--threads")) options.threads = (int)number(name, *++words, 1, MOST_THREADS);
        else if (!strcmp(name, "--serial")) options.serial = number(name, *++words, 0, 90);
        else if (!strcmp(name, "--phase")) options.phase_ms = number(name, *++words, 0.1, 1e6);
        else if (!strcmp(name, "--length")) options.length_ms = number(name, *++words, 0.1, 1e9);
        else if (!strcmp(name, "--turn")) options.turn_ms = (int)number(name, *++words, 1, 1e6);
        else if (!strcmp(name, "--pin")) options.pin = true, list(*++words);
        else if (!strcmp(name, "--oracle")) options.oracle = true, list(*++words);
        else usage("an option of those in the head of serial.c", name);
        if (*words == NULL) return;
    }
    if (options.pin && options.oracle) usage("--pin or --oracle", "both");
}

/* The shorter kind of phase is as long as was said, the other as the share wants it. */
static void plan(void) {
    double serial = options.serial / 100, parallel = 1 - serial;
    double shorter = serial == 0 ? 1 : serial < parallel ? serial : parallel;
    double pair_ms = options.phase_ms / shorter;
    serial_pieces = (long)(pair_ms * serial * PIECES_PER_MS + 0.5);
    parallel_pieces = (long)(pair_ms * parallel * PIECES_PER_MS + 0.5);
    pairs = (long)(options.length_ms / pair_ms + 0.5);
    if (pairs < 1) pairs = 1;
}

int main(int argc, char **argv) {
    (void)argc;
    read_options(argv + 1);
    plan();
    for (int i = 0; i < 2; i++) pthread_spin_init(&gates[i], PTHREAD_PROCESS_PRIVATE);
    pthread_spin_lock(&gates[0]);
    pthread_barrier_init(&sleepers, NULL, (unsigned)options.threads);
    begin_ns = now_ns();
    for (int i = 0; i < options.threads; i++) threads[i] = (struct thread){.number = i, .on = -1, .state = (uint64_t)i + 1};
    for (int i = 1; i < options.threads; i++)
        if (pthread_create(&threads[i].thread, NULL, live, &threads[i]) != 0) {
            perror("serial: cannot make a thread");
            return 1;
        }
    live(&threads[0]);
    uint64_t sum = threads[0].state;
    for (int i = 1; i < options.threads; i++) {
        pthread_join(threads[i].thread, NULL);
        sum = sum * 31 + threads[i].state;
    }
    if (options.log) fprintf(stderr, "%.3f end\n", (double)(now_ns() - begin_ns) / 1e6);
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
