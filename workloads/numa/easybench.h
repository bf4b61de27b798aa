/* EasyBench (Piccoli, 2014, 4.2.1): threads take sets of square matrices from a pool and do the same with each.
 *
 * All matrices are global, and the main thread touches them first. A kernel defines KERNEL, MATRICES and USED before it includes
 * this; `kernel(n)` uses the thread's pointers A, B and C. Usage: PROGRAM [N [SETS [THREADS [eager|next-touch]]]]
 *
 * Printed at the end: a checksum, and of the matrices whose bit is in USED how many pages are on the node where the thread ran
 * that used their set, when it was done. */
#ifndef EASYBENCH_H
#define EASYBENCH_H

#include "pages.h"
#include <pthread.h>
#include <stdatomic.h>

static double **all_a, **all_b, **all_c;
static int *used_on;
static long n, sets;
static int is_eager;
static atomic_long next_set;

static void kernel(double *A, double *B, double *C, long N);

static void *work(void *unused) {
  (void)unused;
  for (long set; (set = next_set++) < sets;) {
    if (is_eager) {
      double **all[] = {all_a, all_b, all_c};
      for (int matrix = 0; matrix < 3; ++matrix)
        if (USED & 1 << matrix)
          move_here(all[matrix][set], n * n * sizeof(double));
    }
    kernel(all_a[set], all_b[set], all_c[set], n);
    used_on[set] = node_here();
  }
  return NULL;
}

static double **matrices(void) {
  double **all = memory_or_exit(sets * sizeof *all);
  for (long set = 0; set < sets; ++set) {
    all[set] = memory_or_exit(n * n * sizeof(double));
    /* No zeros, for which a compiler would allocate memory that is never touched. */
    for (long at = 0; at < n * n; ++at)
      all[set][at] = 1.0 / (at % 7 + 1);
  }
  return all;
}

int main(int argc, char **argv) {
  n = number(argc, argv, 1, 256);
  sets = number(argc, argv, 2, 16);
  long threads = number(argc, argv, 3, 4);
  is_eager = argc > 4 && !strcmp(argv[4], "eager");
  if (n < 1 || sets < 1 || threads < 1) {
    fprintf(stderr, "usage: %s [N [SETS [THREADS [eager|next-touch]]]], numbers from 1 on\n", argv[0]);
    return 2;
  }
  all_a = matrices();
  all_b = matrices();
  all_c = matrices();
  used_on = memory_or_exit(sets * sizeof *used_on);
  double **all[] = {all_a, all_b, all_c}, sum = 0;
  if (argc > 4 && !strcmp(argv[4], "next-touch"))
    for (long set = 0; set < sets; ++set)
      for (int matrix = 0; matrix < 3; ++matrix)
        mark(all[matrix][set], n * n * sizeof(double));
  pthread_t *workers = memory_or_exit(threads * sizeof *workers);
  for (long at = 0; at < threads; ++at)
    if (pthread_create(&workers[at], NULL, work, NULL))
      return 1;
  for (long at = 0; at < threads; ++at)
    pthread_join(workers[at], NULL);

  long there = 0, pages = 0;
  for (long set = 0; set < sets; ++set)
    for (int matrix = 0; matrix < 3; ++matrix)
      if (USED & 1 << matrix)
        count_pages(all[matrix][set], n * n * sizeof(double), used_on[set], &there, &pages);
  for (long set = 0; set < sets; ++set)
    for (int matrix = 0; matrix < 3; ++matrix)
      for (long at = 0; at < n * n; ++at)
        sum += all[matrix][set][at] * (at % 7 + 1);
  printf("checksum %.17g\npages %ld of %ld where they were used\n", sum, there, pages);
  return 0;
}

#endif
