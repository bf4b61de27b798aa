// A load under a condition that is known before the loop is repeated there, from nothing where the condition does not hold: it is safe
// wherever the program itself loads, and only there.
// RUN: %spm -S -emit-llvm -o - %s | FileCheck %s
// RUN: %spm %s %runtime -o %t && %t

struct vector {
  double *data;
  long stride;
};

// CHECK-LABEL: @scale(
// CHECK: load i32, ptr @spm_is_on
// CHECK: select i1 %{{.*}}, ptr %{{.*}}, ptr @spm.nothing
// CHECK: call void @spm_access(
// CHECK-LABEL: @main(
__attribute__((noinline)) void scale(struct vector *of, long rows, long columns) {
  for (long row = 0; row < rows; ++row)
    for (long column = 0; column < columns; ++column)
      of->data[row * of->stride + column] *= 2;
}

int main(void) {
  static double data[1 << 16];
  for (long at = 0; at < 1 << 16; ++at)
    data[at] = at;
  struct vector of = {data, 256};
  // No column: the program loads nothing from there. It comes first, as on one node the runtime is off after its first call.
  scale((struct vector *)8, 256, 0);
  scale(&of, 256, 256);
  return data[1000] != 2000;
}
