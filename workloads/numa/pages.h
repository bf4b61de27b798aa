/* Where pages are, for programs that report it at their end. */
#ifndef PAGES_H
#define PAGES_H

#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

/* Affinity on next touch in user space (Goglin and Furmento): memory is protected, and moves part by part to the node of the thread
 * that touches it. Of a range its whole parts. */
enum { PART = 64 << 10, MOST_MARKED = 4096 };
static struct {
  uintptr_t first, end;
} marked[MOST_MARKED];
static int marks;

static void on_touch(int signal_number, siginfo_t *info, void *context) {
  (void)context;
  uintptr_t part = (uintptr_t)info->si_addr & -(uintptr_t)PART;
  for (int at = 0; at < marks; ++at)
    if (marked[at].first <= part && part < marked[at].end) {
      /* Of pages that may not be accessed older kernels move none. */
      mprotect((void *)part, PART, PROT_READ | PROT_WRITE);
      move_here((void *)part, PART);
      return;
    }
  /* A fault of the program's own happens again, and ends it. */
  signal(signal_number, SIG_DFL);
}

static inline void mark(void *memory, long bytes) {
  uintptr_t first = ((uintptr_t)memory + PART - 1) & -(uintptr_t)PART, end = ((uintptr_t)memory + bytes) & -(uintptr_t)PART;
  if (first >= end || marks == MOST_MARKED)
    return;
  struct sigaction touch = {.sa_sigaction = on_touch, .sa_flags = SA_SIGINFO};
  marked[marks].first = first;
  marked[marks++].end = end;
  sigaction(SIGSEGV, &touch, NULL);
  mprotect((void *)first, end - first, PROT_NONE);
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
