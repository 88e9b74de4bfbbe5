/* Threads for the length of one call. */
#ifndef LAPIS_TEAM_H
#define LAPIS_TEAM_H

#include <stdint.h>

enum { MAX_TEAM = 256 };

/* `member` runs from 0, the caller, to below the threads that could be had. */
typedef void (*team_work)(void *job, int32_t member);

void team_run(team_work work, void *job, int32_t threads);

/* One turn of waiting for others; `turn` counts them. */
void team_wait(int turn);

#endif
