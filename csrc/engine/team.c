/* As in parallel.c, threads live only as long as a call: nothing is left to break in a forked child and nothing spins
 * while no image is at work. A whole network runs in one call, so starting them is lost in it. */
#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX()
#endif

/* Longer than the stages of two equally fast cores differ; then the processor is offered to others. */
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

void team_run(team_work work, void *job, int32_t threads) {
    call c = {.work = work, .job = job, .next = 1};
    pthread_t started[MAX_TEAM];
    int32_t count = 0;
    if (threads > MAX_TEAM) threads = MAX_TEAM;
    while (count < threads - 1 && !pthread_create(&started[count], 0, start, &c)) count++;
    work(job, 0);
    for (int32_t i = 0; i < count; i++) pthread_join(started[i], 0);
}

void team_wait(int turn) {
    if (turn < SPINS)
        RELAX();
    else
        sched_yield();
}
