/* The forward pass: patch embedding, blocks, head.
 *
 * Images travel in units of about as many tokens as the second-level cache holds. A thread takes whole units while
 * there are enough of them; the rest are shared by all threads, stage by stage and cut by tokens, or by heads for the
 * attention. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../isa.h"
#include "pack.h"
#include "team.h"

enum { UNIT_ROWS = 256, PATCH_ROWS = 24, MAX_UNIT = 16 };

typedef struct {
    norm_call attention_norm, mlp_norm;
    linear qkv, proj, fc1, fc2;
    ladder *steps;
    const uint16_t *table, *row_exponent;
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
    int16_t *token;         /* [D, padded to 16] */
} thread_memory;

struct lapis_engine {
    const kernel_functions *kernels;
    const engine_functions *functions;
    lapis_model m;
    int64_t tokens, patches, channels, acc_stride, unit_images;
    int64_t stream_stride, code_stride, qkv_stride, hidden_stride;
    int32_t threads;
    block *blocks;
    patch_call patch;
    int32_t *position;
    int64_t position_stride; /* of the patches' rows */
    int16_t *head_weight;    /* [classes, D padded to 16] */
    int64_t *head_bias;
    int plain_head; /* whether a weight of -32768 keeps products from being summed in pairs */
    unit_memory *units;
    thread_memory *memory;
    plan weights, work;
    int64_t weight_bytes, work_bytes;
};

static int64_t code_stride(int64_t channels) {
    int64_t stride = round_up(channels, CODE_UNIT);
    /* Rows a page apart would meet in the same lines of the first-level cache. */
    return stride % 4096 ? stride : stride + CODE_UNIT;
}

static lapis_pairs pairs_of(const lapis_engine *e) {
    return (lapis_pairs){.batch = 1,
                         .heads = e->m.heads,
                         .rows = e->tokens,
                         .keys = e->tokens,
                         .channels = e->channels,
                         .q_stride = {0, e->channels, e->qkv_stride},
                         .k_stride = {0, e->channels, e->qkv_stride},
                         .code_type = LAPIS_CODES_U8,
                         .relation = LAPIS_L1};
}

static norm_call pack_norm(plan *p, const lapis_model *m, const float *gain, const float *shift, int32_t low) {
    int64_t padded = round_up(m->width, 16);
    return (norm_call){.width = m->width,
                       .padded = padded,
                       .eps = m->eps,
                       .low = (float)low,
                       .high = (float)m->window,
                       .gain = pack_words(p, gain, m->width, padded),
                       .shift = pack_words(p, shift, m->width, padded)};
}

static void *pack_bytes(plan *p, const void *bytes, int64_t count) {
    void *out = plan_take(p, count);
    if (out) memcpy(out, bytes, (size_t)count);
    return out;
}

static void pack_block(lapis_engine *e, const lapis_block *from, block *to) {
    const lapis_model *m = &e->m;
    plan *p = &e->weights;
    int64_t d = m->width, n = e->tokens;
    block b = {.exponents = from->exponents, .distances = from->distances};
    b.attention_norm = pack_norm(p, m, from->attention_gain, from->attention_shift, m->low_attention);
    b.mlp_norm = pack_norm(p, m, from->mlp_gain, from->mlp_shift, m->low_mlp);
    b.readout = (readout_call){from->readout_scale, from->readout_shift, (float)m->low_readout, (float)m->window};
    b.steps = plan_take(p, sizeof *b.steps);
    b.table = pack_bytes(p, from->table, m->heads * from->exponents * from->distances * 2);
    b.row_exponent = pack_bytes(p, from->row_exponent, m->heads * from->distances * 2);
    if (from->delay) b.delay = pack_bytes(p, from->delay, m->heads * n * n * 4);
    layer_shape qkv = {3 * d, d, m->low_attention, m->window, TO_CODES, NULL};
    layer_shape proj = {d, d, m->low_readout, m->window, TO_STREAM, NULL};
    layer_shape fc1 = {m->hidden, d, m->low_mlp, m->window, TO_LADDER, b.steps};
    layer_shape fc2 = {d, m->hidden, m->low_hidden, m->window, TO_STREAM, NULL};
    pack_linear(p, e->functions, &from->qkv, qkv, &b.qkv);
    pack_linear(p, e->functions, &from->proj, proj, &b.proj);
    pack_linear(p, e->functions, &from->fc1, fc1, &b.fc1);
    pack_linear(p, e->functions, &from->fc2, fc2, &b.fc2);
    /* Behind GELU most neurons are silent. */
    if (m->low_hidden == 0) pack_spikes(p, e->functions, &from->fc2, &b.fc2);
    if (!p->base) return;
    for (int64_t o = 0; o < 3 * d; o++) {
        b.qkv.least[o] = (int16_t)(o < 2 * d ? m->low_qk : m->low_v);
        b.qkv.span[o] = (uint8_t)(m->window - b.qkv.least[o]);
    }
    pack_ladder(from->rise, from->fall, m->window - m->low_hidden, b.steps);
    *to = b;
}

static void pack_ends(lapis_engine *e) {
    const lapis_model *m = &e->m;
    plan *p = &e->weights;
    int64_t d = m->width, inputs = m->patch_size * m->patch_size * 3, padded = round_up(d, STREAM_UNIT);
    int32_t *shift = plan_take(p, padded * 4), *half = plan_take(p, padded * 4);
    e->patch = (patch_call){.outputs = d,
                            .inputs = round_up(inputs, 2),
                            .shift = shift,
                            .half = half,
                            .panels = (d + e->functions->panel - 1) / e->functions->panel,
                            .limit = 1 << m->stream_bits};
    e->patch.weight = pack_patch(p, e->functions, m->patch_weight, d, inputs);
    e->position = plan_take(p, m->position_rows * padded * 4);
    e->position_stride = m->position_rows == e->tokens ? padded : 0;
    int64_t head_stride = round_up(d, 16);
    e->head_weight = plan_take(p, m->classes * head_stride * 2);
    e->head_bias = pack_bytes(p, m->head_bias, m->classes * 8);
    if (!p->base) return;
    for (int64_t o = 0; o < d; o++) {
        half[o] = m->patch_shift[o] > 0;
        shift[o] = m->patch_shift[o] - half[o];
    }
    for (int64_t o = 0; o < m->classes; o++) {
        memcpy(e->head_weight + o * head_stride, m->head_weight + o * d, (size_t)d * 2);
        for (int64_t c = 0; c < d; c++) e->plain_head |= m->head_weight[o * d + c] == INT16_MIN;
    }
    for (int64_t i = 0; i < m->position_rows; i++) memcpy(e->position + i * padded, m->position + i * d, (size_t)d * 4);
}

static void plan_weights(lapis_engine *e) {
    e->blocks = plan_take(&e->weights, e->m.depth * (int64_t)sizeof *e->blocks);
    pack_ends(e);
    for (int64_t i = 0; i < e->m.depth; i++) pack_block(e, e->m.blocks + i, e->blocks ? e->blocks + i : NULL);
}

static void plan_work(lapis_engine *e) {
    plan *p = &e->work;
    int64_t rows = e->unit_images * e->tokens;
    lapis_pairs pairs = pairs_of(e);
    int64_t scratch = (int64_t)e->kernels->integer_attention_scratch(&pairs);
    if (e->functions->spikes) {
        linear fc2 = {.inputs = e->m.hidden};
        int64_t spikes = (int64_t)e->functions->spike_scratch(&fc2, rows);
        scratch = spikes > scratch ? spikes : scratch;
    }
    e->units = plan_take(p, e->threads * (int64_t)sizeof *e->units);
    e->memory = plan_take(p, e->threads * (int64_t)sizeof *e->memory);
    for (int32_t i = 0; i < e->threads; i++) {
        unit_memory unit = {.stream = plan_take(p, rows * e->stream_stride * 4)};
        unit.codes = plan_take(p, rows * e->code_stride);
        unit.qkv = plan_take(p, rows * e->qkv_stride);
        unit.mixed = plan_take(p, rows * e->code_stride);
        unit.hidden = plan_take(p, rows * e->hidden_stride);
        thread_memory memory = {.patches = plan_take(p, PATCH_ROWS * e->patch.inputs * 2)};
        memory.acc = plan_take(p, e->tokens * e->acc_stride * 4);
        memory.mass = plan_take(p, e->m.heads * e->tokens * 4);
        memory.scratch = plan_take(p, scratch);
        memory.token = plan_take(p, round_up(e->m.width, 16) * 2);
        if (p->base) e->units[i] = unit, e->memory[i] = memory;
    }
}

static int bad_model(const lapis_model *m) {
    if (!m || m->width < 1 || m->heads < 1 || m->hidden < 1 || m->depth < 1 || m->classes < 1) return 1;
    if (m->patch_size < 1 || m->image_size < m->patch_size || m->image_size % m->patch_size) return 1;
    if (m->width % m->heads || m->width > 1 << 16 || m->hidden > 1 << 20 || m->window < 1 || m->window > 63) return 1;
    if (m->stream_bits < 1 || m->stream_bits > 28) return 1;
    const int32_t lows[] = {m->low_attention, m->low_qk, m->low_v, m->low_readout, m->low_mlp, m->low_hidden};
    for (int i = 0; i < 6; i++)
        if (lows[i] > 0 || lows[i] < -m->window) return 1;
    return !m->patch_weight || !m->patch_shift || !m->position || !m->head_weight || !m->head_bias || !m->blocks;
}

int32_t lapis_engine_create(const lapis_model *model, int32_t threads, lapis_engine **engine) {
    if (!engine || bad_model(model) || threads < 1) return LAPIS_BAD_ARGUMENT;
    lapis_engine *e = calloc(1, sizeof *e);
    if (!e) return LAPIS_OUT_OF_MEMORY;
    const lapis_isa *isa = current_isa();
    int64_t grid = model->image_size / model->patch_size;
    e->kernels = isa->kernels;
    e->functions = isa->engine;
    e->m = *model;
    e->patches = grid * grid;
    e->tokens = e->patches + 1;
    e->channels = model->width / model->heads;
    e->acc_stride = round_up(e->channels, 16);
    e->threads = threads < MAX_TEAM ? threads : MAX_TEAM;
    int64_t unit = UNIT_ROWS / e->tokens;
    e->unit_images = unit < 1 ? 1 : unit > MAX_UNIT ? MAX_UNIT : unit;
    e->stream_stride = round_up(model->width, STREAM_UNIT);
    e->code_stride = code_stride(model->width);
    e->qkv_stride = code_stride(3 * model->width);
    e->hidden_stride = code_stride(model->hidden);
    int status = LAPIS_OK;
    if (e->tokens * INT64_C(32767) * (model->window - model->low_v) > INT32_MAX) status = LAPIS_WOULD_OVERFLOW;
    for (int pass = 0; pass < 2 && !status; pass++) {
        plan_weights(e);
        plan_work(e);
        if (pass) break;
        e->weight_bytes = (int64_t)e->weights.used;
        e->work_bytes = (int64_t)e->work.used;
        if (!plan_open(&e->weights) || !plan_open(&e->work)) status = LAPIS_OUT_OF_MEMORY;
    }
    /* Nothing of the caller's is kept. */
    e->m.patch_weight = NULL, e->m.patch_shift = NULL, e->m.position = NULL, e->m.head_weight = NULL;
    e->m.head_bias = NULL, e->m.blocks = NULL;
    *engine = status ? NULL : e;
    if (status) lapis_engine_destroy(e);
    return status;
}

void lapis_engine_destroy(lapis_engine *engine) {
    if (!engine) return;
    plan_close(&engine->weights);
    plan_close(&engine->work);
    free(engine);
}

int64_t lapis_engine_bytes(const lapis_engine *engine, int32_t working) {
    return working ? engine->work_bytes : engine->weight_bytes;
}

/* One call of lapis_engine_run. */
typedef struct {
    lapis_engine *e;
    const uint8_t *images;
    int64_t batch, images_a_unit, units, solo; /* units from `solo` on are worked on by all threads together */
    int64_t *scores, *nanoseconds;
    int8_t *const *trace;
    atomic_int_fast64_t next, finished; /* of the solo units */
    atomic_uint_fast64_t claim;         /* of the shared units: the stage at hand, and in the low half its next piece */
    atomic_int_fast64_t pieces_done;
    atomic_int status;
} run;

/* One thread's part in one unit, stage by stage. */
typedef struct {
    run *job;
    const lapis_engine *e;
    unit_memory u;
    thread_memory *mine;
    int64_t first, images, rows; /* of the unit */
    int64_t pieces, piece;       /* into which a stage is cut, and the one that is worked on */
    int64_t from, to;            /* the piece's rows */
    int64_t clock;
} part;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Charge what passed since the last call to a stage; -1 only starts the clock. */
static void charge(part *w, int stage) {
    if (!w->job->nanoseconds || w->mine != w->e->memory) return;
    int64_t t = now();
    if (stage >= 0) w->job->nanoseconds[stage] += t - w->clock;
    w->clock = t;
}

/* Copy the piece's rows of a point to the trace, if there is one. */
static void note(const part *w, int64_t index, int point, const uint8_t *codes, int64_t stride, int64_t channels,
                 int32_t low) {
    int8_t *out = w->job->trace ? w->job->trace[index * LAPIS_POINTS + point] : NULL;
    if (!out) return;
    out += w->first * w->e->tokens * channels;
    for (int64_t row = w->from; row < w->to; row++)
        for (int64_t c = 0; c < channels; c++) out[row * channels + c] = (int8_t)(codes[row * stride + c] + low);
}

static void embed(part *w) {
    const lapis_engine *e = w->e;
    int64_t side = e->m.image_size, patch = e->m.patch_size, grid = side / patch;
    int64_t chunks = (e->patches + PATCH_ROWS - 1) / PATCH_ROWS, padded = e->stream_stride;
    for (int64_t task = w->piece; task < w->images * chunks; task += w->pieces) {
        int64_t image = task / chunks, from = task % chunks * PATCH_ROWS;
        int64_t rows = e->patches - from < PATCH_ROWS ? e->patches - from : PATCH_ROWS;
        const uint8_t *pixels = w->job->images + (w->first + image) * side * side * 3;
        for (int64_t i = 0; i < rows; i++) {
            const uint8_t *corner = pixels + ((from + i) / grid * side + (from + i) % grid) * patch * 3;
            int16_t *to = w->mine->patches + i * e->patch.inputs;
            for (int64_t y = 0; y < patch; y++)
                for (int64_t x = 0; x < patch * 3; x++) to[y * patch * 3 + x] = corner[y * side * 3 + x];
        }
        int32_t *stream = w->u.stream + image * e->tokens * e->stream_stride;
        e->functions->patch(&e->patch, w->mine->patches, rows, e->position + padded + from * e->position_stride,
                            e->position_stride, stream + (1 + from) * e->stream_stride, e->stream_stride);
        if (from) continue;
        for (int64_t c = 0; c < padded; c++) stream[c] = within(e->position[c], e->patch.limit);
    }
    charge(w, LAPIS_STAGE_EMBED);
}

static void norm(part *w, const norm_call *call) {
    for (int64_t row = w->from; row < w->to; row++)
        w->e->functions->norm(call, w->u.stream + row * w->e->stream_stride, w->u.codes + row * w->e->code_stride);
    charge(w, LAPIS_STAGE_NORM);
}

static void query(part *w, int64_t index) {
    const lapis_engine *e = w->e;
    const lapis_model *m = &e->m;
    const block *b = e->blocks + index;
    norm(w, &b->attention_norm);
    linear_call call = {.layer = &b->qkv,
                        .codes = w->u.codes,
                        .code_stride = e->code_stride,
                        .out = w->u.qkv,
                        .out_stride = e->qkv_stride};
    e->functions->linear(&call, w->from, w->to);
    charge(w, LAPIS_STAGE_QKV);
    note(w, index, LAPIS_AT_ATTENTION, w->u.codes, e->code_stride, m->width, m->low_attention);
    note(w, index, LAPIS_AT_Q, w->u.qkv, e->qkv_stride, m->width, m->low_qk);
    note(w, index, LAPIS_AT_K, w->u.qkv + m->width, e->qkv_stride, m->width, m->low_qk);
    note(w, index, LAPIS_AT_V, w->u.qkv + 2 * m->width, e->qkv_stride, m->width, m->low_v);
}

/* k = round(log2 z) as codes.pow2_exponent has it; returns 2^-k. */
static float row_factor(uint32_t z) {
    int exponent;
    double mantissa = frexp((double)z, &exponent);
    return ldexpf(1.0F, -(exponent - (mantissa < SQRT_HALF)));
}

static void attend(part *w, int64_t index) {
    const lapis_engine *e = w->e;
    const block *b = e->blocks + index;
    int64_t heads = e->m.heads, n = e->tokens, stride = e->qkv_stride, d = e->m.width;
    /* Rows of a head are cut where whole heads would leave threads without work; each part packs the keys again. */
    int64_t parts = w->images * heads % w->pieces ? w->pieces : 1;
    integer_attention_call call = {.p = pairs_of(e),
                                   .v_stride = {0, e->channels, stride},
                                   .table = b->table,
                                   .row_exponent = b->row_exponent,
                                   .exponents = b->exponents,
                                   .size = b->distances,
                                   .delay = b->delay,
                                   .acc = w->mine->acc,
                                   .acc_stride = {0, 0, e->acc_stride},
                                   .zint = w->mine->mass};
    for (int64_t task = w->piece; task < w->images * heads * parts; task += w->pieces) {
        int64_t image = task / (heads * parts), h = task / parts % heads, cut = task % parts;
        int64_t from = n * cut / parts, to = n * (cut + 1) / parts;
        const uint8_t *qkv = w->u.qkv + image * n * stride;
        call.q = qkv, call.k = qkv + d, call.v = qkv + 2 * d;
        int status = e->kernels->integer_attention(&call, (head_rows){0, h, from, to}, w->mine->scratch),
            none = LAPIS_OK;
        if (status) {
            atomic_compare_exchange_strong(&w->job->status, &none, status);
            continue;
        }
        uint8_t *out = w->u.mixed + image * n * e->code_stride + h * e->channels;
        for (int64_t i = from; i < to; i++) {
            uint32_t z = w->mine->mass[h * n + i];
            e->functions->readout(&b->readout, w->mine->acc + i * e->acc_stride, e->channels, e->m.low_v * (int32_t)z,
                                  row_factor(z), out + i * e->code_stride);
        }
    }
    charge(w, LAPIS_STAGE_ATTENTION);
}

static void feed_forward(part *w, int64_t index) {
    const lapis_engine *e = w->e;
    const lapis_model *m = &e->m;
    const block *b = e->blocks + index;
    linear_call proj = {.layer = &b->proj,
                        .codes = w->u.mixed,
                        .code_stride = e->code_stride,
                        .stream = w->u.stream,
                        .stream_stride = e->stream_stride,
                        .limit = 1 << m->stream_bits};
    linear_call fc1 = {.layer = &b->fc1,
                       .codes = w->u.codes,
                       .code_stride = e->code_stride,
                       .out = w->u.hidden,
                       .out_stride = e->hidden_stride};
    linear_call fc2 = proj;
    fc2.layer = &b->fc2, fc2.codes = w->u.hidden, fc2.code_stride = e->hidden_stride;
    e->functions->linear(&proj, w->from, w->to);
    charge(w, LAPIS_STAGE_PROJ);
    norm(w, &b->mlp_norm);
    e->functions->linear(&fc1, w->from, w->to);
    charge(w, LAPIS_STAGE_FC1);
    if (!e->functions->spikes || !e->functions->spikes(&fc2, w->from, w->to, w->mine->scratch))
        e->functions->linear(&fc2, w->from, w->to);
    charge(w, LAPIS_STAGE_FC2);
    note(w, index, LAPIS_AT_READOUT, w->u.mixed, e->code_stride, m->width, m->low_readout);
    note(w, index, LAPIS_AT_MLP, w->u.codes, e->code_stride, m->width, m->low_mlp);
    note(w, index, LAPIS_AT_HIDDEN, w->u.hidden, e->hidden_stride, m->hidden, m->low_hidden);
}

/* The final token, standardised, as int16 with pooled_bits behind the point; then the head. */
static void classify(part *w) {
    const lapis_engine *e = w->e;
    int64_t d = e->m.width, padded = round_up(d, 16), patches = e->patches;
    int64_t (*head)(const int16_t *, const int16_t *, int64_t) =
        e->plain_head ? engine_scalar.head : e->functions->head;
    for (int64_t image = w->piece; image < w->images; image += w->pieces) {
        int32_t *token = w->u.stream + image * e->tokens * e->stream_stride;
        if (e->m.mean_pooling)
            for (int64_t c = 0; c < d; c++) {
                int64_t sum = 0;
                for (int64_t i = 1; i <= patches; i++) sum += token[i * e->stream_stride + c];
                token[c] = (int32_t)norm_mean(sum, patches);
            }
        int64_t sum = 0, squares = 0;
        for (int64_t c = 0; c < d; c++) sum += token[c];
        int64_t mean = norm_mean(sum, d);
        for (int64_t c = 0; c < d; c++) squares += (token[c] - mean) * (token[c] - mean);
        float rstd = norm_rstd(sum, mean, squares, d, e->m.eps), unit = ldexpf(1.0F, e->m.pooled_bits);
        for (int64_t c = 0; c < d; c++) {
            float x = (float)(token[c] - (int32_t)mean) * rstd;
            x = x * unit;
            x = floorf(x + 0.5F);
            w->mine->token[c] = (int16_t)(x < -32768 ? -32768 : x > 32767 ? 32767 : x);
        }
        int64_t *scores = w->job->scores + (w->first + image) * e->m.classes;
        for (int64_t o = 0; o < e->m.classes; o++)
            scores[o] = e->head_bias[o] + head(w->mine->token, e->head_weight + o * padded, padded);
    }
    charge(w, LAPIS_STAGE_HEAD);
}

static part part_of(run *job, int32_t thread, int32_t memory, int64_t unit, int64_t pieces) {
    lapis_engine *e = job->e;
    part w = {.job = job,
              .e = e,
              .u = e->units[memory],
              .mine = e->memory + thread,
              .pieces = pieces,
              .first = unit * job->images_a_unit};
    w.images = job->batch - w.first < job->images_a_unit ? job->batch - w.first : job->images_a_unit;
    w.rows = w.images * e->tokens;
    charge(&w, -1);
    return w;
}

/* The embedding, three stages for each block, the head. */
static int64_t stages_of(const lapis_engine *e) { return 3 * e->m.depth + 2; }

static void run_stage(part *w, int64_t stage, int64_t piece) {
    int64_t tile = w->e->functions->tile, tiles = (w->rows + tile - 1) / tile, block = (stage - 1) / 3;
    w->piece = piece;
    w->from = tiles * piece / w->pieces * tile;
    w->to = tiles * (piece + 1) / w->pieces * tile;
    if (w->to > w->rows) w->to = w->rows;
    if (stage == 0)
        embed(w);
    else if (block == w->e->m.depth)
        classify(w);
    else if (stage % 3 == 1)
        query(w, block);
    else if (stage % 3 == 2)
        attend(w, block);
    else
        feed_forward(w, block);
}

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
               .images_a_unit = even,
               .units = (batch + even - 1) / even,
               .scores = scores,
               .nanoseconds = nanoseconds,
               .trace = trace};
    job.solo = job.units / e->threads * e->threads;
    team_run(run_member, &job, e->threads);
    return atomic_load(&job.status);
}

int32_t lapis_engine_linear(const lapis_layer *layer, int64_t rows, int64_t inputs, int64_t outputs,
                            const uint8_t *codes, int32_t low, int32_t high, int32_t kind, int32_t out_low,
                            int32_t out_high, const float *rise, const float *fall, int32_t stream_bits, uint8_t *out,
                            int32_t *stream, int32_t repeats, int64_t *nanoseconds) {
    if (!layer || rows < 1 || inputs < 1 || outputs < 1 || !codes || kind < 0 || kind > 2) return LAPIS_BAD_ARGUMENT;
    if (high - low > 126 || high < low || out_high - out_low > MAX_LEVELS || out_high < out_low)
        return LAPIS_BAD_ARGUMENT;
    if (kind == TO_STREAM ? !stream : !out) return LAPIS_BAD_ARGUMENT;
    const engine_functions *functions = current_isa()->engine;
    ladder steps;
    if (kind == TO_LADDER) pack_ladder(rise, fall, out_high - out_low, &steps);
    layer_shape shape = {outputs, inputs, low, high, (linear_kind)kind, &steps};
    int64_t in_stride = code_stride(inputs), out_stride = code_stride(outputs);
    int64_t stream_stride = round_up(outputs, STREAM_UNIT);
    plan p = {0};
    linear packed;
    uint8_t *in_codes, *out_codes;
    int32_t *moving;
    for (int pass = 0; pass < 2; pass++) {
        pack_linear(&p, functions, layer, shape, &packed);
        in_codes = plan_take(&p, rows * in_stride);
        out_codes = plan_take(&p, rows * out_stride);
        moving = plan_take(&p, rows * stream_stride * 4);
        if (!pass && !plan_open(&p)) return LAPIS_OUT_OF_MEMORY;
    }
    for (int64_t o = 0; o < outputs; o++) {
        packed.least[o] = (int16_t)out_low;
        packed.span[o] = (uint8_t)(out_high - out_low);
    }
    for (int64_t r = 0; r < rows; r++) {
        memcpy(in_codes + r * in_stride, codes + r * inputs, (size_t)inputs);
        if (kind == TO_STREAM) memcpy(moving + r * stream_stride, stream + r * outputs, (size_t)outputs * 4);
    }
    linear_call call = {.layer = &packed,
                        .codes = in_codes,
                        .code_stride = in_stride,
                        .out = out_codes,
                        .out_stride = out_stride,
                        .stream = moving,
                        .stream_stride = stream_stride,
                        .limit = 1 << stream_bits};
    int64_t best = INT64_MAX;
    for (int32_t i = 0; i < repeats; i++) {
        int64_t from = now();
        functions->linear(&call, 0, rows);
        int64_t took = now() - from;
        best = took < best ? took : best;
    }
    if (nanoseconds) *nanoseconds = best;
    for (int64_t r = 0; r < rows; r++) {
        if (kind == TO_STREAM)
            memcpy(stream + r * outputs, moving + r * stream_stride, (size_t)outputs * 4);
        else
            memcpy(out + r * outputs, out_codes + r * out_stride, (size_t)outputs);
    }
    plan_close(&p);
    return LAPIS_OK;
}

double lapis_engine_peak(void) {
    const engine_functions *functions = current_isa()->engine;
    double best = 0;
    for (int i = 0; functions->peak && i < 20; i++) {
        double rate = functions->peak(200000, now);
        best = rate > best ? rate : best;
    }
    return best;
}
