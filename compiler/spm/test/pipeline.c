// In every kind of build the call is there once.
// RUN: %spm %s -o %t.plain %runtime -lpthread -ldl
// RUN: llvm-objdump -d --disassemble-symbols=main %t.plain | FileCheck %s
#include <stdlib.h>

int main(int argc, char **argv) {
  double *x = calloc(1 << 20, sizeof *x), sum = argc;
  if (!x)
    return 1;
  for (long round = 0; round < argc * 10L; ++round)
    for (long i = 0; i < argc * 1000L; ++i)
      sum = x[i] = sum * 0.5 + x[i];
  return sum > 1;
}
// CHECK: <main>:
// CHECK: call{{.*}}<spm_access>
// CHECK-NOT: call{{.*}}<spm_access>
