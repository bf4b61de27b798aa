/* LU decomposition of A with OpenMP: B becomes L, C becomes U. A thread has the same rows in each step, so reuse is from step to step. */
#define SPLIT 1
#include "easyomp.h"

static void kernel(double *A, double *B, double *C, long N) {
  for (long i = 0; i < N * N; ++i)
    A[i] = 1 + (i % (N + 1) == 0);
  for (long i = 0; i < N; ++i) {
#pragma omp parallel
    {
      long threads = omp_get_num_threads(), thread = omp_get_thread_num();
      long first = N * thread / threads, end = N * (thread + 1) / threads;
      for (long j = first > i + 1 ? first : i + 1; j < end; ++j) {
        B[j * N + i] = A[j * N + i] / A[i * N + i];
        for (long k = i + 1; k < N; ++k)
          A[j * N + k] -= B[j * N + i] * A[i * N + k];
      }
    }
    B[i * N + i] = 1;
    for (long k = i; k < N; ++k)
      C[i * N + k] = A[i * N + k];
  }
}
