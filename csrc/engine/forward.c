/* The forward pass: patch embedding, blocks, head. Each stage works on one piece of a unit: some tokens, or some heads
 * for the attention. */
#include "../isa.h"
#include "../system.h"
#include "state.h"

/* Charge what passed since the last call to a stage; -1 only starts the clock. */
static void charge(work_item *w, int stage) {
    if (!w->job->nanoseconds || w->mine != w->e->memory) return;
    int64_t t = system_thread_clock();
    if (stage >= 0) w->job->nanoseconds[stage] += t - w->clock;
    w->clock = t;
}

/* Copy the piece's rows of a point to the trace, if there is one. */
static void note(const work_item *w, int64_t index, int point, const uint8_t *codes, int64_t stride, int64_t channels,
                 int32_t low) {
    int8_t *out = w->job->trace ? w->job->trace[index * LAPIS_POINTS + point] : NULL;
    if (!out) return;
    out += w->first * w->e->tokens * channels;
    for (int64_t row = w->from; row < w->to; row++)
        for (int64_t c = 0; c < channels; c++) out[row * channels + c] = (int8_t)(codes[row * stride + c] + low);
}

static void embed(work_item *w) {
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

static void norm(work_item *w, const norm_call *call) {
    for (int64_t row = w->from; row < w->to; row++)
        w->e->functions->norm(call, w->u.stream + row * w->e->stream_stride, w->u.codes + row * w->e->code_stride);
    charge(w, LAPIS_STAGE_NORM);
}

/* The piece's rows of a layer; one that has both forms is driven by events where few enough of its inputs spiked. */
static void apply(work_item *w, linear_call *call) {
    const engine_functions *f = w->e->functions;
    const linear *layer = call->layer;
    call->unpacked = w->mine->unpacked;
    const float inputs = (float)((w->to - w->from) * layer->inputs);
    int dense = layer->weight || layer->packed6, events = layer->spike_weight || layer->spike_packed6;
    if (events && (!dense || (float)f->count_spikes(call, w->from, w->to) <= inputs * break_even(f, layer->outputs)))
        f->spikes(call, w->from, w->to, w->mine->scratch);
    else
        f->linear(call, w->from, w->to);
}

static void query(work_item *w, int64_t index) {
    const lapis_engine *e = w->e;
    const lapis_model *m = &e->m;
    const block *b = e->blocks + index;
    norm(w, &b->attention_norm);
    linear_call call = {.layer = &b->qkv,
                        .codes = w->u.codes,
                        .code_stride = e->code_stride,
                        .out = w->u.qkv,
                        .out_stride = e->qkv_stride};
    apply(w, &call);
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

static void attend(work_item *w, int64_t index) {
    const lapis_engine *e = w->e;
    const block *b = e->blocks + index;
    int64_t heads = e->m.heads, n = e->tokens, stride = e->qkv_stride, d = e->m.width;
    /* Rows of a head are cut where whole heads would leave threads without work; each part packs the keys again. */
    int64_t parts = w->images * heads % w->job->members ? w->pieces : 1;
    integer_attention_call call = {.p = pairs_of(e),
                                   .v_stride = {0, e->channels, stride},
                                   .table = b->table,
                                   .row_exponent = b->row_exponent,
                                   .exponents = b->exponents,
                                   .size = b->distances,
                                   .cut = b->cut,
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

static void feed_forward(work_item *w, int64_t index) {
    const lapis_engine *e = w->e;
    const lapis_model *m = &e->m;
    const block *b = e->blocks + index;
    linear_call proj = {.layer = &b->proj,
                        .codes = w->u.mixed,
                        .code_stride = e->code_stride,
                        .stream = w->u.stream,
                        .stream_stride = e->stream_stride,
                        .limit = 1 << STREAM_BITS};
    linear_call fc1 = {.layer = &b->fc1,
                       .codes = w->u.codes,
                       .code_stride = e->code_stride,
                       .out = w->u.hidden,
                       .out_stride = e->hidden_stride};
    linear_call fc2 = proj;
    fc2.layer = &b->fc2, fc2.codes = w->u.hidden, fc2.code_stride = e->hidden_stride;
    apply(w, &proj);
    charge(w, LAPIS_STAGE_PROJ);
    norm(w, &b->mlp_norm);
    apply(w, &fc1);
    charge(w, LAPIS_STAGE_FC1);
    apply(w, &fc2);
    charge(w, LAPIS_STAGE_FC2);
    note(w, index, LAPIS_AT_READOUT, w->u.mixed, e->code_stride, m->width, m->low_readout);
    note(w, index, LAPIS_AT_MLP, w->u.codes, e->code_stride, m->width, m->low_mlp);
    note(w, index, LAPIS_AT_HIDDEN, w->u.hidden, e->hidden_stride, m->hidden, m->low_hidden);
}

/* The final token, standardised, as int16 with POOLED_BITS behind the point; then the head. */
static void classify(work_item *w) {
    const lapis_engine *e = w->e;
    int64_t d = e->m.width, padded = round_up(d, HEAD_UNIT), patches = e->patches;
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
        float rstd = norm_rstd(sum, mean, squares, d, e->m.eps), unit = ldexpf(1.0F, POOLED_BITS);
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

work_item work_item_of(engine_run *job, int32_t thread, int32_t memory, int64_t unit, int64_t pieces) {
    lapis_engine *e = job->e;
    work_item w = {.job = job,
                   .e = e,
                   .u = e->units[memory],
                   .mine = e->memory + thread,
                   .pieces = pieces,
                   .first = unit * job->images_per_unit};
    w.images = job->batch - w.first < job->images_per_unit ? job->batch - w.first : job->images_per_unit;
    w.rows = w.images * e->tokens;
    charge(&w, -1);
    return w;
}

void run_stage(work_item *w, int64_t stage, int64_t piece) {
    const int64_t tile = w->e->functions->tile, tiles = (w->rows + tile - 1) / tile, block = stage / 2 - 1;
    w->piece = piece;
    w->from = tiles * piece / w->pieces * tile;
    w->to = tiles * (piece + 1) / w->pieces * tile;
    if (w->to > w->rows) w->to = w->rows;
    if (stage == 0) {
        embed(w);
    } else if (stage == stages_of(w->e) - 1) {
        classify(w);
    } else if (stage % 2 == 0) {
        attend(w, block);
    } else {
        if (block >= 0) feed_forward(w, block);
        if (block + 1 < w->e->m.depth) query(w, block + 1);
    }
}
