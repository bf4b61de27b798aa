/* Bodies that attract each other, all pairs, by leapfrog steps.
 *
 *	nbody BODIES STEPS
 */
#include "random.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 4096 };
static double x[MOST], y[MOST], z[MOST], vx[MOST], vy[MOST], vz[MOST];

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 1000, steps = argc > 2 ? atoi(argv[2]) : 10;

	if (count < 1 || count > MOST)
		return 1;
	for (int i = 0; i < count; i++) {
		x[i] = next_random();
		y[i] = next_random();
		z[i] = next_random();
	}
	for (int step = 0; step < steps; step++) {
		for (int i = 0; i < count; i++) {
			double ax = 0, ay = 0, az = 0;
			for (int j = 0; j < count; j++) {
				double dx = x[j] - x[i], dy = y[j] - y[i], dz = z[j] - z[i];
				double square = dx * dx + dy * dy + dz * dz + 1e-4, pull = 1 / (square * sqrt(square));
				ax += dx * pull;
				ay += dy * pull;
				az += dz * pull;
			}
			vx[i] += 1e-6 * ax;
			vy[i] += 1e-6 * ay;
			vz[i] += 1e-6 * az;
		}
		for (int i = 0; i < count; i++) {
			x[i] += vx[i];
			y[i] += vy[i];
			z[i] += vz[i];
		}
	}
	printf("%.9e %.9e\n", x[0], z[count - 1]);
	return 0;
}
