// Nothing is inserted where nothing is known, and the reason is said.
// RUN: %spm -S -emit-llvm -o - %s | FileCheck %s
// RUN: %spm -c -o /dev/null -Rpass-missed=spm %s 2>&1 | FileCheck --check-prefix=WHY %s

// CHECK-NOT: call void @spm_access(ptr {{(nonnull )?}}%x

double indirect(double *restrict x, int *restrict index, long n) {
  double sum = 0;
  for (long i = 0; i < n; ++i)
    // WHY: refused.c:[[@LINE+1]]:{{.*}}load not followed: its address is loaded in the loop
    sum += x[index[i]];
  return sum;
}

struct node {
  struct node *next;
  double value;
};

double list(struct node *xs) {
  double sum = 0;
  for (; xs; xs = xs->next)
    // WHY: refused.c:[[@LINE+1]]:{{.*}}load not followed: its array changes in the loop
    sum += xs->value;
  return sum;
}

long collatz(long n, long *x) {
  long steps = 0;
  while (n != 1) {
    n = n % 2 ? 3 * n + 1 : n / 2;
    // WHY: refused.c:[[@LINE+1]]:{{.*}}load not followed: its number of iterations is not known
    x[steps++] ^= n;
  }
  return steps;
}

// Less than a page for certain.
// CHECK-LABEL: @small(
// CHECK-NOT: spm_access
// CHECK: ret
double small(double *x) {
  double sum = 0;
  for (int i = 0; i < 16; ++i)
    sum = sum * 0.5 + x[i] * x[i];
  return sum;
}
