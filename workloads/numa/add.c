/* C = A + B (Piccoli, figure 4.3): nothing is used twice, so nothing is to move. */
#define USED 7
#include "easybench.h"

static void kernel(double *A, double *B, double *C, long N) {
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j)
      C[i * N + j] = A[i * N + j] + B[i * N + j];
}
