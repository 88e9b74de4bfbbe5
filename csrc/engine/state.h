/* A packed network with its working memory, and one run of it. */
#ifndef LAPIS_ENGINE_STATE_H
#define LAPIS_ENGINE_STATE_H

#include <stdatomic.h>

#include "pace.h"
#include "pack.h"
#include "team.h"

/* Tokens of a unit, as many images as a thread takes at a time. Larger units are hardly faster, and divide a batch less
 * evenly where cores are busy: docs/native.md. */
enum { UNIT_ROWS = 256, PATCH_ROWS = 24, MAX_UNIT = 16 };

typedef struct {
    norm_call attention_norm, mlp_norm;
    linear qkv, proj, fc1, fc2;
    ladder *steps;
    const uint16_t *table, *row_exponent;
    const affinity_row *cut;
    int64_t exponents, distances;
    const int32_t *delay;
    readout_call readout;
} block;

/* Working memory of one unit. */
typedef struct {
    int32_t *stream;                       /* [rows, stream_stride] */
    uint8_t *codes, *qkv, *mixed, *hidden; /* [rows, stride] each */
} unit_memory;

/* Working memory of one thread. */
typedef struct {
    int16_t *patches;       /* [PATCH_ROWS, inputs] */
    int32_t *acc;           /* [N, padded channels] */
    uint32_t *mass;         /* [H, N] */
    unsigned char *scratch; /* of the attention kernel, and of event-driven layers */
    int16_t *token;         /* [D, padded to HEAD_UNIT] */
    int8_t *unpacked;       /* weights of a panel, where they are packed */
} thread_memory;

struct lapis_engine {
    const kernel_functions *kernels;
    const engine_functions *functions;
    lapis_model m;
    int64_t tokens, patches, channels, acc_stride, unit_images;
    int64_t stream_stride, code_stride, qkv_stride, hidden_stride;
    int32_t threads, low_memory;
    pace pace; /* of runs that threads share */
    block *blocks;
    patch_call patch;
    int32_t *position;
    int64_t position_stride; /* of the patches' rows */
    int16_t *head_weight;    /* [classes, D padded to HEAD_UNIT] */
    int64_t *head_bias;
    int plain_head; /* whether a weight of -32768 keeps products from being summed in pairs */
    unit_memory *units;
    thread_memory *memory;
    arena weights, work;
    int64_t weight_bytes, work_bytes;
};

/* One call of lapis_engine_run. */
typedef struct {
    lapis_engine *e;
    const uint8_t *images;
    int64_t batch, images_per_unit, units, solo; /* units from `solo` on are worked on by all threads together */
    int64_t *scores, *nanoseconds;
    int8_t *const *trace;
    atomic_int_fast64_t next, finished; /* of the solo units */
    atomic_uint_fast64_t claim;         /* of the shared units: stage and next piece, see schedule.c */
    atomic_int_fast64_t pieces_done;
    atomic_int status;
    atomic_int_fast64_t slept; /* nanoseconds that threads waited asleep */
    int32_t members;           /* threads that take part */
    team team;                 /* its changes: a stage ended, or the last solo unit */
} engine_run;

/* One thread's part in one unit, stage by stage. */
typedef struct {
    engine_run *job;
    const lapis_engine *e;
    unit_memory u;
    thread_memory *mine;
    int64_t first, images, rows; /* of the unit */
    int64_t pieces, piece;       /* into which a stage is cut, and the one that is worked on */
    int64_t from, to;            /* the piece's rows */
    int64_t clock;
} work_item;

/* The embedding, the first block's queries, two stages for each block, the head. All threads meet between two stages;
 * only attention reads other tokens than its own, so what lies between two attentions is one stage. */
static inline int64_t stages_of(const lapis_engine *e) { return 2 * e->m.depth + 3; }

/* The attention of one image, as the kernels see it. */
static inline lapis_pairs pairs_of(const lapis_engine *e) {
    return (lapis_pairs){.batch = 1,
                         .heads = e->m.heads,
                         .rows = e->tokens,
                         .keys = e->tokens,
                         .channels = e->channels,
                         .q_stride = {0, e->channels, e->qkv_stride},
                         .k_stride = {0, e->channels, e->qkv_stride},
                         .code_type = LAPIS_CODES_U8,
                         .relation = e->m.relation,
                         .zero_code = -e->m.low_qk};
}

/* What `thread` has to do with a unit that lies in the given memory, cut into `pieces` at every stage. */
work_item work_item_of(engine_run *job, int32_t thread, int32_t memory, int64_t unit, int64_t pieces);

void run_stage(work_item *w, int64_t stage, int64_t piece);

#endif
