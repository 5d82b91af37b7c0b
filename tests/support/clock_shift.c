/* Preloaded, it moves a process' wall clock by the seconds in the file CLOCK_SHIFT_FILE (int64). */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *seconds;

__attribute__((constructor)) static void open_file(void) {
  int file = open(getenv("CLOCK_SHIFT_FILE"), O_RDONLY);
  void *memory = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED)
    abort();
  seconds = memory;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real)
    real = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, now);
  if (seconds && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += *seconds;
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  static int (*real)(struct timeval *, void *);
  if (!real)
    real = dlsym(RTLD_NEXT, "gettimeofday");
  int result = real(now, zone);
  if (seconds)
    now->tv_sec += *seconds;
  return result;
}

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result)
    *result = now.tv_sec;
  return now.tv_sec;
}
