/* Distances by sum |q - k| = sum q + sum k - 2 sum min(q, k): no overflow logic, any window.
 *
 * Keys lie across the lanes, four channels of a key in a dword. Without VNNI, minima gather in bytes: 255 / max of them
 * fit, then they are widened. Hamming counts min(q ^ k, 1) the same way. */

typedef struct {
    prepared q, k;
    uint8_t *tiles;  /* q as [rows / STRIP_ROWS][groups][STRIP_ROWS][4] */
    uint8_t *packed; /* k as [keys / LANES][groups][LANES][4] */
    int64_t groups; /* of four channels */
    int64_t period; /* groups whose bytes can be added before they are widened */
    int32_t relation;
} distance_plan;

/* Rows that are scored at a time. */
enum { STRIP_ROWS = 12 };

/* A strip's last vector may be read whole. */
static int64_t tiles_bytes(int64_t rows, int64_t channels) {
    return round_up(round_up(rows, STRIP_ROWS) * padded_width(channels), 64) + 64;
}

/* The dwords of a strip's rows side by side: one pointer walks them all. Four tokens of x at a time are read. */
static void pack_rows(const uint8_t *x, int64_t width, int64_t from, int64_t tokens, int64_t groups, uint8_t *out) {
    for (int64_t i = from; i < tokens; i += 4)
        for (int64_t g = 0; g < groups; g += 4) {
            __m128i row[4];
            for (int r = 0; r < 4; r++) row[r] = _mm_loadu_si128((const __m128i *)(x + (i + r) * width + 4 * g));
            __m128i a = _mm_unpacklo_epi32(row[0], row[1]), b = _mm_unpacklo_epi32(row[2], row[3]);
            __m128i c = _mm_unpackhi_epi32(row[0], row[1]), d = _mm_unpackhi_epi32(row[2], row[3]);
            __m128i column[4] = {_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b), _mm_unpacklo_epi64(c, d),
                                 _mm_unpackhi_epi64(c, d)};
            uint8_t *to = out + ((i / STRIP_ROWS * groups + g) * STRIP_ROWS + i % STRIP_ROWS) * 4;
            for (int k = 0; k < 4 && g + k < groups; k++)
                _mm_storeu_si128((__m128i *)(to + k * STRIP_ROWS * 4), column[k]);
        }
}

#if LAPIS_VNNI
/* Sums of packed tokens, which lie in lanes. */
static void sum_packed(const uint8_t *packed, int64_t lanes, int64_t tokens, int64_t groups, int32_t *sums) {
    const ints ones = all8(1);
    for (int64_t n = 0; n < tokens; n += lanes) {
        ints sum = zero_ints();
        for (int64_t g = 0; g < groups; g++, packed += 4 * lanes) dot_add(sum, load_ints(packed), ones);
        store_ints(sums + n, sum);
    }
}

typedef void (*packing)(const uint8_t *, int64_t, int64_t, int64_t, int64_t, uint8_t *);

/* u8 codes that fill their vectors are packed from where they lie, but for the last tokens, which need zeros behind. */
static void pack_in_place(const uint8_t *x, int64_t stride, prepared *m, packing pack, int64_t lanes, uint8_t *out) {
    int64_t groups = m->width / 4, whole = m->tokens / TOKEN_UNIT * TOKEN_UNIT;
    pack(x, stride, 0, whole, groups, out);
    for (int64_t n = whole; n < m->tokens; n++) memcpy(m->codes + n * m->width, x + n * stride, (size_t)m->width);
    pack(m->codes, m->width, whole, m->tokens, groups, out);
    sum_packed(out, lanes, m->tokens, groups, m->sums);
}
#endif

static int64_t distance_plan_bytes(const lapis_pairs *p) {
    return prepared_bytes(p->rows, p->channels) + prepared_bytes(p->keys, p->channels) +
           tiles_bytes(p->rows, p->channels) + round_up(padded_tokens(p->keys) * padded_width(p->channels), 64);
}

static int plan_distance(const lapis_pairs *p, const void *q, const void *k, int64_t b, int64_t h, int64_t from,
                         int64_t to, unsigned char **scratch, distance_plan *plan) {
    plan->q = carve_prepared(scratch, to - from, p->channels);
    plan->k = carve_prepared(scratch, p->keys, p->channels);
    plan->tiles = carve(scratch, tiles_bytes(to - from, p->channels));
    plan->packed = carve(scratch, padded_tokens(p->keys) * padded_width(p->channels));
    plan->groups = (p->channels + 3) / 4;
    plan->relation = p->relation;
#if LAPIS_VNNI
    if (p->code_type == LAPIS_CODES_U8 && p->channels == plan->q.width) {
        const uint8_t *rows = (const uint8_t *)q + at(p->q_stride, b, h, from);
        const uint8_t *keys = (const uint8_t *)k + at(p->k_stride, b, h, 0);
        pack_in_place(rows, p->q_stride[2], &plan->q, pack_rows, STRIP_ROWS, plan->tiles);
        pack_in_place(keys, p->k_stride[2], &plan->k, pack_keys, LANES, plan->packed);
        return LAPIS_OK;
    }
#endif
    int status = prepare_pair(p, q, k, b, h, from, &plan->q, &plan->k);
    if (status) return status;
    int most = plan->q.max < plan->k.max ? plan->q.max : plan->k.max;
    plan->period = 255 / (p->relation == LAPIS_HAMMING || most < 1 ? 1 : most);
    pack_rows(plan->q.codes, plan->q.width, 0, plan->q.tokens, plan->groups, plan->tiles);
    pack_keys(plan->k.codes, plan->k.width, 0, plan->k.tokens, plan->groups, plan->packed);
    return LAPIS_OK;
}

/* Accumulators live in registers only if every loop over them is unrolled. */
#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))
#include "../simd/settle.h"

INLINE ints broadcast_dword(const uint8_t *p) {
    int32_t dword;
    memcpy(&dword, p, 4);
    return all32(dword);
}

INLINE ints compare_codes(const int relation, ints q, ints k) {
    return relation == LAPIS_L1 ? min_u8(q, k) : min_u8(xor_ints(q, k), all8(1));
}

/* d[TILE_ROWS][2]: rows of q against vecs * LANES keys, whose packed blocks follow each other. */
INLINE void distance_tile(const int rows, const int vecs, const int relation, const uint8_t *q,
                          const int32_t *q_sums, const uint8_t *k, const int32_t *k_sums, int64_t groups,
                          int64_t period, ints d[][2]) {
    UNROLL for (int v = 0; v < vecs; v++)
        UNROLL for (int r = 0; r < rows; r++)
            d[r][v] = relation == LAPIS_L1 ? add32(all32(q_sums[r]), load_ints(k_sums + v * LANES)) : zero_ints();
#if LAPIS_VNNI
    (void)period;
    const ints weight = all8(relation == LAPIS_L1 ? -2 : 1);
    for (int64_t g = 0; g < groups; g++) {
        ints key[2];
        UNROLL for (int v = 0; v < vecs; v++) key[v] = load_ints(k + (v * groups + g) * LANES * 4);
        UNROLL for (int r = 0; r < rows; r++) {
            ints query = broadcast_dword(q + (g * STRIP_ROWS + r) * 4);
            UNROLL for (int v = 0; v < vecs; v++)
                dot_add(d[r][v], compare_codes(relation, query, key[v]), weight);
        }
    }
#else
    const ints weight = all16(relation == LAPIS_L1 ? -2 : 1), ones = all8(1);
    for (int64_t start = 0; start < groups; start += period) {
        int64_t stop = start + period < groups ? start + period : groups;
        ints sum[TILE_ROWS][2];
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = zero_ints();
        for (int64_t g = start; g < stop; g++) {
            ints key[2];
            UNROLL for (int v = 0; v < vecs; v++) key[v] = load_ints(k + (v * groups + g) * LANES * 4);
            UNROLL for (int r = 0; r < rows; r++) {
                ints query = broadcast_dword(q + (g * STRIP_ROWS + r) * 4);
                UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = add8(sum[r][v], compare_codes(relation, query, key[v]));
                SETTLE(sum[r][0], sum[r][vecs - 1]);
            }
        }
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int v = 0; v < vecs; v++)
                d[r][v] = add32(d[r][v], multiply_s16(multiply_u8_s8(sum[r][v], ones), weight));
    }
#endif
}

/* One tile to `out` [rows, stride]. As much memory from `soon` on, where sums go afterwards, is fetched meanwhile. */
INLINE void distance_store(const int rows, const int vecs, const int relation, const distance_plan *plan, int64_t row,
                           int64_t block, int32_t *out, int64_t stride, const char *soon) {
    ints d[TILE_ROWS][2];
    if (soon)
        UNROLL for (int i = 0; i < rows * vecs * LANES * 4; i += 64)
            __builtin_prefetch(soon + block * LANES * 4 * rows + i, 1);
    const uint8_t *q = plan->tiles + (row / STRIP_ROWS * plan->groups * STRIP_ROWS + row % STRIP_ROWS) * 4;
    const uint8_t *k = plan->packed + block * plan->groups * LANES * 4;
    distance_tile(rows, vecs, relation, q, plan->q.sums + row, k, plan->k.sums + block * LANES, plan->groups,
                  plan->period, d);
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < vecs; v++) store_ints(out + r * stride + v * LANES, d[r][v]);
}

#define ROWS_OF_TILES(rows_)                                                                                           \
    static __attribute__((noinline)) void distance_strip_##rows_(const distance_plan *plan, int64_t row, int32_t *out, \
                                                                 int64_t stride, const char *soon) {                   \
        int64_t block = 0, blocks = (plan->k.tokens + LANES - 1) / LANES;                                              \
        if (plan->relation == LAPIS_L1) {                                                                              \
            for (; block + 2 <= blocks; block += 2)                                                                    \
                distance_store(rows_, 2, LAPIS_L1, plan, row, block, out + block * LANES, stride, soon);               \
            if (block < blocks)                                                                                        \
                distance_store(rows_, 1, LAPIS_L1, plan, row, block, out + block * LANES, stride, soon);               \
        } else {                                                                                                       \
            for (; block < blocks; block++)                                                                            \
                distance_store(rows_, 1, LAPIS_HAMMING, plan, row, block, out + block * LANES, stride, soon);          \
        }                                                                                                              \
    }

#if LAPIS_WIDE
ROWS_OF_TILES(12)
#endif
ROWS_OF_TILES(6)
ROWS_OF_TILES(3)
ROWS_OF_TILES(1)

/* Rows row..row+count of a strip, which starts at `row`, against every key to out [STRIP_ROWS, stride]. Whole vectors
 * are written, and rows up to the next size of a tile: to compute them costs less than to do without. */
static void distance_rows(const distance_plan *plan, int64_t row, int64_t count, int32_t *out, int64_t stride,
                          const char *soon) {
    if (count > 6) {
#if LAPIS_WIDE
        distance_strip_12(plan, row, out, stride, soon);
        return;
#else
        distance_strip_6(plan, row, out, stride, soon);
        row += 6, count -= 6, out += 6 * stride;
#endif
    }
    if (count > 3)
        distance_strip_6(plan, row, out, stride, soon);
    else if (count > 1)
        distance_strip_3(plan, row, out, stride, soon);
    else
        distance_strip_1(plan, row, out, stride, soon);
}

/* A row's room in a strip of distances: whole pairs of vectors. */
static int64_t padded_columns(int64_t keys) { return round_up(keys, 2 * LANES); }

static int64_t strip_bytes(int64_t keys) { return round_up(STRIP_ROWS * padded_columns(keys) * 4, 64); }

static size_t distance_scratch(const lapis_pairs *p) { return (size_t)(distance_plan_bytes(p) + strip_bytes(p->keys)); }

/* A row of sums to the result, which is read and written in order: tiles written there directly would each touch many
 * lines, and most of them twice. */
static void deliver(const int32_t *d, int64_t count, int32_t out_type, void *out) {
    if (out_type == LAPIS_OUT_I32) {
        memcpy(out, d, (size_t)count * 4);
        return;
    }
    float *to = out;
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES) store_floats(to + j, to_floats(load_ints(d + j)));
    for (; j < count; j++) to[j] = (float)d[j];
}

static int distance(const distance_call *call, int64_t b, int64_t h, int64_t from, int64_t to,
                    unsigned char *scratch) {
    const lapis_pairs *p = &call->p;
    if (from >= to) return LAPIS_OK;
    distance_plan plan;
    int status = plan_distance(p, call->q, call->k, b, h, from, to, &scratch, &plan);
    if (status) return status;
    int64_t stride = padded_columns(p->keys);
    int32_t *strip = carve(&scratch, strip_bytes(p->keys));
    char *out = (char *)call->out + ((b * p->heads + h) * p->rows + from) * p->keys * 4;
    for (int64_t i = 0; i < to - from; i += STRIP_ROWS) {
        int64_t rows = to - from - i < STRIP_ROWS ? to - from - i : STRIP_ROWS;
        distance_rows(&plan, i, rows, strip, stride, out);
        for (int64_t r = 0; r < rows; r++, out += p->keys * 4)
            deliver(strip + r * stride, p->keys, call->out_type, out);
    }
    return LAPIS_OK;
}
