#include "pace.h"

/* Runs of a trial; runs until the first and between later ones; the share of a run that threads may wait without one.
 */
enum { TRIAL = 4, SOON = 4, LATER = 64 };
static const double WAITED = 0.2;
/* Noise decides nothing: a size on trial must be faster by this factor. */
static const double FASTER = 0.95;

void pace_start(pace *p, int32_t threads) { *p = (pace){.most = threads, .size = threads, .patience = SOON}; }

int32_t pace_size(const pace *p) { return p->trial ? p->trial : p->size; }

static void begin_trial(pace *p, int32_t size) { p->trial = size, p->runs = 0, p->sum = 0; }

static void end_trial(pace *p) {
    const double tried = p->sum / TRIAL;
    const int better = tried < p->usual * FASTER;
    if (better) p->size = p->trial, p->usual = tried;
    /* One step that helped may be followed by another; after one that did not it is left alone for a while. */
    p->patience = better ? SOON : LATER;
    p->trial = p->runs = 0;
}

void pace_note(pace *p, double nanoseconds, double waited) {
    p->runs++;
    if (p->trial) {
        p->sum += nanoseconds;
        if (p->runs == TRIAL) end_trial(p);
        return;
    }
    p->usual = p->usual > 0 ? (7 * p->usual + nanoseconds) / 8 : nanoseconds;
    if (p->runs < p->patience) return;
    if (p->size > 1 && waited > WAITED)
        begin_trial(p, p->size - 1);
    else if (p->size < p->most && p->runs >= LATER)
        begin_trial(p, p->size + 1);
}
