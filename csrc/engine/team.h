/* Threads for the length of one call, and how they wait for each other. */
#ifndef LAPIS_TEAM_H
#define LAPIS_TEAM_H

#include <stdatomic.h>
#include <stdint.h>

enum { MAX_TEAM = 256 };

/* `member` runs from 0, the caller, to below the threads that could be had. */
typedef void (*team_work)(void *job, int32_t member);

/* Returns the nanoseconds that the caller waited for the others to end: one that was never given a core must still
 * come. */
int64_t team_run(team_work work, void *job, int32_t threads);

/* What members wait at: it counts changes, of whatever they wait for. */
typedef struct {
    atomic_uint changes;
    atomic_int asleep;
} team_gate;

/* Wait until there were more changes than `seen`, which was read before the state that is waited for. Spins for a
 * moment, then sleeps; returns the nanoseconds that it slept. */
int64_t team_wait(team_gate *gate, unsigned seen);

/* Count a change, after it was made, and wake those who sleep. */
void team_notify(team_gate *gate);

/* How long a member has worked without a rest. */
typedef struct {
    int64_t since, longest;
} team_shift;

team_shift team_begin(void);

/* Let others have the processor if this member has worked for long: it would soon be interrupted in the middle of a
 * piece, and the rest of the team would wait for that piece. `rested`: it has just slept. */
void team_give_way(team_shift *shift, int rested);

#endif
