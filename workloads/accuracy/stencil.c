/* An OpenMP program: a five-point stencil over a square of SIDE points a side, ROUNDS times. As it is the square fits
 * into a second-level cache; with -DSIDE=4096 it has 128 MiB and fits into none. With
 * -DSUM the sum of all points is printed as well, to the last bit. */
#include <stdio.h>
#include <stdlib.h>

#ifndef SIDE
#define SIDE 192
#endif
enum { N = SIDE };
static double a[N][N], b[N][N];

static void smooth(double (*to)[N], double (*from)[N]) {
#pragma omp parallel for schedule(static)
    for (int y = 1; y < N - 1; y++)
        for (int x = 1; x < N - 1; x++)
            to[y][x] = 0.2 * (from[y][x] + from[y - 1][x] + from[y + 1][x] + from[y][x - 1] + from[y][x + 1]);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    for (int y = 0; y < N; y++)
        for (int x = 0; x < N; x++)
            a[y][x] = b[y][x] = x * y % 17;
    for (int round = 0; round < rounds; round++) {
        smooth(b, a);
        smooth(a, b);
    }
    printf("%g\n", a[N / 2][N / 2]);
#ifdef SUM
    double sum = 0;
    for (int y = 0; y < N; y++)
        for (int x = 0; x < N; x++)
            sum += a[y][x];
    printf("%a\n", sum);
#endif
    return 0;
}
