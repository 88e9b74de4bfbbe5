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

/* Move a preempted member to the core of the caller, which waits. One member is looked at, the next after `looked`. */
static team_member *migrate_preempted(team *t, int32_t *looked) {
    for (int32_t i = 0; i < t->size; i++) {
        *looked = (*looked + 1) % t->size;
        team_member *other = &t->members[*looked];
        if (!thread_of(other).handle || atomic_load(&other->state) == WAITING) continue;
        if (!system_is_preempted(thread_of(other))) return NULL;
        atomic_store(&other->is_migrated, 1);
        system_migrate_here(thread_of(other), &t->cores);
        return other;
    }
    return NULL;
}

/* Move a member that ended its piece to another core again. There it may have to wait, but with no piece in hand. */
static void migrate_back(team *t, team_member *migrated) {
    if (atomic_load(&migrated->state) == READY && atomic_exchange(&migrated->is_migrated, 0))
        system_migrate_away(thread_of(migrated), &t->cores);
}

static int64_t sleep_until_changed(team *t, unsigned seen, int32_t looked, team_member **migrated) {
    const int64_t begin = system_clock();
    /* Counted before the kernel compares the changes: either it sees a new one, or who makes it sees the sleeper. */
    atomic_fetch_add(&t->asleep, 1);
    while (atomic_load(&t->changes) == seen) {
        system_sleep(&t->changes, seen, SLEEP_BETWEEN_LOOKS);
        team_member *another = atomic_load(&t->changes) == seen ? migrate_preempted(t, &looked) : NULL;
        if (another) *migrated = another;
    }
    atomic_fetch_sub(&t->asleep, 1);
    return system_clock() - begin;
}

int64_t team_wait(team *t, int32_t member, unsigned seen) {
    team_member *me = &t->members[member], *migrated = NULL;
    int32_t looked = member;
    atomic_store(&me->state, WAITING);
    for (int turn = 1; turn <= SPINS && !migrated && atomic_load(&t->changes) == seen; turn++) {
        RELAX();
        if (turn % SPINS_BETWEEN_LOOKS == 0) migrated = migrate_preempted(t, &looked);
    }
    const int64_t slept = atomic_load(&t->changes) == seen ? sleep_until_changed(t, seen, looked, &migrated) : 0;
    atomic_store(&me->state, READY);
    if (migrated) migrate_back(t, migrated);
    return slept;
}

void team_begin_piece(team *t, int32_t member) { atomic_store(&t->members[member].state, WORKING); }

void team_end_piece(team *t, int32_t member) {
    atomic_store(&t->members[member].state, READY);
    migrate_back(t, &t->members[member]);
}

void team_notify(team *t) {
    atomic_fetch_add(&t->changes, 1);
    if (atomic_load(&t->asleep)) system_wake(&t->changes);
}

static void *start(void *argument) {
    team_member *me = argument;
    team *t = me->of;
    t->work(t->job, (int32_t)(me - t->members));
    atomic_store(&me->state, WAITING);
    atomic_fetch_add(&t->left, 1);
    team_notify(t);
    return 0;
}

int64_t team_run(team *t, team_work work, void *job, int32_t threads) {
    system_thread started[MAX_TEAM];
    int32_t count = 0;
    int64_t slept = 0;
    t->work = work, t->job = job, t->size = threads < MAX_TEAM ? threads : MAX_TEAM;
    if (t->size > 1) t->cores = system_affinity();
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
