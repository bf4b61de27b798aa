/* C = A B with OpenMP: each thread has its rows of A and C, and all of them read all of B. */
#define SPLIT 1
#include "easyomp.h"

static void kernel(double *A, double *B, double *C, long N) {
#pragma omp parallel for
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j) {
      double sum = 0;
      for (long k = 0; k < N; ++k)
        sum += A[i * N + k] * B[k * N + j];
      C[i * N + j] = sum;
    }
}
