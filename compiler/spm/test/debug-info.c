// Calls stand in the loop's line, and debug information stays as it was.
// RUN: %spm -g -S -emit-llvm -o %t.ll %s
// RUN: FileCheck %s < %t.ll
// RUN: opt -passes=verify -disable-output %t.ll
// RUN: clang -O2 -g -S -emit-llvm -o %t.plain.ll %s
// RUN: grep -c '!DILocalVariable' %t.plain.ll > %t.expected
// RUN: grep -c '!DILocalVariable' %t.ll | diff %t.expected -

// CHECK: @spm.site = private global { i32, i32, ptr, ptr, ptr } { i32 1, i32 [[#LINE:]], {{.*}}
// CHECK: call void @spm_access({{.*}}), !dbg ![[PLACE:[0-9]+]]
// CHECK: ![[PLACE]] = !DILocation(line: [[#LINE]],
double total(const double *x, long n) {
  double sum = 0;
  for (long round = 0; round < n; ++round)
    for (long i = 0; i < n; ++i)
      sum = sum * 0.5 + x[i];
  return sum;
}
