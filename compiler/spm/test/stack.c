// The first call, in a signal handler on a stack of its own: takes less than 2 KiB of it. A handler has 8 KiB (SIGSTKSZ), of which
// the kernel takes up to 4 for the registers.
// RUN: clang -O2 %s %runtime -ldl -o %t && %t
#include <signal.h>
#include <stdio.h>
#include <string.h>

void spm_access(const void *base, long begin, long end, long bytes, const void *site);

enum { SIZE = 1 << 16, MOST = 2048 };
static unsigned char stack[SIZE], memory[1 << 20];
static unsigned char *top;

static void handler(int number) {
  top = __builtin_frame_address(0);
  spm_access(memory, 0, sizeof memory, 1L << 40, 0);
}

int main(void) {
  memset(stack, 0xa5, SIZE);
  stack_t own = {.ss_sp = stack, .ss_size = SIZE};
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
  if (sigaltstack(&own, 0) || sigaction(SIGUSR1, &action, 0) || raise(SIGUSR1))
    return 2;
  unsigned char *lowest = stack;
  while (lowest < top && *lowest == 0xa5)
    ++lowest;
  printf("%ld bytes\n", (long)(top - lowest));
  return top - lowest > MOST;
}
