/* EasyBench with OpenMP: all threads work on each set of matrices together, each in its part of the rows.
 *
 * Usage: PROGRAM [N [SETS [THREADS]]]. A kernel defines SPLIT before it includes this: the matrices, by bits, whose rows the threads
 * share out. At the end it prints a checksum, and of these matrices how many pages are on the node of the thread with these rows. */
#ifndef EASYOMP_H
#define EASYOMP_H

#include "pages.h"

/* Of omp.h, which is not where each clang looks. */
int omp_get_num_threads(void), omp_get_thread_num(void);
void omp_set_num_threads(int);

static void kernel(double *A, double *B, double *C, long N);

static double *matrix(long n) {
  double *memory = memory_or_exit(n * n * sizeof *memory);
  for (long at = 0; at < n * n; ++at)
    memory[at] = 1.0 / (at % 7 + 1);
  return memory;
}

int main(int argc, char **argv) {
  long n = number(argc, argv, 1, 256), sets = number(argc, argv, 2, 1), threads = number(argc, argv, 3, 4);
  if (n < 1 || sets < 1 || threads < 1) {
    fprintf(stderr, "usage: %s [N [SETS [THREADS]]], numbers from 1 on\n", argv[0]);
    return 2;
  }
  omp_set_num_threads(threads);
  double sum = 0;
  long there = 0, pages = 0;
  for (long set = 0; set < sets; ++set) {
    double *all[] = {matrix(n), matrix(n), matrix(n)};
    kernel(all[0], all[1], all[2], n);
#pragma omp parallel for schedule(static, 1) reduction(+ : there, pages)
    for (long thread = 0; thread < threads; ++thread)
      for (int matrix = 0; matrix < 3; ++matrix)
        if (SPLIT & 1 << matrix) {
          long first = n * thread / threads, end = n * (thread + 1) / threads;
          count_pages(all[matrix] + first * n, (end - first) * n * sizeof(double), node_here(), &there, &pages);
        }
    for (int matrix = 0; matrix < 3; ++matrix) {
      for (long at = 0; at < n * n; ++at)
        sum += all[matrix][at] * (at % 7 + 1);
      free(all[matrix]);
    }
  }
  printf("checksum %.17g\npages %ld of %ld where they were used\n", sum, there, pages);
  return 0;
}

#endif
