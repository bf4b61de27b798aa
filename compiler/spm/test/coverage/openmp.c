/* OpenMP in the forms that programs have. Names are groups of the table: FORM_kernel. */
#include <math.h>

void static_product(double *A, double *B, double *C, long N) {
#pragma omp parallel for
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j) {
      double sum = 0;
      for (long k = 0; k < N; ++k)
        sum += A[i * N + k] * B[k * N + j];
      C[i * N + j] = sum;
    }
}

void static_add(double *A, double *B, double *C, long N) {
#pragma omp parallel for
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j)
      C[i * N + j] = A[i * N + j] + B[i * N + j];
}

/* Indices and bounds of 32 bits, which a store of an int may change. */
void static_product_int(int *A, int *B, int *C, int N) {
#pragma omp parallel for
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) {
      int sum = 0;
      for (int k = 0; k < N; ++k)
        sum += A[i * N + k] * B[k * N + j];
      C[i * N + j] = sum;
    }
}

void static_triangle(double *A, double *B, long N) {
#pragma omp parallel for
  for (long i = 0; i < N; ++i)
    for (long j = 0; j <= i; ++j)
      A[i * N + j] = 2 * B[j * N + i];
}

double static_reduction(double *A, long N) {
  double sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j)
      sum += A[i * N + j];
  return sum;
}

void collapse_product(double *A, double *B, double *C, long N) {
#pragma omp parallel for collapse(2)
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j) {
      double sum = 0;
      for (long k = 0; k < N; ++k)
        sum += A[i * N + k] * B[k * N + j];
      C[i * N + j] = sum;
    }
}

/* A team for each step of an outer loop. */
void nested_lu(double *A, long N) {
  for (long i = 0; i < N; ++i) {
#pragma omp parallel for
    for (long j = i + 1; j < N; ++j) {
      A[j * N + i] /= A[i * N + i];
      for (long k = i + 1; k < N; ++k)
        A[j * N + k] -= A[j * N + i] * A[i * N + k];
    }
  }
}

void nested_stencil(double *A, double *B, long N, int rounds) {
#pragma omp parallel
  for (int round = 0; round < rounds; ++round) {
#pragma omp for
    for (long i = 1; i < N - 1; ++i)
      for (long j = 1; j < N - 1; ++j)
        B[i * N + j] = A[i * N + j - 1] + A[i * N + j + 1];
#pragma omp for
    for (long i = 1; i < N - 1; ++i)
      for (long j = 1; j < N - 1; ++j)
        A[i * N + j] = B[(i - 1) * N + j] + B[(i + 1) * N + j];
  }
}

void dynamic_product(double *A, double *B, double *C, long N) {
#pragma omp parallel for schedule(dynamic, 8)
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j) {
      double sum = 0;
      for (long k = 0; k < N; ++k)
        sum += A[i * N + k] * B[k * N + j];
      C[i * N + j] = sum;
    }
}

void chunked_add(double *A, double *B, double *C, long N) {
#pragma omp parallel for schedule(static, 16)
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j)
      C[i * N + j] = A[i * N + j] + B[i * N + j];
}

double indirect_gather(double *A, int *index, long N) {
  double sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (long i = 0; i < N; ++i)
    sum += A[index[i]];
  return sum;
}
