/* Fourier transforms of a cube by FFTW, forwards and backwards.
 *
 *	fftw SIDE ROUNDS
 */
#include "random.h"
#include <complex.h>
#include <fftw3.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int side = argc > 1 ? atoi(argv[1]) : 64, rounds = argc > 2 ? atoi(argv[2]) : 4;
	long all = (long)side * side * side;
	fftw_complex *cube = fftw_alloc_complex(all);
	fftw_plan there = fftw_plan_dft_3d(side, side, side, cube, cube, FFTW_FORWARD, FFTW_ESTIMATE);
	fftw_plan back = fftw_plan_dft_3d(side, side, side, cube, cube, FFTW_BACKWARD, FFTW_ESTIMATE);

	for (long i = 0; i < all; i++)
		cube[i] = next_random() + I * next_random();
	for (int round = 0; round < rounds; round++) {
		fftw_execute(there);
		for (long i = 0; i < all; i++)
			cube[i] /= all;
		fftw_execute(back);
	}
	printf("%.9e %.9e\n", creal(cube[0]), cimag(cube[all - 1]));
	return 0;
}
