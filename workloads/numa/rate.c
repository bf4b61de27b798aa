/* How fast the runtime moves pages, over bare move_pages of the same pages in one call: both between the same two nodes, in turns.
 * Usage: rate [MIB [FROM_PU TO_PU]] */
#include "pages.h"
#include <sys/mman.h>
#include <time.h>

void spm_access(const void *base, long begin, long end, long bytes, const void *site);

static void go_to(int pu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(pu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

static void move_at_once(void *memory, long pages) {
  void **all = memory_or_exit(pages * sizeof *all);
  int *nodes = memory_or_exit(pages * sizeof *nodes), *status = memory_or_exit(pages * sizeof *status);
  for (long at = 0; at < pages; ++at) {
    all[at] = (char *)memory + at * PAGE;
    nodes[at] = node_here();
  }
  syscall(SYS_move_pages, 0, pages, all, nodes, status, 2 /* MPOL_MF_MOVE */);
  free(all);
  free(nodes);
  free(status);
}

/* Seconds for new pages of a PU's node to go to another one's. */
static double measured(long bytes, int from, int to, int by_runtime) {
  go_to(from);
  char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(memory, 1, bytes);
  go_to(to);
  double begin = seconds();
  if (by_runtime)
    spm_access(memory, 0, bytes, 1L << 40, NULL);
  else
    move_at_once(memory, bytes / PAGE);
  double took = seconds() - begin;
  long there = 0, pages = 0;
  count_pages(memory, bytes, node_here(), &there, &pages);
  /* The next ones have other addresses. */
  mmap(memory, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  /* The kernel may hold a few. */
  if (100 * there < 95 * pages)
    fprintf(stderr, "expected %ld pages moved, found %ld\n", pages, there);
  return took;
}

int main(int argc, char **argv) {
  enum { ROUNDS = 5 };
  long bytes = number(argc, argv, 1, 64) << 20;
  int from = number(argc, argv, 2, 0), to = number(argc, argv, 3, 1);
  double by_runtime = 1e9, at_once = 1e9;
  measured(bytes, from, to, 1);
  for (int round = 0; round < ROUNDS; ++round) {
    double runtime = measured(bytes, from, to, 1), bare = measured(bytes, from, to, 0);
    by_runtime = runtime < by_runtime ? runtime : by_runtime;
    at_once = bare < at_once ? bare : at_once;
  }
  printf("rate %.2f of move_pages\n", at_once / by_runtime);
  return 0;
}
