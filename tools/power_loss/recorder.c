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
    folder = strdup(folder); /* servers write the names of their processes over the environment */
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

enum { LONGEST_PATH = 4096 };

/* The path below the folder; NULL when it is elsewhere. A relative one is below the working directory, as servers have it. */
static const char *below(const char *path, char *space) {
    if (log_file < 0 || !path) return NULL;
    int before = errno;
    if (*path != '/') {
        while (!strncmp(path, "./", 2)) path += 2;
        size_t used = getcwd(space, LONGEST_PATH) ? strlen(space) : 0;
        if (used && strcmp(path, ".")) snprintf(space + used, LONGEST_PATH - used, "/%s", path);
        path = used ? space : "";
    }
    errno = before;
    if (strncmp(path, folder, folder_length) || (path[folder_length] && path[folder_length] != '/')) return NULL;
    size_t length = strlen(path);
    if (length >= 4 && !strcmp(path + length - 4, "-shm")) return NULL; /* the shared memory need not last */
    return path[folder_length] ? path + folder_length + 1 : "";
}

uint64_t recorder_file_of(int fd) { return fd >= 0 && fd < FILES ? watched[fd] : 0; }

static int opened(int fd, const char *path, int flags) {
    struct stat status;
    char space[LONGEST_PATH];
    if (fd < 0 || fd >= FILES || log_file < 0) return fd;
    watched[fd] = 0;
    const char *name = below(path, space);
    if (!name || fstat(fd, &status)) return fd;
    watched[fd] = status.st_ino;
    recorder_write_down(NAME, status.st_ino, S_ISDIR(status.st_mode), name, strlen(name));
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

/* A stream is written by libc itself: what it wrote is read again at its end. */
static void write_down_all_of(int fd) {
    static int (*open_)(const char *, int, ...);
    char path[64], data[65536];
    if (!open_) open_ = dlsym(RTLD_NEXT, "open64");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int reading = open_(path, O_RDONLY | O_CLOEXEC);
    if (reading < 0) recorder_fail("a stream");
    recorder_write_down(TRUNCATE, watched[fd], 0, "", 0);
    off_t at = 0;
    for (ssize_t length; (length = pread(reading, data, sizeof data, at)) > 0; at += length)
        recorder_write_down(WRITE, watched[fd], at, data, length);
    close(reading);
}

int fclose(FILE *file) {
    REAL(int, "fclose", FILE *);
    int fd = fileno(file);
    if (recorder_file_of(fd) && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY) {
        fflush(file);
        write_down_all_of(fd);
    }
    if (fd >= 0 && fd < FILES) watched[fd] = 0; /* before another thread opens it again */
    return real(file);
}

int closedir(DIR *folder_) {
    REAL(int, "closedir", DIR *);
    int fd = dirfd(folder_);
    if (fd >= 0 && fd < FILES) watched[fd] = 0; /* it may be a socket's next */
    return real(folder_);
}

static void write_down_parts(uint64_t file, off_t offset, const struct iovec *parts, int count, ssize_t left) {
    for (int i = 0; i < count && left > 0; i++) {
        ssize_t length = (ssize_t)parts[i].iov_len < left ? (ssize_t)parts[i].iov_len : left;
        recorder_write_down(WRITE, file, offset, parts[i].iov_base, length);
        offset += length;
        left -= length;
    }
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    uint64_t file = recorder_file_of(fd);
    ssize_t done = real(fd, parts, count);
    if (done > 0 && file) write_down_parts(file, lseek(fd, 0, SEEK_CUR) - done, parts, count, done);
    return done;
}

#define PWRITEV(symbol, offset_type) \
    ssize_t symbol(int fd, const struct iovec *parts, int count, offset_type offset) { \
        REAL(ssize_t, #symbol, int, const struct iovec *, int, offset_type); \
        uint64_t file = recorder_file_of(fd); \
        ssize_t done = real(fd, parts, count, offset); \
        if (done > 0 && file) write_down_parts(file, offset, parts, count, done); \
        return done; \
    }
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

#define PWRITEV2(symbol, offset_type) \
    ssize_t symbol(int fd, const struct iovec *parts, int count, offset_type offset, int flags) { \
        REAL(ssize_t, #symbol, int, const struct iovec *, int, offset_type, int); \
        uint64_t file = recorder_file_of(fd); \
        ssize_t done = real(fd, parts, count, offset, flags); \
        if (done > 0 && file) write_down_parts(file, offset < 0 ? lseek(fd, 0, SEEK_CUR) - done : offset, parts, count, done); \
        return done; \
    }
PWRITEV2(pwritev2, off_t)
PWRITEV2(pwritev64v2, off64_t)

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

#define GROW_POSIX(symbol, offset_type) \
    int symbol(int fd, offset_type offset, offset_type length) { \
        REAL(int, #symbol, int, offset_type, offset_type); \
        return grown(fd, real(fd, offset, length)); \
    }
GROW_POSIX(posix_fallocate, off_t)
GROW_POSIX(posix_fallocate64, off64_t)

#define CHANGE_SIZE_OF(symbol, offset_type) \
    int symbol(const char *path, offset_type size) { \
        REAL(int, #symbol, const char *, offset_type); \
        struct stat status; \
        char space[LONGEST_PATH]; \
        int failed = real(path, size); \
        if (!failed && below(path, space) && !stat(path, &status)) recorder_write_down(TRUNCATE, status.st_ino, size, "", 0); \
        return failed; \
    }
CHANGE_SIZE_OF(truncate, off_t)
CHANGE_SIZE_OF(truncate64, off64_t)

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    char space[LONGEST_PATH];
    int failed = real(path);
    const char *name = failed ? NULL : below(path, space);
    if (name) recorder_write_down(UNLINK, 0, 0, name, strlen(name));
    return failed;
}

int link(const char *from, const char *to) {
    REAL(int, "link", const char *, const char *);
    struct stat status;
    char space[LONGEST_PATH];
    int failed = real(from, to);
    const char *name = failed ? NULL : below(to, space);
    if (name && stat(to, &status)) recorder_fail(to);
    if (name) recorder_write_down(LINK, status.st_ino, 0, name, strlen(name));
    return failed;
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    char space[2][LONGEST_PATH];
    int failed = real(from, to);
    const char *old = failed ? NULL : below(from, space[0]), *new = failed ? NULL : below(to, space[1]);
    if (old && new) {
        char names[2 * LONGEST_PATH];
        int length = snprintf(names, sizeof names, "%s%c%s", old, 0, new);
        recorder_write_down(RENAME, 0, 0, names, length);
    }
    return failed;
}
