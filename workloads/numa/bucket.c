/* BucketSort (Piccoli, figure 4.6): numbers are dealt into a bucket for each thread, which sorts it by selection.
 * Usage: bucket [NUMBERS [BUCKETS [eager|next-touch]]] */
#include "pages.h"
#include <pthread.h>

typedef struct {
  int *data;
  long used, size;
  int sorted_on;
} bucket;

static int is_eager;

static void add(bucket *to, int number) {
  if (to->used == to->size) {
    to->size = to->size * 3 / 2 + 1;
    to->data = realloc(to->data, to->size * sizeof *to->data);
    if (!to->data)
      exit(1);
  }
  to->data[to->used++] = number;
}

static void sort(int *data, long count) {
  for (long at = 0; at < count - 1; ++at) {
    long least = at;
    for (long other = at + 1; other < count; ++other)
      if (data[other] < data[least])
        least = other;
    int number = data[at];
    data[at] = data[least];
    data[least] = number;
  }
}

static void *work(void *argument) {
  bucket *of = argument;
  if (is_eager)
    move_here(of->data, of->used * sizeof *of->data);
  sort(of->data, of->used);
  of->sorted_on = node_here();
  return NULL;
}

int main(int argc, char **argv) {
  long count = number(argc, argv, 1, 100000), buckets = number(argc, argv, 2, 4);
  is_eager = argc > 3 && !strcmp(argv[3], "eager");
  if (count < 1 || buckets < 1) {
    fprintf(stderr, "usage: %s [NUMBERS [BUCKETS [eager|next-touch]]], numbers from 1 on\n", argv[0]);
    return 2;
  }
  bucket *all = memory_or_exit(buckets * sizeof *all);
  for (long at = 0; at < buckets; ++at) {
    long size = count / buckets + 1;
    all[at] = (bucket){memory_or_exit(size * sizeof(int)), 0, size, -1};
  }
  uint64_t random = 1;
  for (long at = 0; at < count; ++at) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    int number = random >> 34;
    long to = number / ((1L << 30) / buckets + 1);
    add(&all[to], number);
  }
  if (argc > 3 && !strcmp(argv[3], "next-touch"))
    for (long at = 0; at < buckets; ++at)
      mark(all[at].data, all[at].used * sizeof(int));
  pthread_t *workers = memory_or_exit(buckets * sizeof *workers);
  for (long at = 0; at < buckets; ++at)
    if (pthread_create(&workers[at], NULL, work, &all[at]))
      return 1;
  long there = 0, pages = 0, place = 0, sum = 0;
  int last = 0, is_sorted = 1;
  for (long at = 0; at < buckets; ++at)
    pthread_join(workers[at], NULL);
  for (long at = 0; at < buckets; ++at)
    count_pages(all[at].data, all[at].used * sizeof(int), all[at].sorted_on, &there, &pages);
  for (long at = 0; at < buckets; ++at)
    for (long of = 0; of < all[at].used; ++of, ++place) {
      is_sorted &= all[at].data[of] >= last;
      last = all[at].data[of];
      sum += last % 1000 * (place % 7 + 1);
    }
  printf("sorted %d, checksum %ld\npages %ld of %ld where they were used\n", is_sorted, sum, there, pages);
  return 0;
}
