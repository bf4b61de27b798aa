/* C = A B, the plain way (Piccoli, figure 4.4): of C nothing is used twice. */
#define USED 3
#include "easybench.h"

static void kernel(double *A, double *B, double *C, long N) {
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j) {
      double sum = 0;
      for (long k = 0; k < N; ++k)
        sum += A[i * N + k] * B[k * N + j];
      C[i * N + j] = sum;
    }
}
