/* Where pages are, for programs that report it at their end. */
#ifndef PAGES_H
#define PAGES_H

#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096L

static inline int node_here(void) {
  unsigned cpu, node;
  return getcpu(&cpu, &node) ? -1 : (int)node;
}

/* Whole pages of a range: how many are on a node, and how many there are. */
static void count_pages(const void *memory, long bytes, int node, long *there, long *all) {
  uintptr_t first = ((uintptr_t)memory + PAGE - 1) & -PAGE, end = ((uintptr_t)memory + bytes) & -PAGE;
  for (; first < end; first += PAGE) {
    void *page = (void *)first;
    int status = -1;
    if (syscall(SYS_move_pages, 0, 1L, &page, NULL, &status, 0) == 0 && status >= 0) {
      ++*all;
      *there += status == node;
    }
  }
}

/* Moves the whole pages of a range to the node of this thread: what a programmer would do by hand. */
static inline void move_here(void *memory, long bytes) {
  enum { BATCH = 512 };
  void *pages[BATCH];
  int nodes[BATCH], status[BATCH], node = node_here();
  uintptr_t at = ((uintptr_t)memory + PAGE - 1) & -PAGE, end = ((uintptr_t)memory + bytes) & -PAGE;
  while (at < end) {
    long count = 0;
    for (; at < end && count < BATCH; at += PAGE, ++count) {
      pages[count] = (void *)at;
      nodes[count] = node;
    }
    syscall(SYS_move_pages, 0, count, pages, nodes, status, 2 /* MPOL_MF_MOVE */);
  }
}

static long number(int argc, char **argv, int at, long otherwise) {
  return argc > at ? atol(argv[at]) : otherwise;
}

/* Large arrays begin with a huge page: of one that two threads share no part can be elsewhere. */
static void *memory_or_exit(size_t bytes) {
  void *memory = NULL;
  if (posix_memalign(&memory, bytes < 2 << 20 ? 64 : 2 << 20, bytes)) {
    fprintf(stderr, "expected %zu bytes of memory, found fewer\n", bytes);
    exit(1);
  }
  return memory;
}

#endif
