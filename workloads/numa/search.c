/* partitionStringSearch (Piccoli, figure 4.5): each thread looks for a pattern in its part of a text, again and again.
 * The text has none, so all of it is read. Usage: search [MIB [QUERIES [THREADS [eager|next-touch]]]] */
#include "pages.h"
#include <pthread.h>
#include <stdatomic.h>

enum { LENGTH = 8 };

static char *text;
static long size, queries, threads;
static int is_eager;
static int *ran_on;
static atomic_long found;

static void *work(void *number) {
  long region = size / threads, first = (long)number * region, end = first + region;
  if (is_eager)
    move_here(text + first, region);
  for (long query = 0; query < queries; ++query) {
    char *pattern = malloc(LENGTH);
    for (long at = 0; at < LENGTH; ++at)
      pattern[at] = 'a';
    long occurrences = 0;
    for (long at = first; at < end - LENGTH + 1; ++at) {
      int is_here = 1;
      for (long next = 0; next < LENGTH; ++next)
        if (text[at + next] != pattern[next]) {
          is_here = 0;
          break;
        }
      if (is_here)
        ++occurrences;
    }
    found += occurrences;
    free(pattern);
  }
  ran_on[(long)number] = node_here();
  return NULL;
}

int main(int argc, char **argv) {
  size = number(argc, argv, 1, 64) << 20;
  queries = number(argc, argv, 2, 16);
  threads = number(argc, argv, 3, 4);
  is_eager = argc > 4 && !strcmp(argv[4], "eager");
  if (size < 1 || queries < 1 || threads < 1) {
    fprintf(stderr, "usage: %s [MIB [QUERIES [THREADS [eager|next-touch]]]], numbers from 1 on\n", argv[0]);
    return 2;
  }
  text = memory_or_exit(size);
  memset(text, 'b', size);
  if (argc > 4 && !strcmp(argv[4], "next-touch"))
    mark(text, size);
  ran_on = memory_or_exit(threads * sizeof *ran_on);
  pthread_t *workers = memory_or_exit(threads * sizeof *workers);
  for (long at = 0; at < threads; ++at)
    if (pthread_create(&workers[at], NULL, work, (void *)at))
      return 1;
  long there = 0, pages = 0;
  for (long at = 0; at < threads; ++at)
    pthread_join(workers[at], NULL);
  for (long at = 0; at < threads; ++at)
    count_pages(text + at * (size / threads), size / threads, ran_on[at], &there, &pages);
  printf("found %ld\npages %ld of %ld where they were used\n", (long)found, there, pages);
  return 0;
}
