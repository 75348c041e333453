/* A layer between a program and the C library that makes one of its file operations go wrong.
 *
 * cc -shared -fPIC -O1 -o faults.so faults.c -ldl; LD_PRELOAD=./faults.so program
 *
 * The program calls fault_begin(folder, at, kind) through ctypes. From then on operations on files below the folder
 * count, and the one with the number `at`, from 1, goes wrong (0: none does):
 *   kill   the process ends before the operation
 *   torn   half of a write is done, or all of another operation, then the process ends
 *   full   the disk is full from here on: a write is cut in half, later ones fail with ENOSPC
 *   sync   the next fsync fails with EIO
 *   short  every write from here on does half of what it is asked, and says so
 *
 * SQLite's and NumPy's writes come by here too, which a patched os.write would not see.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum kind { KILL, TORN, FULL, SYNC, SHORT };

static atomic_long count;
static atomic_int full, sync_failed;
static long fault_at = -1;
static enum kind kind;
static char folder[PATH_MAX];

void fault_begin(const char *path, long at, const char *name) {
  const char *names[] = {"kill", "torn", "full", "sync", "short"};
  for (int i = 0; i < 5; i++)
    if (!strcmp(name, names[i])) kind = (enum kind)i;
  snprintf(folder, sizeof folder, "%s", path);
  fault_at = at;
}

long fault_operations(void) { return atomic_load(&count); }

static void die(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

static int below(const char *path) {
  size_t length = strlen(folder);
  return length && path && !strncmp(path, folder, length) && path[length] == '/';
}

static int of_folder(int fd) {
  char link[64], path[PATH_MAX];
  if (fault_at < 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return below(path);
}

/* a path as Python names it below an open folder (openat and its like); NULL: it does not matter here */
static const char *path_at(int place, const char *name, char *out_path) {
  char link[64];
  if (place == AT_FDCWD || !name || name[0] == '/') return name;
  snprintf(link, sizeof link, "/proc/self/fd/%d", place);
  ssize_t length = readlink(link, out_path, PATH_MAX - 1);
  if (length < 0) return NULL;
  snprintf(out_path + length, (size_t)(PATH_MAX - length), "/%s", name);
  return out_path;
}

/* -> whether the fault begins with this operation or did before */
static int due(void) {
  long number = atomic_fetch_add(&count, 1) + 1;
  if (fault_at <= 0 || number < fault_at) return 0;
  if (number == fault_at && kind == KILL) die();
  return number == fault_at ? 2 : 1;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* how much of a write is done: all, a part, or -1 for none */
static ssize_t allowed(size_t size, int state) {
  if (!state || kind == SYNC || kind == KILL) return (ssize_t)size;
  if (kind == TORN) return state == 2 ? (ssize_t)(size / 2) : (ssize_t)size;
  if (kind == SHORT) return size > 1 ? (ssize_t)(size / 2) : (ssize_t)size;
  if (size > 1 && !atomic_exchange(&full, 1)) return (ssize_t)(size / 2);
  errno = ENOSPC;
  return -1;
}

#define WRITES(name, parameters, arguments)                        \
  ssize_t name parameters {                                        \
    REAL(name);                                                    \
    if (!of_folder(fd)) return real arguments;                     \
    int state = due();                                             \
    ssize_t part = allowed(size, state);                           \
    if (part < 0) return -1;                                       \
    size = (size_t)part;                                           \
    ssize_t done = size ? real arguments : 0;                      \
    if (state == 2 && kind == TORN) die();                         \
    return done;                                                   \
  }

WRITES(write, (int fd, const void *data, size_t size), (fd, data, size))
WRITES(pwrite, (int fd, const void *data, size_t size, off_t place), (fd, data, size, place))
WRITES(pwrite64, (int fd, const void *data, size_t size, off64_t place), (fd, data, size, place))

#define SYNCS(name)                                                \
  int name(int fd) {                                               \
    REAL(name);                                                    \
    if (!of_folder(fd)) return real(fd);                           \
    int state = due();                                             \
    if (state && kind == SYNC && !atomic_exchange(&sync_failed, 1)) { \
      errno = EIO;                                                 \
      return -1;                                                   \
    }                                                              \
    int result = real(fd);                                         \
    if (state == 2 && kind == TORN) die();                         \
    return result;                                                 \
  }

SYNCS(fsync)
SYNCS(fdatasync)

#define OTHERS(name, parameters, arguments, counts)                \
  int name parameters {                                            \
    REAL(name);                                                    \
    if (fault_at < 0 || !(counts)) return real arguments;          \
    int state = due();                                             \
    int result = real arguments;                                   \
    if (state == 2 && kind == TORN) die();                         \
    return result;                                                 \
  }

OTHERS(ftruncate, (int fd, off_t size), (fd, size), of_folder(fd))
OTHERS(ftruncate64, (int fd, off64_t size), (fd, size), of_folder(fd))
OTHERS(rename, (const char *from, const char *to), (from, to), below(to))
OTHERS(unlink, (const char *path), (path), below(path))
#define BELOW(place, name) below(path_at(place, name, (char[PATH_MAX]){0}))
OTHERS(renameat, (int from_place, const char *from, int to_place, const char *to), (from_place, from, to_place, to),
       BELOW(to_place, to))
OTHERS(unlinkat, (int place, const char *name, int flags), (place, name, flags), BELOW(place, name))

#define OPENS(name, parameters, arguments, find)                   \
  int name parameters {                                            \
    REAL(name);                                                    \
    find                                                           \
    mode_t mode = 0;                                               \
    if (flags & O_CREAT) {                                         \
      va_list rest;                                                \
      va_start(rest, flags);                                       \
      mode = (mode_t)va_arg(rest, int);                            \
      va_end(rest);                                                \
    }                                                              \
    if (fault_at < 0 || !(flags & O_CREAT) || !below(path)) return real arguments; \
    int state = due();                                             \
    if (state && kind == FULL && access(path, F_OK)) {             \
      errno = ENOSPC;                                              \
      return -1;                                                   \
    }                                                              \
    int result = real arguments;                                   \
    if (state == 2 && kind == TORN) die();                         \
    return result;                                                 \
  }

#define AT_PLACE char whole[PATH_MAX]; const char *path = path_at(place, name, whole);

OPENS(open, (const char *path, int flags, ...), (path, flags, mode), )
OPENS(open64, (const char *path, int flags, ...), (path, flags, mode), )
OPENS(openat, (int place, const char *name, int flags, ...), (place, name, flags, mode), AT_PLACE)
OPENS(openat64, (int place, const char *name, int flags, ...), (place, name, flags, mode), AT_PLACE)
