#define _GNU_SOURCE /* syscall, madvise, the cores of a thread */
#include "system.h"

#include <stdlib.h>
#include <time.h>

#if defined(_WIN32) || defined(__wasm__)
int system_is_special(const char *path) {
    (void)path;
    return 0;
}
#else
#include <fcntl.h>
#include <unistd.h>

/* What has no end to seek is a pipe or a terminal. stat would ask for a newer glibc than wheels may. */
int system_is_special(const char *path) {
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return 0;
    int special = lseek(file, 0, SEEK_END) < 0;
    close(file);
    return special;
}
#endif

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <malloc.h>
#include <windows.h>

void *system_allocate(size_t alignment, size_t bytes) { return _aligned_malloc(bytes, alignment); }
void system_release(void *memory) { _aligned_free(memory); }
void *system_allocate_pages(size_t bytes) { return system_allocate(4096, bytes); }

typedef struct {
    void *(*work)(void *);
    void *argument;
} call;

static DWORD WINAPI run_call(void *argument) {
    call c = *(call *)argument;
    free(argument);
    c.work(c.argument);
    return 0;
}

int system_start(system_thread *thread, void *(*work)(void *), void *argument) {
    call *c = malloc(sizeof *c);
    if (!c) return 0;
    *c = (call){work, argument};
    thread->handle = CreateThread(NULL, 0, run_call, c, 0, NULL);
    if (!thread->handle) free(c);
    return thread->handle != NULL;
}

void system_join(system_thread thread) {
    WaitForSingleObject(thread.handle, INFINITE);
    CloseHandle(thread.handle);
}

system_thread system_self(void) { return (system_thread){NULL}; }
long system_process(void) { return (long)GetCurrentProcessId(); }

int64_t system_clock(void) {
    LARGE_INTEGER count, per_second;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&per_second);
    const int64_t whole = count.QuadPart / per_second.QuadPart, rest = count.QuadPart % per_second.QuadPart;
    return whole * INT64_C(1000000000) + rest * INT64_C(1000000000) / per_second.QuadPart;
}

/* The time that Windows charges to a thread moves once in 15 ms, too coarse for a stage. */
int64_t system_thread_clock(void) { return system_clock(); }
#else
#include <sched.h>
#include <unistd.h>

static int64_t nanoseconds(struct timespec t) { return t.tv_sec * INT64_C(1000000000) + t.tv_nsec; }

static int64_t read_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return nanoseconds(t);
}

void *system_allocate(size_t alignment, size_t bytes) {
    void *memory = NULL;
    return posix_memalign(&memory, alignment, bytes) ? NULL : memory;
}

void system_release(void *memory) { free(memory); }
int64_t system_clock(void) { return read_clock(CLOCK_MONOTONIC); }

#if defined(__wasm__)
void *system_allocate_pages(size_t bytes) { return system_allocate(64, bytes); }

int system_start(system_thread *thread, void *(*work)(void *), void *argument) {
    (void)thread, (void)work, (void)argument;
    return 0;
}

void system_join(system_thread thread) { (void)thread; }
system_thread system_self(void) { return (system_thread){NULL}; }
int64_t system_thread_clock(void) { return system_clock(); }
long system_process(void) { return 1; }
#else
#include <pthread.h>
#include <sys/mman.h>

void *system_allocate_pages(size_t bytes) {
#if defined(MADV_HUGEPAGE)
    enum { LARGE_PAGE = 2 << 20 };
    if (bytes >= LARGE_PAGE) {
        void *memory = system_allocate(LARGE_PAGE, bytes);
        if (memory) madvise(memory, bytes, MADV_HUGEPAGE);
        return memory;
    }
#endif
    return system_allocate(4096, bytes);
}

_Static_assert(sizeof(pthread_t) <= sizeof(void *), "a thread's name fits a pointer");

int system_start(system_thread *thread, void *(*work)(void *), void *argument) {
    pthread_t started;
    if (pthread_create(&started, NULL, work, argument)) return 0;
    thread->handle = (void *)started;
    return 1;
}

void system_join(system_thread thread) { pthread_join((pthread_t)thread.handle, NULL); }
system_thread system_self(void) { return (system_thread){(void *)pthread_self()}; }
int64_t system_thread_clock(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }
long system_process(void) { return (long)getpid(); }
#endif
#endif

#if defined(__linux__)
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>

_Static_assert(sizeof(atomic_uint) == 4, "a futex is a word of 32 bits");

void system_sleep(atomic_uint *word, unsigned seen, int64_t longest) {
    const struct timespec limit = {.tv_nsec = (long)longest};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &limit, 0, 0);
}

void system_wake(atomic_uint *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, 0, 0, 0); }

/* The clock of the time that a thread has had a core. */
static clockid_t clock_of(system_thread thread) {
    clockid_t clock;
    return pthread_getcpuclockid((pthread_t)thread.handle, &clock) ? CLOCK_MONOTONIC : clock;
}

/* The kernel's number of a thread, which the number of its clock contains. */
static pid_t number_of(system_thread thread) { return ~(clock_of(thread) >> 3); }

int system_is_preempted(system_thread thread) {
    enum { MOMENT = 1000 };
    const clockid_t clock = clock_of(thread);
    const int64_t before = read_clock(clock), begin = system_clock();
    while (system_clock() - begin < MOMENT) continue;
    return read_clock(clock) == before;
}

_Static_assert(sizeof(cpu_mask) == sizeof(cpu_set_t), "a set of cores");

static cpu_set_t set_of(const cpu_mask *cores) {
    cpu_set_t set;
    memcpy(&set, cores, sizeof set);
    return set;
}

cpu_mask system_affinity(void) {
    cpu_mask cores = {0};
    cpu_set_t set;
    /* It fails on machines with more cores than a set has. */
    if (!sched_getaffinity(0, sizeof set, &set)) memcpy(&cores, &set, sizeof cores);
    return cores;
}

static void move(system_thread thread, cpu_set_t to, cpu_set_t usable) {
    const pid_t number = number_of(thread);
    if (!sched_setaffinity(number, sizeof to, &to)) sched_setaffinity(number, sizeof usable, &usable);
}

void system_migrate_here(system_thread thread, const cpu_mask *usable) {
    const cpu_set_t all = set_of(usable);
    const int core = sched_getcpu();
    if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &all)) return;
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(core, &here);
    move(thread, here, all);
}

void system_migrate_away(system_thread thread, const cpu_mask *usable) {
    cpu_set_t others = set_of(usable);
    const int core = sched_getcpu();
    if (core < 0 || core >= CPU_SETSIZE) return;
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others)) move(thread, others, set_of(usable));
}
#else
void system_sleep(atomic_uint *word, unsigned seen, int64_t longest) {
    (void)word, (void)seen, (void)longest;
#if defined(_WIN32)
    SwitchToThread();
#else
    sched_yield();
#endif
}

int system_is_preempted(system_thread thread) {
    (void)thread;
    return 0;
}

cpu_mask system_affinity(void) { return (cpu_mask){0}; }
void system_migrate_here(system_thread thread, const cpu_mask *usable) { (void)thread, (void)usable; }
void system_migrate_away(system_thread thread, const cpu_mask *usable) { (void)thread, (void)usable; }
void system_wake(atomic_uint *word) { (void)word; }
#endif
