/* Integer work of the usual kinds: a sieve, a sort, and a hash, ROUNDS times over. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIEVE = 1 << 20, NUMBERS = 1 << 16 };

static unsigned char composite[SIEVE];
static uint32_t numbers[NUMBERS];

static unsigned sieve(void) {
    unsigned primes = 0;
    memset(composite, 0, sizeof composite);
    for (unsigned i = 2; i < SIEVE; i++) {
        if (composite[i])
            continue;
        primes++;
        for (unsigned j = 2 * i; j < SIEVE; j += i)
            composite[j] = 1;
    }
    return primes;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t hash(const unsigned char *bytes, size_t len) {
    uint32_t sum = 2166136261u;
    while (len--)
        sum = (sum ^ *bytes++) * 16777619u;
    return sum;
}

int main(int argc, char **argv) {
    uint32_t seed = 1;
    for (int rounds = argc > 1 ? atoi(argv[1]) : 1; rounds > 0; rounds--) {
        for (int i = 0; i < NUMBERS; i++)
            numbers[i] = seed = seed * 1664525u + 1013904223u;
        qsort(numbers, NUMBERS, sizeof *numbers, compare);
        seed ^= sieve() ^ hash(composite, sizeof composite);
    }
    printf("%u\n", seed);
    return 0;
}
