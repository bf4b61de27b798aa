/* LU decomposition of A: B becomes L, C becomes U (Piccoli, figure 4.1). */
#define USED 3
#include "easybench.h"

static void kernel(double *A, double *B, double *C, long N) {
  for (long i = 0; i < N * N; ++i)
    A[i] = 1 + (i % (N + 1) == 0);
  for (long i = 0; i < N; ++i) {
    B[i * N + i] = 1;
    for (long j = i + 1; j < N; ++j) {
      B[j * N + i] = A[j * N + i] / A[i * N + i];
      for (long k = i + 1; k < N; ++k)
        A[j * N + k] -= B[j * N + i] * A[i * N + k];
    }
    for (long k = i; k < N; ++k)
      C[i * N + k] = A[i * N + k];
  }
}
