/* Kernels whose accesses are counted. Each works on square matrices of N x N doubles. */
#include <math.h>

typedef double *restrict matrix;

void lu(matrix A, matrix B, matrix C, long N) {
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

void cholesky(matrix A, matrix B, matrix C, long N) {
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < i + 1; ++j) {
      double sum = 0;
      for (long k = 0; k < j; ++k)
        sum += B[i * N + k] * B[j * N + k];
      if (i == j)
        B[i * N + j] = sqrt(fabs(A[i * N + i] - sum)) + 1;
      else
        B[i * N + j] = 1 / B[j * N + j] * (A[i * N + j] - sum);
    }
}

void add(matrix A, matrix B, matrix C, long N) {
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j)
      C[i * N + j] = A[i * N + j] + B[i * N + j];
}

void product(matrix A, matrix B, matrix C, long N) {
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j) {
      double sum = 0;
      for (long k = 0; k < N; ++k)
        sum += A[i * N + k] * B[k * N + j];
      C[i * N + j] = sum;
    }
}

void transpose(matrix A, matrix B, matrix C, long N) {
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j)
      C[i * N + j] = A[j * N + i];
}

void stencil(matrix A, matrix B, matrix C, long N) {
  for (long round = 0; round < 3; ++round)
    for (long i = 1; i < N - 1; ++i)
      for (long j = 1; j < N - 1; ++j)
        C[i * N + j] = A[i * N + j - 1] + A[i * N + j + 1] + A[(i - 1) * N + j] + A[(i + 1) * N + j];
}

/* From the last row up, and from the last column down. */
void backwards(matrix A, matrix B, matrix C, long N) {
  for (long i = N - 1; i >= 0; --i)
    for (long j = N - 1; j > i; --j)
      C[i * N + j] = A[j * N + i] + 1;
}

void strided(matrix A, matrix B, matrix C, long N) {
  for (long i = 0; i < N * N; i += 3)
    C[i] = A[i] * 2;
}

/* Of depth four, and triangular twice. */
void deep(matrix A, matrix B, matrix C, long N) {
  for (long i = 0; i < N; ++i)
    for (long j = 0; j <= i; ++j)
      for (long k = j; k <= i; ++k)
        for (long l = 0; l < 2; ++l)
          C[i * N + k] += A[j * N + l];
}

/* Indices of 32 bits, as most programs have. */
void narrow(matrix A, matrix B, matrix C, int N) {
  for (int i = 0; i < N; ++i)
    for (int j = i; j < N; ++j)
      C[i * N + j] = A[j * N + i] - B[i];
}

void unsigned_indices(matrix A, matrix B, matrix C, unsigned N) {
  for (unsigned i = 0; i < N; ++i)
    for (unsigned j = 0; j < N; j += 2)
      C[i * N + j] = A[i * N + j] + 1;
}

/* Half of what is announced is accessed at least: what an `if` leaves out counts. */
void conditional(matrix A, matrix B, matrix C, long N) {
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j)
      if ((i + j) % 2)
        C[i * N + j] = A[i * N + j] + 1;
}

/* No more than is announced is accessed: the loop is left early. */
void search(matrix A, matrix B, matrix C, long N) {
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j)
      if (A[i * N + j] > 0.9) {
        C[i] = j;
        break;
      }
}

/* The place of the least one is a value among others. */
void selection(matrix A, matrix B, matrix C, long N) {
  for (long i = 0; i < N - 1; ++i) {
    long least = i;
    for (long j = i + 1; j < N; ++j)
      if (A[j] < A[least])
        least = j;
    double other = A[i];
    A[i] = A[least];
    A[least] = other;
  }
}
