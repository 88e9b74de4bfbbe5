/* Which thread does what in a run.
 *
 * Images travel in units of about as many tokens as the second-level cache holds. A thread takes whole units while
 * there are enough of them; the rest are shared by all threads, stage by stage and cut into pieces. */
#include "../system.h"
#include "state.h"
#include "team.h"

/* Whoever is free takes the next piece of the stage at hand: a thread that comes late keeps nobody waiting, but for a
 * piece that it has begun. The claim is the stage and the next of its pieces, as many as there are members. */
static void share_units(engine_run *job, int32_t member) {
    const int64_t stages = stages_of(job->e), all = (job->units - job->solo) * stages;
    int64_t opened = -1;
    work_item w = {0};
    for (;;) {
        const unsigned changes = atomic_load(&job->team.changes);
        uint64_t seen = atomic_load(&job->claim);
        const int64_t stage = (int64_t)(seen >> 32), piece = (int64_t)(seen & UINT32_MAX);
        if (stage == all) return;
        if (piece == job->members) {
            atomic_fetch_add(&job->slept, team_wait(&job->team, member, changes));
            continue;
        }
        if (!atomic_compare_exchange_strong(&job->claim, &seen, seen + 1)) continue;
        const int64_t unit = job->solo + stage / stages;
        if (unit != opened) w = work_item_of(job, member, 0, opened = unit, job->members);
        team_begin_piece(&job->team, member);
        run_stage(&w, stage % stages, piece);
        if (atomic_fetch_add(&job->pieces_done, 1) == job->members - 1) {
            atomic_store(&job->pieces_done, 0);
            atomic_store(&job->claim, (uint64_t)(stage + 1) << 32);
            team_notify(&job->team);
        }
        team_end_piece(&job->team, member);
    }
}

static void run_member(void *argument, int32_t member) {
    engine_run *job = argument;
    for (int64_t unit; (unit = atomic_fetch_add(&job->next, 1)) < job->solo;) {
        work_item w = work_item_of(job, member, member, unit, 1);
        for (int64_t stage = 0; stage < stages_of(job->e); stage++) run_stage(&w, stage, 0);
        if (atomic_fetch_add(&job->finished, 1) == job->solo - 1) team_notify(&job->team);
    }
    if (job->solo == job->units) return;
    /* Shared units lie where the first thread's solo ones did. */
    for (;;) {
        const unsigned changes = atomic_load(&job->team.changes);
        if (atomic_load(&job->finished) == job->solo) break;
        team_wait(&job->team, member, changes);
    }
    share_units(job, member);
}

int32_t lapis_engine_run(lapis_engine *engine, const uint8_t *images, int64_t batch, int64_t *scores,
                         int8_t *const *trace, int64_t *nanoseconds) {
    if (!engine || !images || !scores || batch < 1) return LAPIS_BAD_ARGUMENT;
    lapis_engine *e = engine;
    int64_t units = (batch + e->unit_images - 1) / e->unit_images;
    int64_t even = (batch + units - 1) / units;
    engine_run job = {.e = e,
                      .images = images,
                      .batch = batch,
                      .images_per_unit = even,
                      .units = (batch + even - 1) / even,
                      .scores = scores,
                      .nanoseconds = nanoseconds,
                      .trace = trace};
    job.solo = job.units / e->threads * e->threads;
    /* A run that all threads share tells whether all of them help. */
    const int shared = e->threads > 1 && !job.solo;
    job.members = shared ? pace_size(&e->pace) : e->threads;
    const int64_t begin = system_clock(), worked = system_thread_clock();
    const int64_t joined = team_run(&job.team, run_member, &job, job.members);
    const double wall = (double)(system_clock() - begin), asleep = (double)(atomic_load(&job.slept) + joined);
    /* Where other processes want the cores too, the caller does not sleep and still does not run. */
    const double idle = wall - (double)(system_thread_clock() - worked);
    if (shared) pace_note(&e->pace, wall / (double)batch, (idle > asleep ? idle : asleep) / wall);
    return atomic_load(&job.status);
}
