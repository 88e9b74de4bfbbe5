/* As in parallel.c, threads live only as long as a call: nothing is left to break in a forked child and nothing spins
 * while no image is at work. A whole network runs in one call, so starting them is lost in it. */
#include "team.h"

#include "../system.h"

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX()
#endif

/* Longer than the stages of two equally fast cores differ. Who still waits has lost a core to another process: a thread
 * that sleeps leaves its own to the thread that it waits for, and is preferred when it wakes. */
enum { SPINS = 4000 };

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
    system_thread started[MAX_TEAM];
    int32_t count = 0;
    if (threads > MAX_TEAM) threads = MAX_TEAM;
    while (count < threads - 1 && system_start(&started[count], start, &c)) count++;
    work(job, 0);
    const int64_t begin = system_clock();
    for (int32_t i = 0; i < count; i++) system_join(started[i]);
    return system_clock() - begin;
}

int64_t team_wait(team_gate *gate, unsigned seen) {
    for (int turn = 0; turn < SPINS; turn++) {
        if (atomic_load(&gate->changes) != seen) return 0;
        RELAX();
    }
    const int64_t begin = system_clock();
    /* Counted before the kernel compares the changes: either it sees a new one, or who makes it sees the sleeper. */
    atomic_fetch_add(&gate->asleep, 1);
    while (atomic_load(&gate->changes) == seen) system_sleep(&gate->changes, seen);
    atomic_fetch_sub(&gate->asleep, 1);
    return system_clock() - begin;
}

void team_notify(team_gate *gate) {
    atomic_fetch_add(&gate->changes, 1);
    if (atomic_load(&gate->asleep)) system_wake(&gate->changes);
}

/* Three quarters of the system's tick: a thread is put on its core at a tick or when it wakes, and is taken off at a
 * later tick. */
static int64_t longest_burst(void) { return system_tick() * 3 / 4; }

team_shift team_begin(void) { return (team_shift){system_clock(), longest_burst()}; }

void team_give_way(team_shift *shift, int rested) {
    const int64_t now = system_clock();
    if (rested) shift->since = now;
    if (now - shift->since < shift->longest) return;
    system_yield();
    shift->since = system_clock();
}
