// The same loops are vectorised as without the pass.
// RUN: clang -O2 -c -o /dev/null -Rpass=loop-vectorize %s 2> %t.plain
// RUN: %spm -c -o /dev/null -Rpass=loop-vectorize %s 2> %t.spm
// RUN: diff %t.plain %t.spm
// RUN: FileCheck %s < %t.spm

// CHECK: vectorized loop
// CHECK: vectorized loop
float A[1 << 20], B[1 << 20], C[1 << 20];

void add(long n) {
  for (long i = 0; i < n; ++i)
    C[i] = A[i] + B[i];
}

void rows(float *restrict x, const float *restrict y, long n) {
  for (long i = 0; i < n; ++i)
    for (long j = 0; j < n; ++j)
      x[i * n + j] += 2 * y[i * n + j];
}
