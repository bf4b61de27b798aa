/* An OpenMP program: floating point and integers over arrays, ROUNDS times. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 15 };
static double a[N], b[N];
static uint32_t c[N];

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1000;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < N; i++)
        a[i] = i, b[i] = 1.0 / (i + 1), c[i] = i;
    for (int round = 0; round < rounds; round++) {
#pragma omp parallel for schedule(static)
        for (int i = 1; i < N - 1; i++) {
            b[i] += 0.25 * (a[i - 1] - 2 * a[i] + a[i + 1]);
            c[i] = c[i] * 1664525u + 1013904223u;
            if (c[i] >> 31)
                a[i] += 1e-9;
        }
    }
    printf("%g %u\n", b[N / 2], c[7]);
    return 0;
}
