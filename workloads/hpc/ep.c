/* Like NAS EP: pairs of Gaussian deviates by the polar method, counted by the square ring that they lie in.
 *
 *	ep PAIRS
 */
#include "random.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { RINGS = 10, BATCH = 4096 };

int main(int argc, char **argv)
{
	long pairs = argc > 1 ? atol(argv[1]) : 1000000, rings[RINGS] = { 0 };
	double sum_x = 0, sum_y = 0;
	static double uniform[2 * BATCH];

	for (long done = 0; done < pairs; done += BATCH) {
		for (int i = 0; i < 2 * BATCH; i++)
			uniform[i] = 2 * next_random() - 1;
		for (int i = 0; i < BATCH; i++) {
			double x = uniform[2 * i], y = uniform[2 * i + 1], square = x * x + y * y;
			if (square > 1 || square == 0)
				continue;
			double factor = sqrt(-2 * log(square) / square);
			x *= factor;
			y *= factor;
			rings[(int)fmax(fabs(x), fabs(y)) % RINGS]++;
			sum_x += x;
			sum_y += y;
		}
	}
	printf("%.9e %.9e %ld\n", sum_x, sum_y, rings[0]);
	return 0;
}
