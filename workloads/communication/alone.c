/* alone KERNEL SIZE: one thread's accesses, for comparing simulators of caches.
 *   matrix  multiplies two matrices of SIZE * SIZE doubles
 *   chase   follows SIZE pointers in an order drawn at random, ten times
 *   sort    sorts SIZE numbers drawn at random
 * Prints a sum of what it computed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 1;

static uint64_t drawn(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static double matrix(long size)
{
    double *a = calloc(size * size, sizeof(*a)), *b = calloc(size * size, sizeof(*b)), *c = calloc(size * size, sizeof(*c));

    for (long at = 0; at < size * size; at++)
        a[at] = at % 7, b[at] = at % 5;
    for (long row = 0; row < size; row++)
        for (long column = 0; column < size; column++)
            for (long inner = 0; inner < size; inner++)
                c[row * size + column] += a[row * size + inner] * b[inner * size + column];
    return c[size * size - 1];
}

static double chase(long size)
{
    uint32_t *next = calloc(size, sizeof(*next)), at = 0;

    for (long place = 0; place < size; place++)
        next[place] = place;
    /* One cycle through all (Sattolo). */
    for (long last = size - 1; last > 0; last--) {
        long other = drawn() % last;
        uint32_t kept = next[last];

        next[last] = next[other];
        next[other] = kept;
    }
    for (long step = 0; step < 10 * size; step++)
        at = next[at];
    return at;
}

static void sort(uint64_t *numbers, long size)
{
    while (size > 1) {
        uint64_t middle = numbers[size / 2];
        long low = 0, high = size - 1;

        while (low <= high) {
            while (numbers[low] < middle)
                low++;
            while (numbers[high] > middle)
                high--;
            if (low <= high) {
                uint64_t kept = numbers[low];

                numbers[low++] = numbers[high];
                numbers[high--] = kept;
            }
        }
        sort(numbers, high + 1);
        numbers += low;
        size -= low;
    }
}

int main(int count, char **words)
{
    long size = count == 3 ? atol(words[2]) : 0;

    if (size < 2) {
        fprintf(stderr, "usage: alone matrix|chase|sort SIZE\n");
        return 2;
    }
    if (!strcmp(words[1], "matrix")) {
        printf("%g\n", matrix(size));
    } else if (!strcmp(words[1], "chase")) {
        printf("%g\n", chase(size));
    } else {
        uint64_t *numbers = calloc(size, sizeof(*numbers));

        for (long at = 0; at < size; at++)
            numbers[at] = drawn();
        sort(numbers, size);
        printf("%llu\n", (unsigned long long)numbers[size / 2]);
    }
    return 0;
}
