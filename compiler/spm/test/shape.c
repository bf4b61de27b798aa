// One call for each array before the whole nest, with what it accesses in all.
// RUN: %spm -S -emit-llvm -o - %s | FileCheck %s
// RUN: %spm -c -o /dev/null -Rpass=spm %s 2>&1 | FileCheck --check-prefix=REMARK %s

// CHECK: @spm.site = private global { i32, i32, ptr, ptr, ptr } { i32 1, i32 0, ptr @spm.text{{.*}}, ptr @spm.text{{.*}}, ptr null }

// CHECK-LABEL: @product(
// CHECK: load i32, ptr @spm_is_on
// CHECK: br i1 {{.*}}, !prof
// CHECK: call void @spm_access(ptr {{%[ABC]}}, i64 0, i64 {{.*}}, i64 {{.*}}, ptr nonnull @spm.site
// CHECK: call void @spm_access(ptr {{%[ABC]}}, i64 0, i64 {{.*}}, i64 {{.*}}, ptr nonnull @spm.site
// CHECK: call void @spm_access(ptr {{%[ABC]}}, i64 0, i64 {{.*}}, i64 {{.*}}, ptr nonnull @spm.site
// CHECK-NOT: call void @spm_access
// CHECK: ret void
void product(double *restrict A, double *restrict B, double *restrict C, long N) {
  // REMARK-COUNT-3: shape.c:[[@LINE+1]]:{{.*}}remark: call with
  for (long i = 0; i < N; ++i)
    for (long j = 0; j < N; ++j) {
      double sum = 0;
      for (long k = 0; k < N; ++k)
        sum += A[i * N + k] * B[k * N + j];
      C[i * N + j] = sum;
    }
}

// It has no effect that stops the compiler's work around it.
// CHECK: declare void @spm_access(ptr, i64, i64, i64, ptr) {{.*}}#[[ATTRIBUTES:[0-9]+]]
// CHECK: attributes #[[ATTRIBUTES]] = { nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: readwrite) }
