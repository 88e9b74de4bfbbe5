/* Distances by sum |q - k| = sum q + sum k - 2 sum min(q, k): no overflow logic, any window.
 *
 * Keys lie across the lanes, four channels of a key in a dword. Without VNNI, minima gather in bytes: 255 / max of them
 * fit, then they are widened. Hamming counts min(q ^ k, 1) the same way. */

typedef struct {
    prepared q, k;
    uint8_t *packed;
    int64_t groups; /* of four channels */
    int64_t period; /* groups whose bytes can be added before they are widened */
    int32_t relation;
} distance_plan;

static int64_t distance_plan_bytes(const lapis_pairs *p) {
    return prepared_bytes(p->rows, p->channels) + prepared_bytes(p->keys, p->channels) +
           round_up(padded_tokens(p->keys) * padded_width(p->channels), 64);
}

static int plan_distance(const lapis_pairs *p, const void *q, const void *k, int64_t b, int64_t h, int64_t from,
                         int64_t to, unsigned char **scratch, distance_plan *plan) {
    plan->q = carve_prepared(scratch, to - from, p->channels);
    plan->k = carve_prepared(scratch, p->keys, p->channels);
    plan->packed = carve(scratch, padded_tokens(p->keys) * padded_width(p->channels));
    int status = prepare_pair(p, q, k, b, h, from, &plan->q, &plan->k);
    if (status) return status;
    plan->groups = (p->channels + 3) / 4;
    plan->relation = p->relation;
    int most = plan->q.max < plan->k.max ? plan->q.max : plan->k.max;
    plan->period = 255 / (p->relation == LAPIS_HAMMING || most < 1 ? 1 : most);
    pack_keys(&plan->k, plan->groups, plan->packed);
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
INLINE void distance_tile(const int rows, const int vecs, const int relation, const uint8_t *q, int64_t q_width,
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
            ints query = broadcast_dword(q + r * q_width + 4 * g);
            UNROLL for (int v = 0; v < vecs; v++)
                d[r][v] = _mm512_dpbusd_epi32(d[r][v], compare_codes(relation, query, key[v]), weight);
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
                ints query = broadcast_dword(q + r * q_width + 4 * g);
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

/* One tile to `out` [rows, stride], of which `left` columns from here on exist. */
INLINE void distance_store(const int rows, const int vecs, const int relation, const distance_plan *plan, int64_t row,
                           int64_t block, void *out, int64_t stride, int64_t left, int32_t out_type) {
    ints d[TILE_ROWS][2];
    distance_tile(rows, vecs, relation, plan->q.codes + row * plan->q.width, plan->q.width, plan->q.sums + row,
                  plan->packed + block * plan->groups * LANES * 4, plan->k.sums + block * LANES, plan->groups,
                  plan->period, d);
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < vecs; v++) {
            int64_t count = left - v * LANES;
            if (out_type == LAPIS_OUT_I32)
                store_some((int32_t *)out + r * stride + v * LANES, d[r][v], count, store_ints);
            else
                store_some((float *)out + r * stride + v * LANES, to_floats(d[r][v]), count, store_floats);
        }
}

#define ROWS_OF_TILES(rows_)                                                                                   \
    static __attribute__((noinline)) void distance_strip_##rows_(const distance_plan *plan, int64_t row, char *out,        \
                                                     int64_t stride, int64_t columns, int32_t out_type) {      \
        int64_t block = 0, blocks = (columns + LANES - 1) / LANES;                                             \
        if (plan->relation == LAPIS_L1) {                                                                      \
            for (; block + 2 <= blocks; block += 2)                                                            \
                distance_store(rows_, 2, LAPIS_L1, plan, row, block, out + block * LANES * 4, stride,          \
                               columns - block * LANES, out_type);                                             \
            if (block < blocks)                                                                                \
                distance_store(rows_, 1, LAPIS_L1, plan, row, block, out + block * LANES * 4, stride,          \
                               columns - block * LANES, out_type);                                             \
        } else {                                                                                               \
            for (; block < blocks; block++)                                                                    \
                distance_store(rows_, 1, LAPIS_HAMMING, plan, row, block, out + block * LANES * 4, stride,     \
                               columns - block * LANES, out_type);                                             \
        }                                                                                                      \
    }

#if LAPIS_WIDE
ROWS_OF_TILES(12)
#endif
ROWS_OF_TILES(6)
ROWS_OF_TILES(3)
ROWS_OF_TILES(1)

/* Rows row..row+count of the plan against every key, to out [count, stride]. */
static void distance_rows(const distance_plan *plan, int64_t row, int64_t count, void *out, int64_t stride,
                          int64_t columns, int32_t out_type) {
    char *to = out;
    for (int64_t done = 0; done < count;) {
        int64_t left = count - done;
#if LAPIS_WIDE
        if (left >= 12) {
            distance_strip_12(plan, row + done, to + done * stride * 4, stride, columns, out_type), done += 12;
            continue;
        }
#endif
        if (left >= 6)
            distance_strip_6(plan, row + done, to + done * stride * 4, stride, columns, out_type), done += 6;
        else if (left >= 3)
            distance_strip_3(plan, row + done, to + done * stride * 4, stride, columns, out_type), done += 3;
        else
            distance_strip_1(plan, row + done, to + done * stride * 4, stride, columns, out_type), done += 1;
    }
}

static size_t distance_scratch(const lapis_pairs *p) { return (size_t)distance_plan_bytes(p); }

static int distance(const distance_call *call, int64_t b, int64_t h, int64_t from, int64_t to,
                    unsigned char *scratch) {
    const lapis_pairs *p = &call->p;
    if (from >= to) return LAPIS_OK;
    distance_plan plan;
    int status = plan_distance(p, call->q, call->k, b, h, from, to, &scratch, &plan);
    if (status) return status;
    char *out = (char *)call->out + ((b * p->heads + h) * p->rows + from) * p->keys * 4;
    distance_rows(&plan, 0, to - from, out, p->keys, p->keys, call->out_type);
    return LAPIS_OK;
}
