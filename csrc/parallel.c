/* Where the process has an OpenMP runtime (torch's), work runs on its threads: they spin after torch's own work, and
 * others would wait for them. Else threads live only as long as a call: nothing is left to break in a forked child, and
 * callers on several Python threads do not queue for one pool. Starting one costs some 20 microseconds, which the entry
 * points weigh before they ask for it. */
#include "parallel.h"

#include <stdatomic.h>

#include "library.h"
#include "system.h"

enum { MAX_THREADS = 256 };

/* A buffer above this is given back to the system at once. */
static const size_t KEEP_AT_MOST = (size_t)32 << 20;

/* One buffer is kept, because fresh pages cost more than small calls do. Header: its size, on a cache line. */
static _Atomic(unsigned char *) kept;

static unsigned char *take(size_t bytes) {
    unsigned char *buffer = atomic_exchange(&kept, NULL);
    if (buffer && *(size_t *)buffer >= bytes) return buffer;
    system_release(buffer);
    unsigned char *fresh = system_allocate(64, bytes + 64);
    if (fresh) *(size_t *)fresh = bytes;
    return fresh;
}

static void give_back(unsigned char *buffer) {
    if (*(size_t *)buffer <= KEEP_AT_MOST) buffer = atomic_exchange(&kept, buffer);
    system_release(buffer);
}

static _Atomic(lapis_runner) shared_runner;
static atomic_long runner_process;

int32_t lapis_use_runner(lapis_runner runner) {
    atomic_store(&runner_process, system_process());
    atomic_store(&shared_runner, runner);
    return LAPIS_OK;
}

/* The runtime's threads do not exist in a forked child, which would wait for them for ever. */
static lapis_runner usable_runner(void) {
    lapis_runner runner = atomic_load(&shared_runner);
    return runner && atomic_load(&runner_process) == system_process() ? runner : NULL;
}

typedef struct {
    parallel_task run;
    const void *call;
    int64_t tasks;
    size_t scratch;
    unsigned char *memory;
    atomic_int_fast64_t next;
    atomic_int status, workers;
} job;

static void *work(void *argument) {
    job *j = argument;
    unsigned char *scratch = j->memory + j->scratch * (size_t)atomic_fetch_add(&j->workers, 1);
    for (;;) {
        int64_t task = atomic_fetch_add(&j->next, 1);
        if (task >= j->tasks || atomic_load(&j->status)) return NULL;
        int status = j->run(j->call, task, scratch), none = LAPIS_OK;
        if (status) atomic_compare_exchange_strong(&j->status, &none, status);
    }
}

static void work_shared(void *argument) { work(argument); }

int parallel_for(parallel_task run, const void *call, int64_t tasks, int32_t threads, size_t scratch) {
    if (tasks < 1) return LAPIS_OK;
    if (threads > tasks) threads = (int32_t)tasks;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads < 1) threads = 1;
    /* A page apart, so that two threads' scratch never meets in a cache line or a prefetched page. */
    scratch = (scratch + 4095) / 4096 * 4096;
    unsigned char *buffer = take(scratch * (size_t)threads);
    if (!buffer) return LAPIS_OUT_OF_MEMORY;
    job j = {.run = run, .call = call, .tasks = tasks, .scratch = scratch, .memory = buffer + 64};
    lapis_runner runner = threads > 1 ? usable_runner() : NULL;
    if (runner) {
        runner(work_shared, &j, (unsigned)threads, 0);
        give_back(buffer);
        return atomic_load(&j.status);
    }
    system_thread started[MAX_THREADS];
    int32_t count = 0;
    /* A thread that cannot start is no error: the others take its share. */
    while (count < threads - 1 && system_start(&started[count], work, &j)) count++;
    work(&j);
    for (int32_t i = 0; i < count; i++) system_join(started[i]);
    give_back(buffer);
    return atomic_load(&j.status);
}
