/* Faults for a process that is preloaded with this: errors and short counts from its calls on files, and another wall clock.

   What goes wrong is written in a file that DHP_SHIM names, which is mapped here and by the test (tests/support/fault_shim.py), so a
   running process's faults are switched on and off. The layout is that of `Rule` there. Nothing is done while nothing is
   asked for: one load of a byte per call. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, READ = 4, OPEN = 8, ALLOCATE = 16, TRUNCATE = 32 };
enum { HELD = -1 };           /* as an error: the call comes back when the rule is taken away, and then it does what it does */

struct rule {
  _Atomic int32_t calls;      /* which calls, as bits; 0: none */
  int32_t error;              /* the errno that they give; 0: a write is only cut short */
  int64_t first;              /* from which call on, counted from 1 */
  int64_t most;               /* how many fail; 0: all from there on */
  int64_t keep;               /* a write puts down so many of its bytes first; -1: none */
  _Atomic int64_t seen;       /* calls that it could have met */
  _Atomic int64_t met;        /* calls that it has met */
  char path[208];             /* the file's path ends with this */
};

struct control {
  _Atomic int64_t clock_ns;   /* what the wall clock is ahead */
  struct rule rules[4];
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
  const char *name = getenv("DHP_SHIM");
  int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) control = mapped;
}

#define REAL(name) \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int ends_with(const char *path, const char *end) {
  size_t path_length = strlen(path), end_length = strlen(end);
  return path_length >= end_length && !strcmp(path + path_length - end_length, end);
}

/* The rule that this call on `path`, or on the open `file`, meets; NULL: none. */
static struct rule *met(int call, int file, const char *path) {
  char link[64], found[PATH_MAX];
  for (int i = 0; control && i < 4; i++) {
    struct rule *rule = &control->rules[i];
    if (!(atomic_load(&rule->calls) & call)) continue;
    if (!path) {
      int saved = errno;
      strcpy(link, "/proc/self/fd/");
      char digits[16], *end = digits + sizeof digits;
      *--end = 0;
      unsigned number = (unsigned)file;
      do *--end = '0' + number % 10; while (number /= 10);
      strcat(link, end);
      ssize_t length = readlink(link, found, sizeof found - 1);
      errno = saved;
      if (length < 0) return NULL;
      found[length] = 0;
      path = found;
    }
    if (!ends_with(path, rule->path)) continue;
    int64_t number = atomic_fetch_add(&rule->seen, 1) + 1;
    if (number < rule->first || (rule->most && number >= rule->first + rule->most)) continue;
    atomic_fetch_add(&rule->met, 1);
    if (rule->error != HELD) return rule;
    while (atomic_load(&rule->calls) & call) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return NULL;
  }
  return NULL;
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
  REAL(pwrite64);
  struct rule *rule = met(WRITE, file, NULL);
  if (!rule) return real(file, bytes, count, at);
  ssize_t put = 0;
  if (rule->keep >= 0) put = real(file, bytes, (size_t)rule->keep < count ? (size_t)rule->keep : count, at);
  if (!rule->error) return put;
  errno = rule->error;
  return -1;
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) { return pwrite64(file, bytes, count, at); }

ssize_t write(int file, const void *bytes, size_t count) {
  REAL(write);
  struct rule *rule = met(WRITE, file, NULL);
  if (!rule) return real(file, bytes, count);
  ssize_t put = 0;
  if (rule->keep >= 0) put = real(file, bytes, (size_t)rule->keep < count ? (size_t)rule->keep : count);
  if (!rule->error) return put;
  errno = rule->error;
  return -1;
}

#define FAILS(call, file, path, otherwise) \
  do { \
    struct rule *rule = met(call, file, path); \
    if (!rule) return otherwise; \
    errno = rule->error; \
    return -1; \
  } while (0)

ssize_t pread64(int file, void *bytes, size_t count, off64_t at) {
  REAL(pread64);
  FAILS(READ, file, NULL, real(file, bytes, count, at));
}

ssize_t pread(int file, void *bytes, size_t count, off_t at) { return pread64(file, bytes, count, at); }

int fsync(int file) {
  REAL(fsync);
  FAILS(SYNC, file, NULL, real(file));
}

int fdatasync(int file) {
  REAL(fdatasync);
  FAILS(SYNC, file, NULL, real(file));
}

int ftruncate64(int file, off64_t length) {
  REAL(ftruncate64);
  FAILS(TRUNCATE, file, NULL, real(file, length));
}

int ftruncate(int file, off_t length) { return ftruncate64(file, length); }

int posix_fallocate64(int file, off64_t at, off64_t length) {
  REAL(posix_fallocate64);
  struct rule *rule = met(ALLOCATE, file, NULL);
  return rule ? rule->error : real(file, at, length);
}

int posix_fallocate(int file, off_t at, off_t length) { return posix_fallocate64(file, at, length); }

int open64(const char *path, int flags, ...) {
  REAL(open64);
  va_list more;
  va_start(more, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
  va_end(more);
  FAILS(OPEN, -1, path, real(path, flags, mode));
}

int open(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
  va_end(more);
  return open64(path, flags, mode);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  REAL(clock_gettime);
  int result = real(clock, now);
  if (!result && control && clock == CLOCK_REALTIME) {
    int64_t ahead = atomic_load(&control->clock_ns) + now->tv_nsec;
    int64_t seconds = ahead / 1000000000;
    if (ahead % 1000000000 < 0) seconds--;
    now->tv_sec += seconds;
    now->tv_nsec = ahead - seconds * 1000000000;
  }
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *where) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (where) *where = now.tv_sec;
  return now.tv_sec;
}
