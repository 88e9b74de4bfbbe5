/* Threads for the length of one call, and how they wait for each other. */
#ifndef LAPIS_TEAM_H
#define LAPIS_TEAM_H

#include <stdatomic.h>
#include <stdint.h>

#include "../system.h"

enum { MAX_TEAM = 256 };

/* `member` runs from 0, the caller, to below the threads that could be had. */
typedef void (*team_work)(void *job, int32_t member);

typedef struct team team;

/* What a member is doing. Others wait for one that is WORKING, and for nobody that is WAITING.
 *
 *                team_begin_piece                        no piece left: team_wait
 *        READY ------------------> WORKING       READY -----------------------> WAITING: spins, then sleeps
 *          ^   team_end_piece         |            ^        a change              |
 *          +--------------------------+            +------------------------------+
 *
 * Where another process has taken the core of a member (it is preempted), the system would leave it so until its next
 * tick, while others wait for its piece. So a WAITING member looks at the others one by one, and
 *
 *        preempted, not WAITING --> is_migrated: moved to the core of the one that waits, which soon sleeps
 *        is_migrated, READY     --> moved to any other core, by itself (team_end_piece) or by the one that waited for
 * it
 *
 * Both moves set the thread's affinity and then give it back all cores that it had. With a busy process beside it an
 * engine of two threads was 1.3 times as fast with them as without. */
enum { READY, WORKING, WAITING };

typedef struct {
    team *of;
    _Atomic(void *) thread; /* as system_thread names it; NULL before it is known */
    atomic_int state;
    atomic_int is_migrated; /* to the core of a member that waits */
} team_member;

struct team {
    team_work work;
    void *job;
    int32_t size;
    cpu_mask cores;      /* that members may use */
    atomic_uint changes; /* of whatever members wait for */
    atomic_int asleep, left;
    team_member members[MAX_TEAM];
};

/* Do the work in the caller and in `threads - 1` more threads, and return when all have left it: the nanoseconds that
 * the caller slept until then. */
int64_t team_run(team *t, team_work work, void *job, int32_t threads);

/* Say that a member begins a piece, or has ended it and told so. */
void team_begin_piece(team *t, int32_t member);
void team_end_piece(team *t, int32_t member);

/* Wait until there were more changes than `seen`, which was read before the state that is waited for. Spins for a
 * moment, then sleeps; returns the nanoseconds that it slept. */
int64_t team_wait(team *t, int32_t member, unsigned seen);

/* Count a change, after it was made, and wake those who sleep. */
void team_notify(team *t);

#endif
