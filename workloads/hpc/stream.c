/* Sums of two arrays, one scaled, into a third, and back again: what a STREAM-like loop reads and writes.
 *
 *	stream NUMBERS ROUNDS
 */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 1 << 20, rounds = argc > 2 ? atol(argv[2]) : 10;
	double *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b), *c = malloc(count * sizeof *c);

	if (!a || !b || !c || count < 1)
		return 1;
	for (long i = 0; i < count; i++) {
		b[i] = i % 17;
		c[i] = i % 23;
	}
	for (long round = 0; round < rounds; round++) {
		for (long i = 0; i < count; i++)
			a[i] = b[i] + 0.5 * c[i];
		for (long i = 0; i < count; i++)
			b[i] = 0.25 * (a[i] + c[i]);
	}
	printf("%.9e\n", a[count - 1] + b[count / 2]);
	return 0;
}
