/* Makes the Nth system call on files fail, or the process die in front of it.
 *
 * Loaded with LD_PRELOAD. fault_arm(n, kind) starts counting; fault_disarm() stops and says
 * whether the fault has happened. Kinds: 0 kill, 1 EIO, 2 ENOSPC, 3 EINTR, 4 short write.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { KILL, IO, FULL, INTERRUPT, SHORT };

static volatile int armed, left, kind, happened;

void fault_arm(int n, int what) { left = n; kind = what; happened = 0; armed = 1; }
int fault_disarm(void) { armed = 0; return happened; }

/* 0: go on. 1: fail with errno set. 2: write only a part. */
static int strikes(int writes) {
    if (!armed || --left > 0) return 0;
    if (kind == SHORT && !writes) { left = 1; return 0; } /* wait for the next write */
    armed = 0;
    happened = 1;
    if (kind == KILL) kill(getpid(), SIGKILL);
    if (kind == SHORT) return 2;
    errno = kind == IO ? EIO : kind == FULL ? ENOSPC : EINTR;
    return 1;
}

#define NEXT(name) __typeof__(name) *next = dlsym(RTLD_NEXT, #name)

#define OPEN(name)                                                     \
    int name(const char *path, int flags, ...) {                       \
        va_list list; va_start(list, flags);                           \
        mode_t mode = va_arg(list, mode_t); va_end(list);              \
        NEXT(name);                                                    \
        return strikes(0) ? -1 : next(path, flags, mode);              \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                   \
    int name(int folder, const char *path, int flags, ...) {           \
        va_list list; va_start(list, flags);                           \
        mode_t mode = va_arg(list, mode_t); va_end(list);              \
        NEXT(name);                                                    \
        return strikes(0) ? -1 : next(folder, path, flags, mode);      \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void *data, size_t size) {
    NEXT(write);
    int what = strikes(1);
    if (what == 1) return -1;
    return next(file, data, what == 2 && size > 1 ? size / 2 : size);
}

#define PWRITE(name, offset_type)                                      \
    ssize_t name(int file, const void *data, size_t size, offset_type at) { \
        NEXT(name);                                                    \
        int what = strikes(1);                                         \
        if (what == 1) return -1;                                      \
        return next(file, data, what == 2 && size > 1 ? size / 2 : size, at); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t read(int file, void *data, size_t size) {
    NEXT(read);
    return strikes(0) ? -1 : next(file, data, size);
}

#define PLAIN(name, parameters, arguments)                             \
    int name parameters { NEXT(name); return strikes(0) ? -1 : next arguments; }
PLAIN(fsync, (int file), (file))
PLAIN(fdatasync, (int file), (file))
PLAIN(rename, (const char *from, const char *to), (from, to))
PLAIN(chmod, (const char *path, mode_t mode), (path, mode))
PLAIN(ftruncate, (int file, off_t size), (file, size))
PLAIN(ftruncate64, (int file, off64_t size), (file, size))

int flock(int file, int operation) {
    NEXT(flock);
    return (operation & LOCK_EX) && strikes(0) ? -1 : next(file, operation);
}
