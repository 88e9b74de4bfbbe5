/* From the tensors of a checked file to the engine: affinity tables from membranes, delays of all pairs of tokens. */
#include <stdlib.h>

#include "packed.h"

static const uint32_t START_MANTISSA = UINT32_C(1) << 31;

/* The affinities of one block. Exponents never fall with the distance, so those that are equal lie together. */
typedef struct {
    int64_t distances, exponents;
    uint32_t *mantissa; /* [H, distances] membranes */
    int64_t *exponent;
    uint16_t *row;   /* [H, distances]: which of the head's exponents each distance has */
    uint16_t *table; /* [H, exponents, distances] */
    int32_t *delay;  /* [H, N, N] or NULL */
} affinities;

/* One head's membranes after 0, 1, 2, ... steps of leak. */
static void leak(uint32_t factor, int32_t exponent, int64_t distances, uint32_t *mantissas, int64_t *exponents) {
    uint64_t value = START_MANTISSA;
    int64_t power = START_EXPONENT;
    for (int64_t step = 0; step < distances; step++) {
        mantissas[step] = (uint32_t)value;
        exponents[step] = power;
        const uint64_t product = value * factor;
        const int large = (int)(product >> 63);
        value = product >> (large ? 32 : 31);
        power += exponent + !large;
    }
}

static void fill_membranes(const packed *file, int64_t block, affinities *a) {
    const int64_t heads = file->header.heads, size = a->distances;
    for (int64_t head = 0; head < heads; head++) {
        const int64_t stored = block * heads + head;
        uint32_t *mantissa = a->mantissa + head * size;
        int64_t *exponent = a->exponent + head * size;
        if (file->header.relation == RELATION_LAPLACIAN || file->header.relation == RELATION_DOT) {
            leak(((const uint32_t *)file->tensors[LEAK_MANTISSA].items)[stored],
                 ((const int32_t *)file->tensors[LEAK_EXPONENT].items)[stored], size, mantissa, exponent);
            continue;
        }
        for (int64_t i = 0; i < size; i++) {
            const int64_t at = stored * size + i;
            mantissa[i] = ((const uint32_t *)file->tensors[AFFINITY_MANTISSA].items)[at];
            exponent[i] = ((const int32_t *)file->tensors[AFFINITY_EXPONENT].items)[at];
        }
    }
}

/* Number the exponents that each head passes through; the most of a head are the rows of the table. `one_row`: the
 * nearest key always is at distance 0. */
static void number_rows(int64_t heads, int one_row, affinities *a) {
    a->exponents = 0;
    for (int64_t head = 0; head < heads; head++) {
        const int64_t *exponent = a->exponent + head * a->distances;
        int64_t row = 0;
        for (int64_t i = 0; i < a->distances; i++) {
            row += i && !one_row && exponent[i] != exponent[i - 1];
            a->row[head * a->distances + i] = (uint16_t)row;
        }
        a->exponents = row + 1 > a->exponents ? row + 1 : a->exponents;
    }
}

/* Every membrane as it is read with the gain of each row, in so many bits. */
static void fill_table(int64_t heads, int64_t bits, affinities *a) {
    const int64_t most = (INT64_C(1) << bits) - 1;
    for (int64_t head = 0; head < heads; head++) {
        const uint32_t *mantissa = a->mantissa + head * a->distances;
        const int64_t *exponent = a->exponent + head * a->distances;
        uint16_t *table = a->table + head * a->exponents * a->distances;
        for (int64_t nearest = 0; nearest < a->distances; nearest++) {
            if (nearest && a->row[head * a->distances + nearest] == a->row[head * a->distances + nearest - 1]) continue;
            uint16_t *row = table + a->row[head * a->distances + nearest] * a->distances;
            /* No key is nearer than the nearest, and nothing is left of a mantissa that is cut by more than its bits.
             */
            for (int64_t i = nearest; i < a->distances; i++) {
                int64_t cut = exponent[i] - exponent[nearest] + MANTISSA_BITS - bits;
                if (cut > MANTISSA_BITS) break;
                cut = cut < 1 ? 1 : cut;
                const int64_t affinity = (int64_t)((mantissa[i] + (UINT64_C(1) << (cut - 1))) >> cut);
                row[i] = (uint16_t)(affinity < most ? affinity : most);
            }
        }
    }
}

/* The row of the delays that a pair of tokens has; the class token is token 0. */
static int64_t offset_of(int64_t grid, int64_t i, int64_t j) {
    const int64_t span = 2 * grid - 1;
    if (!i || !j) return span * span + (i ? 1 : j ? 0 : 2);
    return ((i - 1) / grid - (j - 1) / grid + grid - 1) * span + (i - 1) % grid - (j - 1) % grid + grid - 1;
}

static int fill_delays(const packed *file, int64_t block, affinities *a) {
    const packed_header *h = &file->header;
    const int64_t n = h->tokens, heads = h->heads, offsets = file->tensors[LEAK_DELAY].shape[1];
    const uint16_t *delay = (const uint16_t *)file->tensors[LEAK_DELAY].items + block * offsets * heads;
    if (!(a->delay = malloc((size_t)(heads * n * n) * sizeof *a->delay))) return 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t head = 0; head < heads; head++)
                a->delay[(head * n + i) * n + j] = delay[offset_of(h->grid, i, j) * heads + head];
    return 1;
}

/* The distances of a block, 0 included: those of codes, and the longest delay. Every offset occurs in some pair. */
static int64_t distances_of(const packed *file, int64_t block) {
    const packed_header *h = &file->header;
    const int64_t each = file->tensors[LEAK_DELAY].shape[1] * h->heads;
    int64_t longest = 0;
    for (int64_t i = 0; (h->style == STYLE_BEIT) && i < each; i++) {
        const uint16_t delay = ((const uint16_t *)file->tensors[LEAK_DELAY].items)[block * each + i];
        longest = delay > longest ? delay : longest;
    }
    return h->code_distances + longest;
}

/* Membranes of all blocks first: the entries of all tables are counted before the first is built. */
static int32_t fill_affinities(const packed *file, affinities *all, lapis_error *error) {
    const packed_header *h = &file->header;
    int64_t entries = 0, rows = 0;
    for (int64_t block = 0; block < h->depth; block++) {
        affinities *a = &all[block];
        a->distances = distances_of(file, block);
        const size_t count = (size_t)(h->heads * a->distances);
        a->mantissa = malloc(count * sizeof *a->mantissa);
        a->exponent = malloc(count * sizeof *a->exponent);
        a->row = malloc(count * sizeof *a->row);
        if (!a->mantissa || !a->exponent || !a->row) return no_memory(error);
        fill_membranes(file, block, a);
        number_rows(h->heads, h->relation == RELATION_DOT, a);
        entries += h->heads * a->exponents * a->distances;
        rows = a->exponents > rows ? a->exponents : rows;
    }
    if (entries > h->allowance || rows > MAX_GAINS)
        return report(error, LAPIS_UNSUPPORTED,
                      "affinity tables of %lld entries are too large, at most %lld are possible; "
                      "use a longer time constant or shorter delays",
                      (long long)entries, (long long)h->allowance);
    for (int64_t block = 0; block < h->depth; block++) {
        affinities *a = &all[block];
        /* Rows beyond those of a head stay zero and are never read. */
        a->table = calloc((size_t)(h->heads * a->exponents * a->distances), sizeof *a->table);
        if (!a->table || ((h->style == STYLE_BEIT) && !fill_delays(file, block, a))) return no_memory(error);
        fill_table(h->heads, h->affinity_bits, a);
    }
    return LAPIS_OK;
}

static void free_affinities(affinities *all, int64_t depth) {
    for (int64_t block = 0; all && block < depth; block++) {
        free(all[block].mantissa);
        free(all[block].exponent);
        free(all[block].row);
        free(all[block].table);
        free(all[block].delay);
    }
    free(all);
}

static const float *floats(const packed *file, int index, int64_t block, int64_t each) {
    return (const float *)file->tensors[index].items + block * each;
}

static lapis_layer layer_of(const packed *file, int weight, int64_t block) {
    const tensor *t = &file->tensors[weight];
    return (lapis_layer){(const int8_t *)t->items + block * t->shape[1] * t->columns,
                         floats(file, weight + 1, block, t->shape[1]), floats(file, weight + 2, block, t->shape[1])};
}

static lapis_block block_of(const packed *file, int64_t i, const affinities *a) {
    const packed_header *h = &file->header;
    const int64_t d = h->width, levels = file->tensors[RISE].shape[1];
    return (lapis_block){.attention_gain = floats(file, ATTENTION_NORM_GAIN, i, d),
                         .attention_shift = floats(file, ATTENTION_NORM_SHIFT, i, d),
                         .qkv = layer_of(file, QKV_WEIGHT, i),
                         .table = a->table,
                         .row_exponent = a->row,
                         .exponents = a->exponents,
                         .distances = a->distances,
                         .delay = a->delay,
                         .readout_scale = *floats(file, READOUT_SCALE, i, 1),
                         .readout_shift = *floats(file, READOUT_SHIFT, i, 1),
                         .proj = layer_of(file, PROJ_WEIGHT, i),
                         .mlp_gain = floats(file, MLP_NORM_GAIN, i, d),
                         .mlp_shift = floats(file, MLP_NORM_SHIFT, i, d),
                         .fc1 = layer_of(file, FC1_WEIGHT, i),
                         .rise = floats(file, RISE, i, levels),
                         .fall = floats(file, FALL, i, levels),
                         .fc2 = layer_of(file, FC2_WEIGHT, i),
                         .min_code_attention = h->min_code[AT_ATTENTION_IN][i],
                         .min_code_qk = h->min_code[AT_QK][i],
                         .min_code_v = h->min_code[AT_V][i],
                         .min_code_readout = h->min_code[AT_READOUT][i],
                         .min_code_mlp = h->min_code[AT_MLP_IN][i],
                         .min_code_hidden = h->min_code[AT_MLP_HIDDEN][i],
                         .attention_activity = h->activity[LAPIS_AT_ATTENTION][i],
                         .readout_activity = h->activity[LAPIS_AT_READOUT][i],
                         .mlp_activity = h->activity[LAPIS_AT_MLP][i],
                         .hidden_activity = h->activity[LAPIS_AT_HIDDEN][i]};
}

static lapis_model model_of(const packed *file, const lapis_block *blocks) {
    const packed_header *h = &file->header;
    return (lapis_model){.image_size = h->image_size,
                         .patch_size = h->patch_size,
                         .width = h->width,
                         .heads = h->heads,
                         .hidden = h->hidden,
                         .depth = h->depth,
                         .classes = h->classes,
                         .position_rows = file->tensors[POSITION].shape[0],
                         .relation = h->relation == RELATION_DOT ? LAPIS_DOT : LAPIS_L1,
                         .window = (int32_t)h->window,
                         .low_attention = h->low[AT_ATTENTION_IN],
                         .low_qk = h->low[AT_QK],
                         .low_v = h->low[AT_V],
                         .low_readout = h->low[AT_READOUT],
                         .low_mlp = h->low[AT_MLP_IN],
                         .low_hidden = h->low[AT_MLP_HIDDEN],
                         .mean_pooling = (h->style == STYLE_BEIT),
                         .eps = NORM_EPS * (double)(INT64_C(1) << 2 * h->fraction_bits),
                         .patch_weight = file->tensors[PATCH_WEIGHT].items,
                         .patch_shift = file->tensors[PATCH_SHIFT].items,
                         .position = file->tensors[POSITION].items,
                         .head_weight = file->tensors[HEAD_WEIGHT].items,
                         .head_bias = file->tensors[HEAD_BIAS].items,
                         .blocks = blocks};
}

static int32_t check_runnable(const packed_header *h, lapis_error *error) {
    if (h->tokens * AFFINITY_MAX * (h->window - h->low[AT_V]) > INT32_MAX)
        return report(error, LAPIS_UNSUPPORTED,
                      "%lld tokens with value codes of %lld levels could overflow 32-bit sums; use at most %lld tokens",
                      (long long)h->tokens, (long long)(h->window - h->low[AT_V]),
                      (long long)(INT32_MAX / (AFFINITY_MAX * (h->window - h->low[AT_V]))));
    return LAPIS_OK;
}

int32_t make_engine(const packed *file, int32_t threads, int32_t low_memory, lapis_engine **engine,
                    lapis_error *error) {
    const int64_t depth = file->header.depth;
    int32_t status = check_runnable(&file->header, error);
    if (status) return status;
    affinities *all = calloc((size_t)depth, sizeof *all);
    lapis_block *blocks = calloc((size_t)depth, sizeof *blocks);
    status = all && blocks ? fill_affinities(file, all, error) : no_memory(error);
    if (!status) {
        for (int64_t i = 0; i < depth; i++) blocks[i] = block_of(file, i, &all[i]);
        const lapis_model model = model_of(file, blocks);
        status = lapis_engine_create(&model, threads, low_memory, engine);
        if (status == LAPIS_OUT_OF_MEMORY)
            no_memory(error);
        else if (status)
            report(error, (lapis_status)status, "the engine refused this network");
    }
    free_affinities(all, depth);
    free(blocks);
    return status;
}
