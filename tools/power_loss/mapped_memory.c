/* Files that are written through mapped memory. What changed is found by comparing it with what was there before: when it is
   synced, when it is unmapped, and every few milliseconds in between, as the system may write it back at any time. */
#include "recorder.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAPPINGS = 256, SECTOR = 512, PAUSE_MICROSECONDS = 5000 };

/* Memory that is a file. */
struct mapping {
    const char *memory;
    size_t length;
    uint64_t file, offset;
    char *before; /* what was written down of it */
};

static struct mapping mappings[MAPPINGS];
static pthread_mutex_t mapping_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t sector_at(const struct mapping *of, size_t at) { return of->length - at < SECTOR ? of->length - at : SECTOR; }

static void look(struct mapping *of) {
    for (size_t at = 0, from; at < of->length; at += SECTOR) {
        for (from = at; at < of->length && memcmp(of->before + at, of->memory + at, sector_at(of, at)); at += SECTOR)
            memcpy(of->before + at, of->memory + at, sector_at(of, at));
        size_t end = at < of->length ? at : of->length;
        if (end > from) recorder_write_down(WRITE, of->file, of->offset + from, of->before + from, end - from);
    }
}

void recorder_look_at_memory_of(uint64_t file) {
    pthread_mutex_lock(&mapping_lock);
    for (int i = 0; i < MAPPINGS; i++)
        if (mappings[i].memory && mappings[i].file == file) look(&mappings[i]);
    pthread_mutex_unlock(&mapping_lock);
}

static void *look_now_and_then(void *nothing) {
    for (;; usleep(PAUSE_MICROSECONDS)) {
        pthread_mutex_lock(&mapping_lock);
        for (int i = 0; i < MAPPINGS; i++)
            if (mappings[i].memory) look(&mappings[i]);
        pthread_mutex_unlock(&mapping_lock);
    }
    return nothing;
}

static struct mapping *mapping_of(const void *memory) {
    for (int i = 0; i < MAPPINGS; i++)
        if (mappings[i].memory <= (const char *)memory && (const char *)memory < mappings[i].memory + mappings[i].length)
            return &mappings[i];
    return NULL;
}

static void *mapped(void *memory, size_t length, int protection, int flags, int fd, uint64_t offset) {
    static pthread_t looks;
    if (memory == MAP_FAILED || !recorder_file_of(fd) || !(protection & PROT_WRITE) || !(flags & MAP_SHARED)) return memory;
    pthread_mutex_lock(&mapping_lock);
    int free_place = 0;
    while (free_place < MAPPINGS && mappings[free_place].memory) free_place++;
    char *before = malloc(length);
    if (free_place == MAPPINGS || !before) recorder_fail("too much mapped memory");
    memcpy(before, memory, length);
    mappings[free_place] = (struct mapping){memory, length, recorder_file_of(fd), offset, before};
    if (!looks && pthread_create(&looks, NULL, look_now_and_then, NULL)) recorder_fail("a thread");
    pthread_mutex_unlock(&mapping_lock);
    return memory;
}

#define MAP(symbol, offset_type) \
    void *symbol(void *at, size_t length, int protection, int flags, int fd, offset_type offset) { \
        REAL(void *, #symbol, void *, size_t, int, int, int, offset_type); \
        return mapped(real(at, length, protection, flags, fd, offset), length, protection, flags, fd, offset); \
    }
MAP(mmap, off_t)
MAP(mmap64, off64_t)

int munmap(void *memory, size_t length) {
    REAL(int, "munmap", void *, size_t);
    pthread_mutex_lock(&mapping_lock);
    struct mapping *of = mapping_of(memory);
    if (of) {
        look(of);
        free(of->before);
        *of = (struct mapping){0};
    }
    pthread_mutex_unlock(&mapping_lock);
    return real(memory, length);
}

int msync(void *memory, size_t length, int flags) {
    REAL(int, "msync", void *, size_t, int);
    pthread_mutex_lock(&mapping_lock);
    struct mapping *of = mapping_of(memory);
    uint64_t file = of ? of->file : 0;
    pthread_mutex_unlock(&mapping_lock);
    return file && flags & MS_SYNC ? recorder_sync_of(file) : real(memory, length, flags);
}
