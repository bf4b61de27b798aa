/* A product of matrices by BLAS, or all eigenvalues of a symmetric one by LAPACK.
 *
 *	blas product|eigenvalues SIDE
 */
#include "random.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *,
	    const double *, const int *, const double *, double *, const int *);
void dsyev_(const char *, const char *, const int *, double *, const int *, double *, double *, const int *, int *);

int main(int argc, char **argv)
{
	int side = argc > 2 ? atoi(argv[2]) : 256, work = 64 * side, wrong = 0;
	size_t all = (size_t)side * side;
	double one = 1, zero = 0;
	double *a = malloc(all * sizeof *a), *b = malloc(all * sizeof *b), *c = malloc((all + work) * sizeof *c);

	if (argc < 2 || !a || !b || !c)
		return 1;
	for (size_t i = 0; i < all; i++) {
		a[i] = next_random() - 0.5;
		b[i] = next_random() - 0.5;
	}
	if (!strcmp(argv[1], "product"))
		dgemm_("N", "T", &side, &side, &side, &one, a, &side, b, &side, &zero, c, &side);
	else
		dsyev_("V", "U", &side, a, &side, c, c + side, &work, &wrong);
	printf("%.9e %d\n", c[0], wrong);
	return wrong;
}
