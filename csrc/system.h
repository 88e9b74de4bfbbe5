/* What the library asks of the operating system, and nothing else of csrc asks it: threads, aligned memory, clocks,
 * kinds of files. system.c has them for POSIX, for Windows, and for WebAssembly, which has one thread. */
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

/* The calling thread, and the cores that it may use. On systems that do not tell there are none, and nothing moves. */
typedef struct {
    uint64_t words[16];
} cpu_mask;
system_thread system_self(void);
cpu_mask system_affinity(void);

/* Move a thread to the core of the caller, where it runs as soon as the caller sleeps, or off that core, to another of
 * `usable`. Then it may use all of `usable` again: it must be what the thread could use before. */
void system_migrate_here(system_thread thread, const cpu_mask *usable);
void system_migrate_away(system_thread thread, const cpu_mask *usable);

/* Whether a thread has no core at the moment, which takes a microsecond to see. */
int system_is_preempted(system_thread thread);

/* Sleep while *word is `seen`, but for at most so many nanoseconds (below a second), or only yield; who changes it
 * calls system_wake. It may return early. */
void system_sleep(atomic_uint *word, unsigned seen, int64_t longest);
void system_wake(atomic_uint *word);

/* Nanoseconds of a clock that only goes forward, and those that this thread has worked. */
int64_t system_clock(void);
int64_t system_thread_clock(void);

/* Whether a path names something to wait for or without an end, as a pipe or a device; a folder is no such thing, and a
 * path that names nothing is not. */
int system_is_special(const char *path);

/* Tells a process from its forked children. */
long system_process(void);

#endif
