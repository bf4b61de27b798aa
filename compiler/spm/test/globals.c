// Pointers and bounds that are global are loaded before the nest for the call, though stores in it may change them.
// RUN: %spm -S -emit-llvm -o - %s | FileCheck %s
// RUN: %spm -c -o /dev/null -Rpass-analysis=spm %s 2>&1 | FileCheck --check-prefix=HOW %s

int *A, *B;
int N;

// CHECK-LABEL: @add(
// CHECK: load ptr, ptr @A
// CHECK: call void @spm_access
// HOW: globals.c:[[@LINE+4]]:{{.*}}known before 2 of 2 loops
void add(void) {
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j)
      A[i * N + j] += B[i * N + j];
}
