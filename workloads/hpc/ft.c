/* Like NAS FT: the heat equation in three dimensions by forward and inverse Fourier transforms.
 *
 *	ft SIDE STEPS		SIDE a power of two
 */
#include "random.h"
#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef double complex number;
enum { LONGEST = 1024, TOGETHER = 8 };

static int side;
static number roots[LONGEST / 2];

/* Stockham's transform of TOGETHER lines at once, between two buffers; the result is in `a`. */
static void lines(number (*a)[TOGETHER], number (*b)[TOGETHER], int forward)
{
	number(*from)[TOGETHER] = a, (*to)[TOGETHER] = b;
	for (int half = side / 2, stride = 1; half >= 1; half /= 2, stride *= 2) {
		for (int block = 0; block < half; block++) {
			number root = roots[block * stride];
			if (!forward)
				root = conj(root);
			for (int at = 0; at < stride; at++)
				for (int line = 0; line < TOGETHER; line++) {
					number low = from[stride * block + at][line];
					number high = from[stride * (block + half) + at][line];
					to[stride * 2 * block + at][line] = low + high;
					to[stride * (2 * block + 1) + at][line] = root * (low - high);
				}
		}
		number(*other)[TOGETHER] = from;
		from = to;
		to = other;
	}
	if (from != a)
		for (int i = 0; i < side; i++)
			for (int line = 0; line < TOGETHER; line++)
				a[i][line] = b[i][line];
}

/* Transforms the lines that step by `step` numbers; `other` and `last` step through the two other directions. */
static void direction(number *cube, long step, long other, long last, int forward)
{
	static number a[LONGEST][TOGETHER], b[LONGEST][TOGETHER];
	for (int k = 0; k < side; k++)
		for (int j = 0; j < side; j += TOGETHER) {
			number *at = cube + k * last + j * other;
			for (int i = 0; i < side; i++)
				for (int line = 0; line < TOGETHER; line++)
					a[i][line] = at[i * step + line * other];
			lines(a, b, forward);
			for (int i = 0; i < side; i++)
				for (int line = 0; line < TOGETHER; line++)
					at[i * step + line * other] = a[i][line];
		}
}

static void transform(number *cube, int forward)
{
	long plane = (long)side * side;
	direction(cube, 1, side, plane, forward);
	direction(cube, side, 1, plane, forward);
	direction(cube, plane, 1, side, forward);
}

static double square(int at)
{
	int away = at < side / 2 ? at : at - side;
	return (double)away * away;
}

int main(int argc, char **argv)
{
	side = argc > 1 ? atoi(argv[1]) : 64;
	int steps = argc > 2 ? atoi(argv[2]) : 2;
	if (side < TOGETHER || side > LONGEST || side & (side - 1))
		return 1;
	long all = (long)side * side * side;
	number *spectrum = malloc(all * sizeof *spectrum), *cube = malloc(all * sizeof *cube);
	if (!spectrum || !cube)
		return 1;
	for (int i = 0; i < side / 2; i++)
		roots[i] = cexp(-2 * M_PI * I * i / side);
	for (long i = 0; i < all; i++)
		spectrum[i] = next_random() + I * next_random();
	transform(spectrum, 1);
	for (int step = 1; step <= steps; step++) {
		double factor = -4e-6 * M_PI * M_PI * step;
		for (long i = 0; i < all; i++) {
			int x = i % side, y = i / side % side, z = i / side / side;
			cube[i] = spectrum[i] * exp(factor * (square(x) + square(y) + square(z)));
		}
		transform(cube, 0);
		number sum = 0;
		for (int i = 1; i <= 1024; i++)
			sum += cube[(i * 3L + i * 5L * side) % all];
		printf("%.9e %.9e\n", creal(sum) / all, cimag(sum) / all);
	}
	return 0;
}
