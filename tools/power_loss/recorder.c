/* Preloaded into every process on a folder: writes down each change of a file in it, and each sync, in the order in which they
   happened. A change is written down after it was made, the begin of a sync before and its end after it: whatever is written down
   before a begin was there to be synced. Syncs are not done, for nobody cuts the power of this machine.
   POWER_LOSS_FOLDER: the folder, absolute. POWER_LOSS_LOG: where to write, outside of it. */
#include "recorder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 65536, LOWEST_LOG = 700 };

struct head {
    uint32_t length; /* of what follows the head */
    uint32_t what;
    uint64_t file, value; /* value: an offset, a size, or which sync it is */
    uint64_t at;          /* microseconds of the machine's own clock */
};

static const char *folder;
static size_t folder_length;
static int log_file = -1;
static uint64_t watched[FILES]; /* by descriptor: the number of the file, 0 when it is not in the folder */
static uint64_t syncs;

void recorder_fail(const char *what) {
    dprintf(2, "recorder: %s: %s\n", what, strerror(errno));
    _exit(70);
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("POWER_LOSS_LOG");
    folder = getenv("POWER_LOSS_FOLDER");
    if (!path || !folder) return;
    folder_length = strlen(folder);
    int (*open_)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
    int fd = open_(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) recorder_fail(path);
    log_file = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_LOG);
    if (log_file < 0) recorder_fail("dup");
    int (*close_)(int) = dlsym(RTLD_NEXT, "close");
    close_(fd);
}

void recorder_write_down(uint32_t what, uint64_t file, uint64_t value, const void *data, size_t length) {
    int before = errno;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct head head = {(uint32_t)length, what, file, value, now.tv_sec * 1000000ull + now.tv_nsec / 1000};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)data, length}};
    static ssize_t (*writev_)(int, const struct iovec *, int);
    if (!writev_) writev_ = dlsym(RTLD_NEXT, "writev");
    if (writev_(log_file, parts, 2) != (ssize_t)(sizeof head + length)) recorder_fail("the log");
    errno = before;
}

static int inside(const char *path) {
    if (log_file < 0 || !path || strncmp(path, folder, folder_length)) return 0;
    if (path[folder_length] && path[folder_length] != '/') return 0;
    size_t length = strlen(path);
    return length < 4 || strcmp(path + length - 4, "-shm"); /* the shared memory need not last */
}

static const char *below(const char *path) { return path[folder_length] ? path + folder_length + 1 : ""; }

uint64_t recorder_file_of(int fd) { return fd >= 0 && fd < FILES ? watched[fd] : 0; }

static int opened(int fd, const char *path, int flags) {
    struct stat status;
    if (fd < 0 || fd >= FILES || log_file < 0) return fd;
    watched[fd] = 0;
    if (!inside(path) || fstat(fd, &status)) return fd;
    watched[fd] = status.st_ino;
    recorder_write_down(NAME, status.st_ino, S_ISDIR(status.st_mode), below(path), strlen(below(path)));
    if (flags & O_TRUNC) recorder_write_down(TRUNCATE, status.st_ino, 0, "", 0);
    return fd;
}

#define MODE \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }
#define OPEN(symbol) \
    int symbol(const char *path, int flags, ...) { \
        MODE REAL(int, #symbol, const char *, int, ...); \
        return opened(real(path, flags, mode), path, flags); \
    }
#define OPEN_AT(symbol) \
    int symbol(int at, const char *path, int flags, ...) { \
        MODE REAL(int, #symbol, int, const char *, int, ...); \
        return opened(real(at, path, flags, mode), path, flags); \
    }
OPEN(open)
OPEN(open64)
OPEN_AT(openat)
OPEN_AT(openat64)

int close(int fd) {
    REAL(int, "close", int);
    if (fd == log_file && fd >= 0) return 0;
    if (fd >= 0 && fd < FILES) watched[fd] = 0;
    return real(fd);
}

/* A descriptor that is written to may be closed, and be another file's, as soon as the writing is done. */

ssize_t write(int fd, const void *data, size_t length) {
    REAL(ssize_t, "write", int, const void *, size_t);
    uint64_t file = recorder_file_of(fd);
    ssize_t done = real(fd, data, length);
    if (done > 0 && file) recorder_write_down(WRITE, file, lseek(fd, 0, SEEK_CUR) - done, data, done);
    return done;
}

#define PWRITE(symbol, offset_type) \
    ssize_t symbol(int fd, const void *data, size_t length, offset_type offset) { \
        REAL(ssize_t, #symbol, int, const void *, size_t, offset_type); \
        uint64_t file = recorder_file_of(fd); \
        ssize_t done = real(fd, data, length, offset); \
        if (done > 0 && file) recorder_write_down(WRITE, file, offset, data, done); \
        return done; \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define CHANGE_SIZE(symbol, offset_type) \
    int symbol(int fd, offset_type size) { \
        REAL(int, #symbol, int, offset_type); \
        int failed = real(fd, size); \
        if (!failed && recorder_file_of(fd)) recorder_write_down(TRUNCATE, recorder_file_of(fd), size, "", 0); \
        return failed; \
    }
CHANGE_SIZE(ftruncate, off_t)
CHANGE_SIZE(ftruncate64, off64_t)

int recorder_sync_of(uint64_t file) {
    uint64_t number = ((uint64_t)getpid() << 32) | __atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST);
    recorder_look_at_memory_of(file);
    recorder_write_down(SYNC_BEGIN, file, number, "", 0);
    recorder_write_down(SYNC_END, file, number, "", 0);
    return 0;
}

static int synced(int fd, int (*real)(int)) { return recorder_file_of(fd) ? recorder_sync_of(recorder_file_of(fd)) : real(fd); }

#define SYNC(symbol) \
    int symbol(int fd) { \
        REAL(int, #symbol, int); \
        return synced(fd, real); \
    }
SYNC(fsync)
SYNC(fdatasync)

#define FOPEN(symbol) \
    FILE *symbol(const char *path, const char *mode) { \
        REAL(FILE *, #symbol, const char *, const char *); \
        FILE *file = real(path, mode); \
        if (file) opened(fileno(file), path, *mode == 'w' ? O_TRUNC : 0); \
        return file; \
    }
FOPEN(fopen)
FOPEN(fopen64)

int fclose(FILE *file) {
    REAL(int, "fclose", FILE *);
    int fd = fileno(file);
    if (fd >= 0 && fd < FILES) watched[fd] = 0; /* before another thread opens it again */
    return real(file);
}

int closedir(DIR *folder_) {
    REAL(int, "closedir", DIR *);
    int fd = dirfd(folder_);
    if (fd >= 0 && fd < FILES) watched[fd] = 0; /* it may be a socket's next */
    return real(folder_);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    uint64_t file = recorder_file_of(fd);
    ssize_t done = real(fd, parts, count);
    if (done <= 0 || !file) return done;
    off_t offset = lseek(fd, 0, SEEK_CUR) - done;
    ssize_t left = done;
    for (int i = 0; i < count && left > 0; i++) {
        ssize_t length = (ssize_t)parts[i].iov_len < left ? (ssize_t)parts[i].iov_len : left;
        recorder_write_down(WRITE, file, offset, parts[i].iov_base, length);
        offset += length;
        left -= length;
    }
    return done;
}

static int grown(int fd, int failed) {
    struct stat status;
    if (!failed && recorder_file_of(fd) && !fstat(fd, &status)) recorder_write_down(TRUNCATE, recorder_file_of(fd), status.st_size, "", 0);
    return failed;
}

#define GROW(symbol, offset_type) \
    int symbol(int fd, int mode, offset_type offset, offset_type length) { \
        REAL(int, #symbol, int, int, offset_type, offset_type); \
        return grown(fd, real(fd, mode, offset, length)); \
    }
GROW(fallocate, off_t)
GROW(fallocate64, off64_t)

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    int failed = real(path);
    if (!failed && inside(path)) recorder_write_down(UNLINK, 0, 0, below(path), strlen(below(path)));
    return failed;
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    int failed = real(from, to);
    if (!failed && inside(from) && inside(to)) {
        char names[8192];
        int length = snprintf(names, sizeof names, "%s%c%s", below(from), 0, below(to));
        recorder_write_down(RENAME, 0, 0, names, length);
    }
    return failed;
}
