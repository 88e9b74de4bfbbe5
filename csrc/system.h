/* What the library asks of the operating system, and nothing else of csrc asks it: threads, aligned memory, clocks.
 * system.c has them for POSIX, for Windows, and for WebAssembly, which has one thread. */
#ifndef LAPIS_SYSTEM_H
#define LAPIS_SYSTEM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Aligned to a power of two of at least 64; release takes NULL too. Not `free`, which Windows would not forgive. */
void *system_allocate(size_t alignment, size_t bytes);
void system_release(void *memory);

/* As system_allocate, on large pages where the system has them: they save the translation of addresses. */
void *system_allocate_pages(size_t bytes);

typedef struct {
    void *handle;
} system_thread;

/* 1 if the thread runs, 0 if there is none to be had: then the caller does the work itself. */
int system_start(system_thread *thread, void *(*work)(void *), void *argument);
void system_join(system_thread thread);

/* Leave the processor to others. */
void system_yield(void);

/* Sleep while *word is `seen`, or only yield; who changes it calls system_wake. It may return early. */
void system_sleep(atomic_uint *word, unsigned seen);
void system_wake(atomic_uint *word);

/* Nanoseconds of a clock that only goes forward, and those that this thread has worked. */
int64_t system_clock(void);
int64_t system_thread_clock(void);

/* Nanoseconds between two ticks, at which the system takes threads off their cores. */
int64_t system_tick(void);

/* Tells a process from its forked children. */
long system_process(void);

#endif
