/* What a program may do that its calls of the runtime do not expect. Usage: hostile PART [LIBRARY]
 * Prints the part's name and ends with 0 if its results are as they would be without the runtime. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

void spm_access(const void *base, long begin, long end, long bytes, const void *site);

enum { PAGE = 4096, SIZE = 1 << 20 };
#define REUSED (1L << 30)
#define EXPECT(what) ((what) ? (void)0 : (fprintf(stderr, "expected %s in line %d\n", #what, __LINE__), exit(1)))

static void go_to(int pu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(pu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

static char *mapped(int access, int flags, int file) {
  char *memory = mmap(NULL, SIZE, access, flags, file, 0);
  EXPECT(memory != MAP_FAILED);
  return memory;
}

static char *touched(void) {
  go_to(0);
  return memset(mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1), 5, SIZE);
}

static void expect_all(const char *memory, char value) {
  for (long at = 0; at < SIZE; ++at)
    EXPECT(memory[at] == value);
}

/* What is worth moving to the node of a PU. */
static void call(const void *memory, int pu) {
  go_to(pu);
  spm_access(memory, 0, SIZE, REUSED, NULL);
}

/* A loop that has a call of its own. */
__attribute__((noinline)) static long sum(const long *numbers, long count, long rounds) {
  long sum = 0;
  for (long round = 0; round < rounds; ++round)
    for (long at = 0; at < count; ++at)
      sum += numbers[at] ^ round;
  return sum;
}

static void pointers(void) {
  const long odd[] = {0, 1, -1, PAGE, SIZE, INT64_MAX, INT64_MIN, 1L << 47, 1L << 56, -PAGE};
  enum { COUNT = sizeof odd / sizeof *odd };
  go_to(2);
  for (int base = 0; base < COUNT; ++base)
    for (int begin = 0; begin < COUNT; ++begin)
      for (int bytes = 0; bytes < COUNT; ++bytes) {
        /* Ends that are near, as a call looks at each block. */
        spm_access((void *)odd[base], odd[begin], (long)((uint64_t)odd[begin] + SIZE), odd[bytes], NULL);
        spm_access((void *)odd[base], odd[begin], 0, odd[bytes], NULL);
      }
}

static void freed(void) {
  char *memory = touched();
  EXPECT(!munmap(memory + SIZE / 2, SIZE / 2));
  call(memory, 2);
  EXPECT(!munmap(memory, SIZE / 2));
  call(memory, 4);
  /* The addresses are another mapping's now. */
  char *other = mmap(memory, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  memset(other, 6, SIZE);
  call(memory, 6);
  expect_all(other, 6);
}

static void mappings(void) {
  FILE *file = tmpfile();
  EXPECT(file && !ftruncate(fileno(file), SIZE));
  char *shared = mapped(PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file));
  memset(shared, 7, SIZE);
  char *all[] = {shared, mapped(PROT_READ, MAP_PRIVATE, fileno(file)), mapped(PROT_READ, MAP_SHARED, fileno(file)),
                 mapped(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1), touched()};
  memset(all[3], 7, SIZE);
  memset(all[4], 7, SIZE);
  EXPECT(!mprotect(all[4], SIZE, PROT_READ));
  for (int at = 0; at < 5; ++at) {
    call(all[at], 2 + 2 * at);
    expect_all(all[at], 7);
  }
  EXPECT(!mprotect(all[4], SIZE, PROT_NONE));
  call(all[4], 14);
  EXPECT(!mprotect(all[4], SIZE, PROT_READ));
  expect_all(all[4], 7);
  /* Beyond the end of a file an access is a SIGBUS, which the program has to get and the call must not. */
  EXPECT(!ftruncate(fileno(file), 0));
  call(shared, 4);
}

static long files(void) {
  long count = 0;
  for (int file = 0; file < 1024; ++file)
    count += fcntl(file, F_GETFD) >= 0;
  return count;
}

static void errnos(void) {
  long before = files();
  for (int pu = 0; pu < 16; pu += 2) {
    char *memory = touched();
    go_to(pu);
    errno = 77;
    spm_access(memory, 0, SIZE, REUSED, NULL);
    EXPECT(errno == 77);
    expect_all(memory, 5);
  }
  EXPECT(files() == before);
  struct rlimit none = {3, 3};
  EXPECT(!setrlimit(RLIMIT_NOFILE, &none));
  char *memory = touched();
  call(memory, 2);
  expect_all(memory, 5);
}

static void *calls(void *is_done) {
  while (!*(volatile int *)is_done) {
    char *memory = touched();
    call(memory, 8);
    munmap(memory, SIZE);
  }
  return NULL;
}

static void forks(void) {
  int is_done = 0;
  pthread_t other;
  EXPECT(!pthread_create(&other, NULL, calls, &is_done));
  for (int child = 0; child < 10; ++child) {
    char *memory = touched();
    pid_t pid = fork();
    if (!pid) {
      call(memory, 2);
      expect_all(memory, 5);
      exit(7);
    }
    call(memory, 4);
    int status;
    EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    expect_all(memory, 5);
    munmap(memory, SIZE);
  }
  is_done = 1;
  pthread_join(other, NULL);
}

static char *handled;
static volatile sig_atomic_t signalled;

static void handle(int unused) {
  (void)unused;
  spm_access(handled, 0, SIZE, REUSED, NULL);
  ++signalled;
}

static void signals(void) {
  handled = touched();
  signal(SIGALRM, handle);
  struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, NULL);
  for (int round = 0; round < 20 || signalled < 20; ++round) {
    char *memory = touched();
    call(memory, (round + 1) % 8 * 2);
    expect_all(memory, 5);
    munmap(memory, SIZE);
  }
  setitimer(ITIMER_REAL, &never, NULL);
  expect_all(handled, 5);
}

static long numbers[1 << 14];

static void *adds(void *unused) {
  (void)unused;
  return (void *)sum(numbers, 1 << 14, 2);
}

static void threads(void) {
  enum { COUNT = 2000 };
  static pthread_t all[COUNT];
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 << 10);
  for (long at = 0; at < 1 << 14; ++at)
    numbers[at] = 2 * at;
  for (int at = 0; at < COUNT; ++at)
    EXPECT(!pthread_create(&all[at], &small, adds, NULL));
  for (int at = 0; at < COUNT; ++at) {
    void *result;
    EXPECT(!pthread_join(all[at], &result));
    EXPECT((long)result == 2 * (2L << 13) * ((1L << 14) - 1) + (1L << 14));
  }
}

static const char *path;
static pthread_barrier_t unloaded;

static void *loads(void *unused) {
  (void)unused;
  char *memory = touched();
  go_to(2);
  void *library = dlopen(path, RTLD_NOW);
  EXPECT(library);
  long (*add)(const char *, long, long) = (long (*)(const char *, long, long))dlsym(library, "add");
  EXPECT(add && add(memory, SIZE, 30) == 150L * SIZE);
  EXPECT(!dlclose(library));
  pthread_barrier_wait(&unloaded);
  return NULL;
}

static void libraries(void) {
  for (int round = 0; round < 3; ++round) {
    pthread_t thread;
    pthread_barrier_init(&unloaded, NULL, 2);
    EXPECT(!pthread_create(&thread, NULL, loads, NULL));
    pthread_barrier_wait(&unloaded);
    EXPECT(!dlopen(path, RTLD_NOW | RTLD_NOLOAD));
    EXPECT(!pthread_join(thread, NULL));
  }
}

/* A filter of the program's own, under which the runtime's system calls would end it. */
static void filters(void) {
  call(touched(), 2);
  char *memory = touched();
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_move_pages, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  EXPECT(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
  call(memory, 4);
  expect_all(memory, 5);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } parts[] = {{"pointers", pointers}, {"freed", freed},     {"mappings", mappings},   {"errnos", errnos},  {"forks", forks},
               {"signals", signals},   {"threads", threads}, {"libraries", libraries}, {"filters", filters}};
  path = argc > 2 ? argv[2] : "";
  for (unsigned at = 0; at < sizeof parts / sizeof *parts; ++at)
    if (argc > 1 && !strcmp(argv[1], parts[at].name)) {
      parts[at].run();
      printf("%s\n", argv[1]);
      return 0;
    }
  fprintf(stderr, "usage: %s PART [LIBRARY]\n", argv[0]);
  return 2;
}
