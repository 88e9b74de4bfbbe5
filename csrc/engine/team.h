/* Threads that walk through one computation together and wait for each other between its stages. */
#ifndef LAPIS_TEAM_H
#define LAPIS_TEAM_H

#include <stdatomic.h>
#include <stdint.h>

enum { MAX_TEAM = 256 };

typedef struct {
    int32_t size;
    atomic_int arrived, round;
} team;

/* `member` runs from 0 to t->size - 1. */
typedef void (*team_work)(void *job, team *t, int32_t member);

/* Start up to `threads` threads for the length of the call; the team is as large as threads could be had. */
void team_run(team_work work, void *job, int32_t threads);

/* Wait until every member is here. */
void team_wait(team *t);

#endif
