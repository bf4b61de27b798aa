/* Compares what the pass announces with what is accessed, for each kernel and matrix, for 24 sizes.
 *
 * Prints a row for each kernel and matrix with the announced bytes over those accessed, least and largest, and whether all was
 * inside the announced ranges. Ends with 1 if one that is to be exact is not, or if more is accessed than announced. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void kernel(double *, double *, double *, long);
kernel lu, cholesky, add, product, transpose, stencil, backwards, strided, deep, conditional, search, selection;
void narrow(double *, double *, double *, int);
void unsigned_indices(double *, double *, double *, unsigned);

static void narrow_(double *a, double *b, double *c, long n) { narrow(a, b, c, n); }
static void unsigned_(double *a, double *b, double *c, long n) { unsigned_indices(a, b, c, n); }

static const struct {
  const char *name;
  kernel *run;
  /* Else at least what is accessed. */
  int is_exact;
} KERNELS[] = {
    {"lu", lu, 1},
    {"cholesky", cholesky, 0}, /* both arms of the if count */
    {"add", add, 1},
    {"product", product, 1},
    {"transpose", transpose, 1},
    {"stencil", stencil, 1},
    {"backwards", backwards, 1},
    {"strided", strided, 1},
#ifdef OLDER
    {"deep", deep, 0}, /* not exact there */
#else
    {"deep", deep, 1},
#endif
    {"narrow", narrow_, 1},
    {"unsigned", unsigned_, 1},
    {"conditional", conditional, 0},
    {"search", search, 0},
    {"selection", selection, 0},
};

/* The smallest are so large that no range is below a page for certain, which leaves calls out anyway only if it is constant. */
static const long SIZES[] = {2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 23, 31, 32, 33, 41, 48, 50, 63, 64, 65, 77, 90, 100, 101};

enum { MOST = 101 };
static double matrices[3][MOST * MOST];
static int is_counting;
static struct {
  uint64_t announced, touched;
  uintptr_t first, end;
  int outside;
} of[3];

static int matrix_of(uintptr_t at) {
  for (int matrix = 0; matrix < 3; ++matrix)
    if (at >= (uintptr_t)matrices[matrix] && at < (uintptr_t)matrices[matrix + 1])
      return matrix;
  return -1;
}

int spm_is_on = 1;

void spm_access(char *base, int64_t begin, int64_t end, int64_t bytes, void *site) {
  (void)site;
  int matrix = matrix_of((uintptr_t)base);
  if (!is_counting || matrix < 0)
    return;
  of[matrix].announced += bytes;
  if (begin < end) {
    uintptr_t first = (uintptr_t)base + begin, last = (uintptr_t)base + end;
    if (first < of[matrix].first || !of[matrix].first)
      of[matrix].first = first;
    if (last > of[matrix].end)
      of[matrix].end = last;
  }
}

void touched(char *at, int64_t bytes) {
  int matrix = matrix_of((uintptr_t)at);
  if (!is_counting || matrix < 0)
    return;
  of[matrix].touched += bytes;
  if ((uintptr_t)at < of[matrix].first || (uintptr_t)at + bytes > of[matrix].end)
    of[matrix].outside = 1;
}

int main(void) {
  int status = 0;
  printf("%-12s %-6s %10s %10s %s\n", "kernel", "matrix", "least", "largest", "range");
  for (size_t which = 0; which < sizeof KERNELS / sizeof *KERNELS; ++which) {
    double least[3] = {9e9, 9e9, 9e9}, largest[3] = {0};
    int outside[3] = {0}, is_used[3] = {0};
    for (size_t size = 0; size < sizeof SIZES / sizeof *SIZES; ++size) {
      long n = SIZES[size];
      for (int matrix = 0; matrix < 3; ++matrix)
        for (long at = 0; at < n * n; ++at)
          matrices[matrix][at] = (at * 7919 % 1000) / 1000.0 + (at % (n + 1) == 0);
      memset(of, 0, sizeof of);
      is_counting = 1;
      KERNELS[which].run(matrices[0], matrices[1], matrices[2], n);
      is_counting = 0;
      for (int matrix = 0; matrix < 3; ++matrix) {
        if (!of[matrix].touched && !of[matrix].announced)
          continue;
        double ratio = of[matrix].touched ? (double)of[matrix].announced / of[matrix].touched : 9e9;
        is_used[matrix] = 1;
        outside[matrix] |= of[matrix].outside;
        least[matrix] = ratio < least[matrix] ? ratio : least[matrix];
        largest[matrix] = ratio > largest[matrix] ? ratio : largest[matrix];
      }
    }
    for (int matrix = 0; matrix < 3; ++matrix) {
      if (!is_used[matrix])
        continue;
      printf("%-12s %-6c %10.4f %10.4f %s\n", KERNELS[which].name, 'A' + matrix, least[matrix], largest[matrix],
             outside[matrix] ? "outside" : "inside");
      int is_wrong = KERNELS[which].is_exact ? least[matrix] != 1 || largest[matrix] != 1 : least[matrix] < 1;
      if (is_wrong || outside[matrix]) {
        printf("  expected %s, all inside\n", KERNELS[which].is_exact ? "1 and 1" : "at least 1");
        status = 1;
      }
    }
  }
  return status;
}
