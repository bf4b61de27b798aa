// A thread that is cancelled keeps no lock: a call is no cancellation point, also the first one, which reads files.
// RUN: clang -O2 -pthread %s %runtime -ldl -o %t && timeout 60 %t
// RUN: clang -O2 -pthread %s %runtime -ldl -o %t && env SPM_STATS=1 timeout 60 %t
#include <pthread.h>

void spm_access(const void *base, long begin, long end, long bytes, const void *site);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char memory[1 << 20];

static void *calls(void *unused) {
  pthread_mutex_lock(&mutex);
  pthread_cancel(pthread_self());
  spm_access(memory, 0, sizeof memory, 1L << 40, 0);
  pthread_mutex_unlock(&mutex);
  pthread_testcancel();
  return unused;
}

int main(void) {
  pthread_t thread;
  void *result;
  if (pthread_create(&thread, 0, calls, 0) || pthread_join(thread, &result))
    return 2;
  // It was cancelled, and after it had unlocked.
  return result != PTHREAD_CANCELED || pthread_mutex_trylock(&mutex) != 0;
}
