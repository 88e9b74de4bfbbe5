#include "pace.h"

/* Runs of a trial, half of them at either size, and of one that fails or is decided at once; runs until the first
 * trial, and the least and the most between later ones. */
enum { TRIAL = 16, SHORT_TRIAL = 4, SOON = 2, LATER = 64, LATEST = 1024 };
/* The share of a run that threads may wait before a smaller team is tried. */
static const double WAITED = 0.2;
/* Noise decides nothing: a size on trial must be faster by this factor. */
static const double FASTER = 0.95;
/* And by this one to be taken at once: beside a busy process each run of too large a team costs several others. */
static const double FAR_FASTER = 0.5;

void pace_start(pace *p, int32_t threads) {
    *p = (pace){.most = threads, .size = threads, .patience = SOON, .later = LATER};
}

/* Both sizes take turns, so that a machine that becomes busy is busy for both. */
static int trial_turn(const pace *p) { return p->trial && p->runs % 2; }

int32_t pace_size(const pace *p) { return trial_turn(p) ? p->trial : p->size; }

static void begin_trial(pace *p, int32_t size) { p->trial = size, p->runs = 0, p->sums[0] = p->sums[1] = 0; }

/* One step that helped may be followed by another; each that did not is tried more rarely. */
static void end_trial(pace *p) {
    const int better = p->sums[1] < p->sums[0] * FASTER;
    if (better) p->size = p->trial;
    p->later = better ? LATER : p->later < LATEST ? 2 * p->later : LATEST;
    p->patience = better ? SOON : p->later;
    p->trial = p->runs = 0;
}

void pace_note(pace *p, double nanoseconds, double waited) {
    if (p->trial) {
        p->sums[trial_turn(p)] += nanoseconds;
        p->runs++;
        const int decided = p->sums[1] > p->sums[0] || p->sums[1] < p->sums[0] * FAR_FASTER;
        if (p->runs == TRIAL || (p->runs == SHORT_TRIAL && decided)) end_trial(p);
        return;
    }
    if (++p->runs < p->patience) return;
    if (p->size > 1 && waited > WAITED)
        begin_trial(p, p->size - 1);
    else if (p->size < p->most && p->runs >= p->later)
        begin_trial(p, p->size + 1);
}
