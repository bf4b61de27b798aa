/* Cholesky decomposition of A: B becomes L (Piccoli, figure 4.2). */
#define USED 2
#include "easybench.h"
#include <math.h>

static void kernel(double *A, double *B, double *C, long N) {
  (void)C;
  for (long i = 0; i < N * N; ++i)
    A[i] = 1 + (i % (N + 1) == 0);
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < i + 1; ++j) {
      double sum = 0;
      for (long k = 0; k < j; ++k)
        sum += B[i * N + k] * B[j * N + k];
      if (i == j)
        B[i * N + j] = sqrt(A[i * N + i] - sum);
      else
        B[i * N + j] = 1 / B[j * N + j] * (A[i * N + j] - sum);
    }
}
