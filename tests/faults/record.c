/* A layer between a program and the C library that records what the program does to the files of a folder.
 *
 * cc -shared -fPIC -O1 -o record.so record.c -ldl -lpthread; LD_PRELOAD=./record.so program
 *
 * The program calls record_begin(folder, log) through ctypes. From then on each operation on files below the folder is
 * appended to the log, in the order in which it was done: a line, then the bytes of a write. record_mark(text) adds a
 * line of the program's own, such as "this write was acknowledged". benchmarks/power_cuts.py reads it.
 *
 *   W inode offset size        a write; `size` bytes follow
 *   T inode size 0             a file was cut or grown to `size`
 *   F inode 0 0                fsync of a file or folder
 *   C inode 0 0 path           a file that was not there was made
 *   D inode 0 0 path           a folder was made
 *   R inode 0 0 from\tto       a file got another name
 *   U inode 0 0 path           a name was deleted
 *   M 0 0 0 text               a mark
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[PATH_MAX];
static int out = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static void put(const void *data, size_t size) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  while (size) {
    ssize_t done = real(out, data, size);
    if (done < 0) abort();
    data = (const char *)data + done;
    size -= (size_t)done;
  }
}

static void line(char kind, unsigned long inode, long first, long second, const char *text) {
  char head[100];
  put(head, (size_t)snprintf(head, sizeof head, "%c %lu %ld %ld ", kind, inode, first, second));
  put(text, strlen(text));
  put("\n", 1);
}

void record_begin(const char *path, const char *log) {
  snprintf(folder, sizeof folder, "%s", path);
  out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
}

void record_mark(const char *text) {
  pthread_mutex_lock(&lock);
  line('M', 0, 0, 0, text);
  pthread_mutex_unlock(&lock);
}

static int below(const char *path) {
  size_t length = strlen(folder);
  return out >= 0 && length && path && !strncmp(path, folder, length) && path[length] == '/';
}

static unsigned long inode_of(int fd) {
  struct stat status;
  return fstat(fd, &status) ? 0 : (unsigned long)status.st_ino;
}

static unsigned long inode_at(const char *path) {
  struct stat status;
  return stat(path, &status) ? 0 : (unsigned long)status.st_ino;
}

/* the folder itself counts, too: it is synced */
static int of_folder(int fd) {
  char link[64], path[PATH_MAX];
  if (out < 0 || fd == out) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return below(path) || !strcmp(path, folder);
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

static void wrote(int fd, const void *data, ssize_t done, long offset) {
  if (done <= 0) return;
  line('W', inode_of(fd), offset, (long)done, "");
  put(data, (size_t)done);
}

ssize_t write(int fd, const void *data, size_t size) {
  REAL(write);
  if (!of_folder(fd)) return real(fd, data, size);
  pthread_mutex_lock(&lock);
  ssize_t done = real(fd, data, size);
  wrote(fd, data, done, (long)lseek(fd, 0, SEEK_CUR) - (long)done);
  pthread_mutex_unlock(&lock);
  return done;
}

#define PWRITES(name, offset)                                          \
  ssize_t name(int fd, const void *data, size_t size, offset place) {  \
    REAL(name);                                                        \
    if (!of_folder(fd)) return real(fd, data, size, place);            \
    pthread_mutex_lock(&lock);                                         \
    ssize_t done = real(fd, data, size, place);                        \
    wrote(fd, data, done, (long)place);                                \
    pthread_mutex_unlock(&lock);                                       \
    return done;                                                       \
  }

PWRITES(pwrite, off_t)
PWRITES(pwrite64, off64_t)

/* copies inside the kernel: refused, so that the program falls back to reads and writes */
ssize_t sendfile(int to, int from, off_t *place, size_t size) {
  REAL(sendfile);
  if (!of_folder(to)) return real(to, from, place, size);
  errno = EINVAL;
  return -1;
}
ssize_t sendfile64(int to, int from, off64_t *place, size_t size) {
  REAL(sendfile64);
  if (!of_folder(to)) return real(to, from, place, size);
  errno = EINVAL;
  return -1;
}
ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *b, size_t size, unsigned flags) {
  REAL(copy_file_range);
  if (!of_folder(to)) return real(from, a, to, b, size, flags);
  errno = EXDEV;
  return -1;
}

#define SYNCS(name)                                                    \
  int name(int fd) {                                                   \
    REAL(name);                                                        \
    if (!of_folder(fd)) return real(fd);                               \
    pthread_mutex_lock(&lock);                                         \
    int result = real(fd);                                             \
    if (!result) line('F', inode_of(fd), 0, 0, "");                    \
    pthread_mutex_unlock(&lock);                                       \
    return result;                                                     \
  }

SYNCS(fsync)
SYNCS(fdatasync)

#define CUTS(name, offset)                                             \
  int name(int fd, offset size) {                                      \
    REAL(name);                                                        \
    if (!of_folder(fd)) return real(fd, size);                         \
    pthread_mutex_lock(&lock);                                         \
    int result = real(fd, size);                                       \
    if (!result) line('T', inode_of(fd), (long)size, 0, "");           \
    pthread_mutex_unlock(&lock);                                       \
    return result;                                                     \
  }

CUTS(ftruncate, off_t)
CUTS(ftruncate64, off64_t)

int renameat(int from_place, const char *from_name, int to_place, const char *to_name) {
  REAL(renameat);
  char from_path[PATH_MAX], to_path[PATH_MAX];
  const char *from = path_at(from_place, from_name, from_path), *to = path_at(to_place, to_name, to_path);
  if (!below(to)) return real(from_place, from_name, to_place, to_name);
  pthread_mutex_lock(&lock);
  unsigned long inode = inode_at(from);
  int result = real(from_place, from_name, to_place, to_name);
  if (!result) {
    char both[2 * PATH_MAX];
    snprintf(both, sizeof both, "%s\t%s", from, to);
    line('R', inode, 0, 0, both);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int place, const char *name, int flags) {
  REAL(unlinkat);
  char whole[PATH_MAX];
  const char *path = path_at(place, name, whole);
  if (!below(path)) return real(place, name, flags);
  pthread_mutex_lock(&lock);
  unsigned long inode = inode_at(path);
  int result = real(place, name, flags);
  if (!result) line('U', inode, 0, 0, path);
  pthread_mutex_unlock(&lock);
  return result;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

int mkdirat(int place, const char *name, mode_t mode) {
  REAL(mkdirat);
  char whole[PATH_MAX];
  const char *path = path_at(place, name, whole);
  if (!below(path)) return real(place, name, mode);
  pthread_mutex_lock(&lock);
  int result = real(place, name, mode);
  if (!result) line('D', inode_at(path), 0, 0, path);
  pthread_mutex_unlock(&lock);
  return result;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

#define OPENS(name, parameters, arguments, find)                       \
  int name parameters {                                                \
    REAL(name);                                                        \
    find                                                               \
    mode_t mode = 0;                                                   \
    if (flags & O_CREAT) {                                             \
      va_list rest;                                                    \
      va_start(rest, flags);                                           \
      mode = (mode_t)va_arg(rest, int);                                \
      va_end(rest);                                                    \
    }                                                                  \
    if (!(flags & (O_CREAT | O_TRUNC)) || !below(path)) return real arguments; \
    pthread_mutex_lock(&lock);                                         \
    int is_new = access(path, F_OK) != 0;                              \
    int fd = real arguments;                                           \
    if (fd >= 0 && is_new) line('C', inode_of(fd), 0, 0, path);        \
    if (fd >= 0 && !is_new && (flags & O_TRUNC)) line('T', inode_of(fd), 0, 0, ""); \
    pthread_mutex_unlock(&lock);                                       \
    return fd;                                                         \
  }

#define AT_PLACE char whole[PATH_MAX]; const char *path = path_at(place, name, whole);

OPENS(open, (const char *path, int flags, ...), (path, flags, mode), )
OPENS(open64, (const char *path, int flags, ...), (path, flags, mode), )
OPENS(openat, (int place, const char *name, int flags, ...), (place, name, flags, mode), AT_PLACE)
OPENS(openat64, (int place, const char *name, int flags, ...), (place, name, flags, mode), AT_PLACE)
