/* As in parallel.c, threads live only as long as a call: nothing is left to break in a forked child and nothing spins
 * while no image is at work. A whole network runs in one call, so starting them is lost in it. */
#define _DEFAULT_SOURCE /* syscall */
#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX()
#endif

/* Longer than the stages of two equally fast cores differ. Who still waits has lost a core to another process: a thread
 * that sleeps leaves its own to the thread that it waits for, and is preferred when it wakes. */
enum { SPINS = 4000 };

static int64_t nanoseconds(struct timespec t) { return t.tv_sec * INT64_C(1000000000) + t.tv_nsec; }

int64_t team_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return nanoseconds(t);
}

typedef struct {
    team_work work;
    void *job;
    atomic_int next;
} call;

static void *start(void *argument) {
    call *c = argument;
    c->work(c->job, atomic_fetch_add(&c->next, 1));
    return 0;
}

int64_t team_run(team_work work, void *job, int32_t threads) {
    call c = {.work = work, .job = job, .next = 1};
    pthread_t started[MAX_TEAM];
    int32_t count = 0;
    if (threads > MAX_TEAM) threads = MAX_TEAM;
    while (count < threads - 1 && !pthread_create(&started[count], 0, start, &c)) count++;
    work(job, 0);
    const int64_t begin = team_clock();
    for (int32_t i = 0; i < count; i++) pthread_join(started[i], 0);
    return team_clock() - begin;
}

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(atomic_uint) == 4, "a futex is a word of 32 bits");

static void sleep_at(team_gate *gate, unsigned seen) {
    syscall(SYS_futex, &gate->changes, FUTEX_WAIT_PRIVATE, seen, 0, 0, 0);
}

static void wake_all(team_gate *gate) { syscall(SYS_futex, &gate->changes, FUTEX_WAKE_PRIVATE, MAX_TEAM, 0, 0, 0); }
#else
static void sleep_at(team_gate *gate, unsigned seen) {
    (void)gate, (void)seen;
    sched_yield();
}

static void wake_all(team_gate *gate) { (void)gate; }
#endif

int64_t team_wait(team_gate *gate, unsigned seen) {
    for (int turn = 0; turn < SPINS; turn++) {
        if (atomic_load(&gate->changes) != seen) return 0;
        RELAX();
    }
    const int64_t begin = team_clock();
    /* Counted before the kernel compares the changes: either it sees a new one, or who makes it sees the sleeper. */
    atomic_fetch_add(&gate->asleep, 1);
    while (atomic_load(&gate->changes) == seen) sleep_at(gate, seen);
    atomic_fetch_sub(&gate->asleep, 1);
    return team_clock() - begin;
}

void team_notify(team_gate *gate) {
    atomic_fetch_add(&gate->changes, 1);
    if (atomic_load(&gate->asleep)) wake_all(gate);
}

/* Three quarters of the system's tick: a thread is put on its core at a tick or when it wakes, and is taken off at a
 * later tick. */
static int64_t longest_burst(void) {
#if defined(CLOCK_MONOTONIC_COARSE)
    struct timespec tick;
    if (!clock_getres(CLOCK_MONOTONIC_COARSE, &tick)) return nanoseconds(tick) * 3 / 4;
#endif
    return INT64_C(1000000);
}

team_shift team_begin(void) { return (team_shift){team_clock(), longest_burst()}; }

void team_give_way(team_shift *shift, int rested) {
    const int64_t now = team_clock();
    if (rested) shift->since = now;
    if (now - shift->since < shift->longest) return;
    sched_yield();
    shift->since = team_clock();
}
