/* What the parts of the recorder share; none of it is seen by the process that it is loaded into. */
#ifndef RECORDER_H
#define RECORDER_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

enum { NAME = 1, WRITE, TRUNCATE, SYNC_BEGIN, SYNC_END, UNLINK, RENAME, LINK };

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = dlsym(RTLD_NEXT, name)

#pragma GCC visibility push(hidden)
void recorder_fail(const char *what);
void recorder_write_down(uint32_t what, uint64_t file, uint64_t value, const void *data, size_t length);
uint64_t recorder_file_of(int fd); /* 0 when it is not in the folder */
int recorder_sync_of(uint64_t file);
void recorder_look_at_memory_of(uint64_t file);
#pragma GCC visibility pop
#endif
