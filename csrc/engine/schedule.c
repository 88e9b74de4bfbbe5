/* Which thread does what in a run.
 *
 * Images travel in units of about as many tokens as the second-level cache holds. A thread takes whole units while
 * there are enough of them; the rest are shared by all threads, stage by stage and cut into pieces. */
#include "state.h"
#include "team.h"

/* Whoever is free takes the next piece of the stage at hand: a thread that comes late keeps nobody waiting, but for a
 * piece that it has begun. */
static void share_units(run *job, int32_t member) {
    const int64_t stages = stages_of(job->e), pieces = job->e->threads, all = (job->units - job->solo) * stages;
    int64_t opened = -1;
    part w = {0};
    for (int turn = 0;;) {
        uint64_t seen = atomic_load(&job->claim);
        int64_t stage = (int64_t)(seen >> 32), piece = (int64_t)(seen & UINT32_MAX), unit = job->solo + stage / stages;
        if (stage == all) return;
        if (piece == pieces) {
            team_wait(turn++);
            continue;
        }
        if (!atomic_compare_exchange_strong(&job->claim, &seen, seen + 1)) continue;
        turn = 0;
        if (unit != opened) w = part_of(job, member, 0, opened = unit, pieces);
        run_stage(&w, stage % stages, piece);
        if (atomic_fetch_add(&job->pieces_done, 1) < pieces - 1) continue;
        atomic_store(&job->pieces_done, 0);
        atomic_store(&job->claim, (uint64_t)(stage + 1) << 32);
    }
}

static void run_member(void *argument, int32_t member) {
    run *job = argument;
    for (int64_t unit; (unit = atomic_fetch_add(&job->next, 1)) < job->solo;) {
        part w = part_of(job, member, member, unit, 1);
        for (int64_t stage = 0; stage < stages_of(job->e); stage++) run_stage(&w, stage, 0);
        atomic_fetch_add(&job->finished, 1);
    }
    if (job->solo == job->units) return;
    /* Shared units lie where the first thread's solo ones did. */
    for (int turn = 0; atomic_load(&job->finished) < job->solo; turn++) team_wait(turn);
    share_units(job, member);
}

int32_t lapis_engine_run(lapis_engine *engine, const uint8_t *images, int64_t batch, int64_t *scores,
                         int8_t *const *trace, int64_t *nanoseconds) {
    if (!engine || !images || !scores || batch < 1) return LAPIS_BAD_ARGUMENT;
    lapis_engine *e = engine;
    int64_t units = (batch + e->unit_images - 1) / e->unit_images;
    int64_t even = (batch + units - 1) / units;
    run job = {.e = e,
               .images = images,
               .batch = batch,
               .images_per_unit = even,
               .units = (batch + even - 1) / even,
               .scores = scores,
               .nanoseconds = nanoseconds,
               .trace = trace};
    job.solo = job.units / e->threads * e->threads;
    team_run(run_member, &job, e->threads);
    return atomic_load(&job.status);
}
