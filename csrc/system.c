#define _DEFAULT_SOURCE /* syscall, madvise */
#include "system.h"

#include <stdlib.h>
#include <time.h>

/* 1000 Hz, where the system does not say. */
static const int64_t USUAL_TICK = 1000000;

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

void system_yield(void) { SwitchToThread(); }
long system_process(void) { return (long)GetCurrentProcessId(); }
int64_t system_tick(void) { return USUAL_TICK; }

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
void system_yield(void) { sched_yield(); }
int64_t system_clock(void) { return read_clock(CLOCK_MONOTONIC); }

int64_t system_tick(void) {
#if defined(CLOCK_MONOTONIC_COARSE)
    struct timespec tick;
    if (!clock_getres(CLOCK_MONOTONIC_COARSE, &tick)) return nanoseconds(tick);
#endif
    return USUAL_TICK;
}

#if defined(__wasm__)
void *system_allocate_pages(size_t bytes) { return system_allocate(64, bytes); }

int system_start(system_thread *thread, void *(*work)(void *), void *argument) {
    (void)thread, (void)work, (void)argument;
    return 0;
}

void system_join(system_thread thread) { (void)thread; }
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
int64_t system_thread_clock(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }
long system_process(void) { return (long)getpid(); }
#endif
#endif

#if defined(__linux__)
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>

_Static_assert(sizeof(atomic_uint) == 4, "a futex is a word of 32 bits");

void system_sleep(atomic_uint *word, unsigned seen) { syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, 0, 0, 0); }
void system_wake(atomic_uint *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, 0, 0, 0); }
#else
void system_sleep(atomic_uint *word, unsigned seen) {
    (void)word, (void)seen;
    system_yield();
}

void system_wake(atomic_uint *word) { (void)word; }
#endif
