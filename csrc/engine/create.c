/* Making an engine: weights in the layouts of the selected instruction set, working memory, both planned before they
 * are taken. */
#include <stdlib.h>
#include <string.h>

#include "../isa.h"
#include "state.h"
#include "team.h"

static norm_call pack_norm(arena *p, const lapis_model *m, const float *gain, const float *shift, int32_t low,
                           int32_t min_code) {
    int64_t padded = round_up(m->width, 16);
    return (norm_call){.width = m->width,
                       .padded = padded,
                       .eps = m->eps,
                       .low = (float)low,
                       .high = (float)m->window,
                       .below_min_code = min_code - 1,
                       .gain = pack_words(p, gain, m->width, padded),
                       .shift = pack_words(p, shift, m->width, padded)};
}

static void *pack_bytes(arena *p, const void *bytes, int64_t count) {
    void *out = arena_take(p, count);
    if (out) memcpy(out, bytes, (size_t)count);
    return out;
}

/* The rule of docs/native.md: a layer is driven by events where the recorded activity of its inputs is at most its
 * break-even. Behind GELU most neurons are silent, so without a record an unsigned one gets both forms, and each run
 * counts; with low memory there is only one form. */
static int forms_of(const lapis_engine *e, layer_shape shape, float activity, int expected) {
    const float share = break_even(e->functions, shape.outputs);
    const int events = share > 0 && (activity < 0 ? expected : activity <= share);
    if (e->low_memory) return PACKED6 | (events ? EVENTS : DENSE);
    return !events ? DENSE : activity < 0 ? DENSE | EVENTS : EVENTS;
}

static void pack_block(lapis_engine *e, const lapis_block *from, block *to) {
    const lapis_model *m = &e->m;
    arena *p = &e->weights;
    int64_t d = m->width, n = e->tokens;
    block b = {.exponents = from->exponents, .distances = from->distances};
    b.attention_norm =
        pack_norm(p, m, from->attention_gain, from->attention_shift, m->low_attention, from->min_code_attention);
    b.mlp_norm = pack_norm(p, m, from->mlp_gain, from->mlp_shift, m->low_mlp, from->min_code_mlp);
    b.readout = (readout_call){from->readout_scale, from->readout_shift, (float)m->low_readout, (float)m->window,
                               from->min_code_readout - 1};
    b.steps = arena_take(p, sizeof *b.steps);
    b.table = pack_affinities(p, from, m->heads, &b.cut);
    if (m->relation != LAPIS_DOT) b.row_exponent = pack_bytes(p, from->row_exponent, m->heads * from->distances * 2);
    if (from->delay) b.delay = pack_bytes(p, from->delay, m->heads * n * n * 4);
    layer_shape qkv = {
        3 * d, d, m->low_attention, m->window, TO_CODES, NULL, from->min_code_qk > 1 || from->min_code_v > 1};
    layer_shape proj = {d, d, m->low_readout, m->window, TO_STREAM, NULL, 0};
    layer_shape fc1 = {m->hidden, d, m->low_mlp, m->window, TO_LADDER, b.steps, from->min_code_hidden > 1};
    layer_shape fc2 = {d, m->hidden, m->low_hidden, m->window, TO_STREAM, NULL, 0};
    pack_linear(p, e->functions, &from->qkv, qkv, forms_of(e, qkv, from->attention_activity, 0), &b.qkv);
    pack_linear(p, e->functions, &from->proj, proj, forms_of(e, proj, from->readout_activity, 0), &b.proj);
    pack_linear(p, e->functions, &from->fc1, fc1, forms_of(e, fc1, from->mlp_activity, 0), &b.fc1);
    pack_linear(p, e->functions, &from->fc2, fc2, forms_of(e, fc2, from->hidden_activity, m->low_hidden == 0), &b.fc2);
    if (!p->base) return;
    for (int64_t o = 0; o < 3 * d; o++) {
        b.qkv.lowest[o] = (int16_t)(o < 2 * d ? m->low_qk : m->low_v);
        b.qkv.span[o] = (uint8_t)(m->window - b.qkv.lowest[o]);
    }
    for (int64_t o = 0; b.qkv.below_min_code && o < 3 * d; o++) {
        b.qkv.zero_code[o] = (uint8_t)-b.qkv.lowest[o];
        b.qkv.below_min_code[o] = (uint8_t)((o < 2 * d ? from->min_code_qk : from->min_code_v) - 1);
    }
    for (int64_t o = 0; b.fc1.below_min_code && o < m->hidden; o++) {
        b.fc1.zero_code[o] = (uint8_t)-m->low_hidden;
        b.fc1.below_min_code[o] = (uint8_t)(from->min_code_hidden - 1);
    }
    pack_ladder(from->rise, from->fall, m->window - m->low_hidden, b.steps);
    *to = b;
}

static void pack_ends(lapis_engine *e) {
    const lapis_model *m = &e->m;
    arena *p = &e->weights;
    int64_t d = m->width, inputs = m->patch_size * m->patch_size * 3, padded = round_up(d, STREAM_UNIT);
    int32_t *shift = arena_take(p, padded * 4), *half = arena_take(p, padded * 4);
    e->patch = (patch_call){.outputs = d,
                            .inputs = round_up(inputs, 2),
                            .shift = shift,
                            .half = half,
                            .panels = (d + e->functions->panel - 1) / e->functions->panel,
                            .limit = 1 << STREAM_BITS};
    e->patch.weight = pack_patch(p, e->functions, m->patch_weight, d, inputs);
    e->position = arena_take(p, m->position_rows * padded * 4);
    e->position_stride = m->position_rows == e->tokens ? padded : 0;
    int64_t head_stride = round_up(d, HEAD_UNIT);
    e->head_weight = arena_take(p, m->classes * head_stride * 2);
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
    e->blocks = arena_take(&e->weights, e->m.depth * (int64_t)sizeof *e->blocks);
    pack_ends(e);
    for (int64_t i = 0; i < e->m.depth; i++) pack_block(e, e->m.blocks + i, e->blocks ? e->blocks + i : NULL);
}

static void plan_work(lapis_engine *e) {
    arena *p = &e->work;
    int64_t rows = e->unit_images * e->tokens;
    lapis_pairs pairs = pairs_of(e);
    const int64_t inputs = e->m.hidden > e->m.width ? e->m.hidden : e->m.width;
    int64_t scratch = (int64_t)e->kernels->integer_attention_scratch(&pairs);
    if (e->functions->spikes) {
        int64_t spikes = (int64_t)e->functions->spike_scratch(inputs, e->m.window, rows);
        scratch = spikes > scratch ? spikes : scratch;
    }
    e->units = arena_take(p, e->threads * (int64_t)sizeof *e->units);
    e->memory = arena_take(p, e->threads * (int64_t)sizeof *e->memory);
    for (int32_t i = 0; i < e->threads; i++) {
        unit_memory unit = {.stream = arena_take(p, rows * e->stream_stride * 4)};
        unit.codes = arena_take(p, rows * e->code_stride);
        unit.qkv = arena_take(p, rows * e->qkv_stride);
        unit.mixed = arena_take(p, rows * e->code_stride);
        unit.hidden = arena_take(p, rows * e->hidden_stride);
        thread_memory memory = {.patches = arena_take(p, PATCH_ROWS * e->patch.inputs * 2)};
        memory.acc = arena_take(p, e->tokens * e->acc_stride * 4);
        memory.mass = arena_take(p, e->m.heads * e->tokens * 4);
        memory.scratch = arena_take(p, scratch);
        memory.token = arena_take(p, round_up(e->m.width, HEAD_UNIT) * 2);
        memory.unpacked = arena_take(p, e->low_memory ? unpacked_bytes(e->functions, inputs) : 0);
        if (p->base) e->units[i] = unit, e->memory[i] = memory;
    }
}

/* What the layouts and sums of this engine hold; whoever widens a limit of the schema widens these first. */
_Static_assert(MAX_WINDOW <= 63, "codes less the lowest fit 7 bits, and levels fit the nodes of a ladder");
_Static_assert(MAX_WIDTH <= 1 << 16 && MAX_WIDTH * MAX_MLP_RATIO <= 1 << 20, "sums of a layer fit 32 bits");
_Static_assert(STREAM_BITS <= 28, "the stream with an addition fits 32 bits");

int32_t lapis_engine_create(const lapis_model *model, int32_t threads, int32_t low_memory, lapis_engine **engine) {
    lapis_engine *e = calloc(1, sizeof *e);
    if (!e) return LAPIS_OUT_OF_MEMORY;
    const lapis_isa *isa = current_isa();
    int64_t grid = model->image_size / model->patch_size;
    e->kernels = isa->kernels;
    e->functions = isa->engine;
    e->m = *model;
    e->low_memory = low_memory;
    e->patches = grid * grid;
    e->tokens = e->patches + 1;
    e->channels = model->width / model->heads;
    e->acc_stride = round_up(e->channels, 16);
    e->threads = threads < MAX_TEAM ? threads : MAX_TEAM;
    pace_start(&e->pace, e->threads);
    int64_t unit = UNIT_ROWS / e->tokens;
    e->unit_images = unit < 1 ? 1 : unit > MAX_UNIT ? MAX_UNIT : unit;
    e->stream_stride = round_up(model->width, STREAM_UNIT);
    e->code_stride = code_stride(model->width);
    e->qkv_stride = code_stride(3 * model->width);
    e->hidden_stride = code_stride(model->hidden);
    int status = LAPIS_OK;
    for (int pass = 0; pass < 2 && !status; pass++) {
        plan_weights(e);
        plan_work(e);
        if (pass) break;
        e->weight_bytes = (int64_t)e->weights.used;
        e->work_bytes = (int64_t)e->work.used;
        if (!arena_open(&e->weights) || !arena_open(&e->work)) status = LAPIS_OUT_OF_MEMORY;
    }
    arena_end_packing(&e->weights);
    /* Nothing of the caller's is kept. */
    e->m.patch_weight = NULL, e->m.patch_shift = NULL, e->m.position = NULL, e->m.head_weight = NULL;
    e->m.head_bias = NULL, e->m.blocks = NULL;
    *engine = status ? NULL : e;
    if (status) lapis_engine_destroy(e);
    return status;
}

void lapis_engine_destroy(lapis_engine *engine) {
    if (!engine) return;
    arena_close(&engine->weights);
    arena_close(&engine->work);
    free(engine);
}

int64_t lapis_engine_bytes(const lapis_engine *engine, int32_t working) {
    return working ? engine->work_bytes : engine->weight_bytes;
}
