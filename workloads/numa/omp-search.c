/* partitionStringSearch with OpenMP: for each query all threads look through their parts of the text, which has no pattern in it.
 * Usage: omp-search [MIB [QUERIES [THREADS]]] */
#include "pages.h"

/* Of omp.h, which is not where each clang looks. */
void omp_set_num_threads(int);

enum { LENGTH = 8 };

static long search(const char *text, long size, const char *pattern) {
  long found = 0;
#pragma omp parallel for reduction(+ : found)
  for (long at = 0; at < size - LENGTH + 1; ++at) {
    int is_here = 1;
    for (long next = 0; next < LENGTH; ++next)
      if (text[at + next] != pattern[next]) {
        is_here = 0;
        break;
      }
    found += is_here;
  }
  return found;
}

int main(int argc, char **argv) {
  long size = number(argc, argv, 1, 64) << 20, queries = number(argc, argv, 2, 16), threads = number(argc, argv, 3, 4);
  if (size < 1 || queries < 1 || threads < 1) {
    fprintf(stderr, "usage: %s [MIB [QUERIES [THREADS]]], numbers from 1 on\n", argv[0]);
    return 2;
  }
  omp_set_num_threads(threads);
  char *text = memory_or_exit(size);
  memset(text, 'b', size);
  long found = 0, there = 0, pages = 0;
  for (long query = 0; query < queries; ++query)
    found += search(text, size, "aaaaaaaa");
#pragma omp parallel for schedule(static, 1) reduction(+ : there, pages)
  for (long thread = 0; thread < threads; ++thread)
    count_pages(text + thread * (size / threads), size / threads, node_here(), &there, &pages);
  printf("found %ld\npages %ld of %ld where they were used\n", found, there, pages);
  return 0;
}
