/* How many threads share the next run: as many as help.
 *
 * Beside other processes a thread may hold a piece while it has no core, and all others wait for it. Where threads wait
 * for a good part of a run, smaller teams are tried for a few runs, and larger ones from time to time later on; a size
 * is taken that proves faster. Without such waiting nothing is tried. Answers do not depend on it. */
#ifndef LAPIS_PACE_H
#define LAPIS_PACE_H

#include <stdint.h>

typedef struct {
    int32_t most, size; /* threads that there are, and that are used */
    int32_t trial;      /* the size on trial, or 0 */
    int32_t runs;       /* of the trial, or since the last one */
    int32_t patience;   /* runs until the next one */
    double usual, sum;  /* nanoseconds per image at that size, and summed over the trial */
} pace;

void pace_start(pace *p, int32_t threads);

/* The size of the next team. */
int32_t pace_size(const pace *p);

/* A run of a team of that size took so many nanoseconds per image, and its threads waited for that share of it. */
void pace_note(pace *p, double nanoseconds, double waited);

#endif
