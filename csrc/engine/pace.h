/* How many threads share the next run: as many as help.
 *
 * Starting a thread and meeting others at every stage can take longer than a small image. Where threads wait for a good
 * part of a run, a smaller team is tried in turns with the usual one, and a larger one from time to time later on; a
 * size is taken that proves faster. Without such waiting nothing is tried. Answers do not depend on it. */
#ifndef LAPIS_PACE_H
#define LAPIS_PACE_H

#include <stdint.h>

typedef struct {
    int32_t most, size; /* threads that there are, and that are used */
    int32_t trial;      /* the size on trial, or 0 */
    int32_t runs;       /* of the trial, or since the last one */
    int32_t patience;   /* runs until the next one */
    int32_t later;      /* runs until a larger team is tried */
    double sums[2];     /* nanoseconds per image over the trial, at the size that is used and at the one on trial */
} pace;

void pace_start(pace *p, int32_t threads);

/* The size of the next team. */
int32_t pace_size(const pace *p);

/* A run of a team of that size took so many nanoseconds per image, and its threads waited for that share of it. */
void pace_note(pace *p, double nanoseconds, double waited);

#endif
