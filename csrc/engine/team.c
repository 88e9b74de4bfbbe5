/* As in parallel.c, threads live only as long as a call: nothing is left to break in a forked child and nothing spins
 * while no image is at work. A whole network runs in one call, so starting them is lost in it. */
#include "team.h"

#include <stddef.h>

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX()
#endif

/* Longer than the stages of two equally fast cores differ; and how often a thread that waits looks for the one that it
 * waits for, while it spins and while it sleeps. */
enum { SPINS = 4000, SPINS_BETWEEN_LOOKS = 500, SLEEP_BETWEEN_LOOKS = 250000 };

static system_thread thread_of(team_member *m) { return (system_thread){atomic_load(&m->thread)}; }

/* A member that still works and has lost its core to another process gets the core of one that waits and is about to
 * sleep; the system would leave both as they are until its next tick. One is looked at, the next after `looked`. */
static team_member *lend_core(team *t, int32_t *looked) {
    for (int32_t i = 0; i < t->size; i++) {
        *looked = (*looked + 1) % t->size;
        team_member *other = &t->members[*looked];
        if (!thread_of(other).handle || atomic_load(&other->state) == RESTING) continue;
        if (!system_waits(thread_of(other))) return NULL;
        atomic_store(&other->is_migrated, 1);
        system_bring(thread_of(other), &t->cores);
        return other;
    }
    return NULL;
}

/* Afterwards it goes to another core again. There it may have to wait, but with no piece in hand. */
static void part_from(team *t, team_member *guest) {
    if (atomic_load(&guest->state) == FREE && atomic_exchange(&guest->is_migrated, 0))
        system_send_off(thread_of(guest), &t->cores);
}

static int64_t sleep_until_changed(team *t, unsigned seen, int32_t looked, team_member **guest) {
    const int64_t begin = system_clock();
    /* Counted before the kernel compares the changes: either it sees a new one, or who makes it sees the sleeper. */
    atomic_fetch_add(&t->asleep, 1);
    while (atomic_load(&t->changes) == seen) {
        system_sleep(&t->changes, seen, SLEEP_BETWEEN_LOOKS);
        team_member *another = atomic_load(&t->changes) == seen ? lend_core(t, &looked) : NULL;
        if (another) *guest = another;
    }
    atomic_fetch_sub(&t->asleep, 1);
    return system_clock() - begin;
}

int64_t team_wait(team *t, int32_t member, unsigned seen) {
    team_member *me = &t->members[member], *guest = NULL;
    int32_t looked = member;
    atomic_store(&me->state, RESTING);
    for (int turn = 1; turn <= SPINS && !guest && atomic_load(&t->changes) == seen; turn++) {
        RELAX();
        if (turn % SPINS_BETWEEN_LOOKS == 0) guest = lend_core(t, &looked);
    }
    const int64_t slept = atomic_load(&t->changes) == seen ? sleep_until_changed(t, seen, looked, &guest) : 0;
    atomic_store(&me->state, FREE);
    if (guest) part_from(t, guest);
    return slept;
}

void team_hold(team *t, int32_t member) { atomic_store(&t->members[member].state, HOLDING); }

void team_free(team *t, int32_t member) {
    atomic_store(&t->members[member].state, FREE);
    part_from(t, &t->members[member]);
}

void team_notify(team *t) {
    atomic_fetch_add(&t->changes, 1);
    if (atomic_load(&t->asleep)) system_wake(&t->changes);
}

static void *start(void *argument) {
    team_member *me = argument;
    team *t = me->of;
    t->work(t->job, (int32_t)(me - t->members));
    atomic_store(&me->state, RESTING);
    atomic_fetch_add(&t->left, 1);
    team_notify(t);
    return 0;
}

int64_t team_run(team *t, team_work work, void *job, int32_t threads) {
    system_thread started[MAX_TEAM];
    int32_t count = 0;
    int64_t slept = 0;
    t->work = work, t->job = job, t->size = threads < MAX_TEAM ? threads : MAX_TEAM;
    if (t->size > 1) t->cores = system_usable();
    atomic_store(&t->members[0].thread, system_self().handle);
    for (; count < t->size - 1; count++) {
        team_member *next = &t->members[count + 1];
        next->of = t;
        if (!system_start(&started[count], start, next)) break;
        atomic_store(&next->thread, started[count].handle);
    }
    work(job, 0);
    /* A thread is named for as long as it is not joined, so none is before all have left. */
    for (;;) {
        const unsigned changes = atomic_load(&t->changes);
        if (atomic_load(&t->left) == count) break;
        slept += team_wait(t, 0, changes);
    }
    for (int32_t i = 0; i < count; i++) system_join(started[i]);
    return slept;
}
