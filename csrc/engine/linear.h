/* Linear layers: u8 codes by s8 weights, and what follows them in the same registers.
 *
 * A tile is TILE_ROWS tokens by two vectors of outputs. Without VNNI, products of two pairs are summed in 16 bits for as
 * long as the layer's own weights prove that nothing can overflow (`period`), so an inner step is one multiplication
 * and one addition; int8 engines that must widen every product need three instructions. */

#include "../simd/settle.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

enum { PANEL = 2 * LANES };

/* Tokens whose codes stay in the second-level cache while every panel passes over them. */
enum { CACHED_CODES = 256 << 10 };

INLINE ints four_codes(const uint8_t *p) {
    int32_t dword;
    memcpy(&dword, p, 4);
    return all32(dword);
}

/* 0..255 of sixteen integers, less `least` in 16 bits. */
INLINE __m128i narrow_codes(__m256i a, __m256i b, __m256i least) {
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    words = _mm256_subs_epi16(words, least);
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

/* floor(pre), right up to 2^30; below -2^31 it is -2^31. Narrowing then clamps it, for nothing. */
INLINE __m256i floored(__m256 pre) {
    return _mm256_cvtps_epi32(_mm256_floor_ps(_mm256_min_ps(pre, _mm256_set1_ps(0x1p30F))));
}

INLINE __m256 affine(const linear *layer, int64_t column, __m256i total) {
    return _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(total), _mm256_loadu_ps(layer->scale + column)),
                         _mm256_loadu_ps(layer->shift + column));
}

/* The node of one level of the search: 2^level entries, eight to a register. */
INLINE __m256 tree_node(const float *nodes, int level, __m256i index) {
    __m256 node = _mm256_permutevar8x32_ps(_mm256_loadu_ps(nodes), index);
    for (int i = 1; i < 1 << (level - 3); i++) {
        __m256 other = _mm256_permutevar8x32_ps(_mm256_loadu_ps(nodes + 8 * i), index);
        __m256i here = _mm256_cmpeq_epi32(_mm256_srli_epi32(index, 3), _mm256_set1_epi32(i));
        node = _mm256_blendv_ps(node, other, _mm256_castsi256_ps(here));
    }
    return node;
}

INLINE __m256i climbed(const ladder *steps, __m256 pre) {
    __m256i count = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cmp_ps(pre, _mm256_broadcast_ss(steps->tree[0]), _CMP_GE_OQ)), 31);
    UNROLL for (int level = 1; level < 4; level++) {
        __m256 node = _mm256_permutevar8x32_ps(_mm256_loadu_ps(steps->tree[level]), count);
        __m256i over = _mm256_castps_si256(_mm256_cmp_ps(pre, node, _CMP_GE_OQ));
        count = _mm256_sub_epi32(_mm256_add_epi32(count, count), over);
    }
    for (int level = 4; level < steps->depth; level++) {
        __m256i over = _mm256_castps_si256(_mm256_cmp_ps(pre, tree_node(steps->tree[level], level, count), _CMP_GE_OQ));
        count = _mm256_sub_epi32(_mm256_add_epi32(count, count), over);
    }
    for (int i = 0; i < steps->falls; i++) {
        __m256 fall = _mm256_broadcast_ss(steps->only_fall + i);
        count = _mm256_sub_epi32(count, _mm256_castps_si256(_mm256_cmp_ps(pre, fall, _CMP_LE_OQ)));
    }
    return count;
}

INLINE __m256i moved(const int32_t *stream, __m256 pre, int32_t limit) {
    __m256i delta = _mm256_cvtps_epi32(_mm256_floor_ps(pre));
    __m256i sum = _mm256_add_epi32(_mm256_loadu_si256((const __m256i *)stream), delta);
    return _mm256_max_epi32(_mm256_min_epi32(sum, _mm256_set1_epi32(limit - 1)), _mm256_set1_epi32(-limit));
}

/* Sixteen outputs of one token, from `column` on. */
INLINE void finish(const int kind, const linear_call *call, int64_t row, int64_t column, __m256i a, __m256i b) {
    const linear *layer = call->layer;
    __m256 pre_a = affine(layer, column, a), pre_b = affine(layer, column + 8, b);
    if (kind == TO_STREAM) {
        int32_t *stream = call->stream + row * call->stream_stride + column;
        _mm256_storeu_si256((__m256i *)stream, moved(stream, pre_a, call->limit));
        _mm256_storeu_si256((__m256i *)(stream + 8), moved(stream + 8, pre_b, call->limit));
        return;
    }
    uint8_t *out = call->out + row * call->out_stride + column;
    if (kind == TO_CODES) {
        __m256i least = _mm256_loadu_si256((const __m256i *)(layer->least + column));
        __m128i codes = narrow_codes(floored(pre_a), floored(pre_b), least);
        codes = _mm_min_epu8(codes, _mm_loadu_si128((const __m128i *)(layer->span + column)));
        _mm_storeu_si128((__m128i *)out, codes);
    } else {
        __m256i count_a = climbed(layer->steps, pre_a), count_b = climbed(layer->steps, pre_b);
        _mm_storeu_si128((__m128i *)out, narrow_codes(count_a, count_b, _mm256_setzero_si256()));
    }
}

#if LAPIS_WIDE
/* The same for sixteen outputs in one register. */
INLINE __m512 floored_wide(__m512 pre) {
    return _mm512_roundscale_ps(pre, _MM_FROUND_TO_NEG_INF);
}

/* 0..255 of floor(pre) less `least`. */
INLINE __m128i narrow_wide(__m512 pre, __m512i least) {
    __m512i code = _mm512_cvtps_epi32(floored_wide(_mm512_min_ps(pre, _mm512_set1_ps(0x1p30F))));
    return _mm512_cvtusepi32_epi8(max_s32(sub32(code, least), zero_ints()));
}

INLINE __m512i climbed_wide(const ladder *steps, __m512 pre) {
    const __m512i one = _mm512_set1_epi32(1);
    __m512i count = _mm512_maskz_mov_epi32(_mm512_cmp_ps_mask(pre, _mm512_set1_ps(steps->tree[0][0]), _CMP_GE_OQ), one);
    UNROLL for (int level = 1; level < 4; level++) {
        __m512 node = _mm512_permutexvar_ps(count, _mm512_loadu_ps(steps->tree[level]));
        count = _mm512_add_epi32(count, count);
        count = _mm512_mask_add_epi32(count, _mm512_cmp_ps_mask(pre, node, _CMP_GE_OQ), count, one);
    }
    for (int level = 4; level < steps->depth; level++) {
        const float *nodes = steps->tree[level];
        __m512 node = _mm512_permutex2var_ps(_mm512_loadu_ps(nodes), count, _mm512_loadu_ps(nodes + 16));
        if (level > 5) {
            __m512 upper = _mm512_permutex2var_ps(_mm512_loadu_ps(nodes + 32), count, _mm512_loadu_ps(nodes + 48));
            node = _mm512_mask_mov_ps(node, _mm512_test_epi32_mask(count, _mm512_set1_epi32(32)), upper);
        }
        count = _mm512_add_epi32(count, count);
        count = _mm512_mask_add_epi32(count, _mm512_cmp_ps_mask(pre, node, _CMP_GE_OQ), count, one);
    }
    for (int i = 0; i < steps->falls; i++) {
        __mmask16 below = _mm512_cmp_ps_mask(pre, _mm512_set1_ps(steps->only_fall[i]), _CMP_LE_OQ);
        count = _mm512_mask_add_epi32(count, below, count, one);
    }
    return count;
}

/* What a vector of outputs has of its own. */
typedef struct {
    __m512 scale, shift;
    __m512i least;
    __m128i span;
} vector_of_outputs;

INLINE vector_of_outputs outputs_from(const int kind, const linear *layer, int64_t column) {
    vector_of_outputs o = {.scale = _mm512_loadu_ps(layer->scale + column), .shift = _mm512_loadu_ps(layer->shift + column)};
    if (kind == TO_CODES) {
        o.least = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)(layer->least + column)));
        o.span = _mm_loadu_si128((const __m128i *)(layer->span + column));
    }
    return o;
}

INLINE void finish_vector(const int kind, const linear_call *call, const vector_of_outputs *o, int64_t row,
                          int64_t column, __m512i total) {
    __m512 pre = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(total), o->scale), o->shift);
    if (kind == TO_STREAM) {
        int32_t *stream = call->stream + row * call->stream_stride + column;
        __m512i sum = _mm512_add_epi32(load_ints(stream), _mm512_cvtps_epi32(floored_wide(pre)));
        sum = max_s32(min_s32(sum, all32(call->limit - 1)), all32(-call->limit));
        store_ints(stream, sum);
        return;
    }
    __m128i codes;
    if (kind == TO_CODES) {
        codes = _mm_min_epu8(narrow_wide(pre, o->least), o->span);
    } else {
        codes = _mm512_cvtepi32_epi8(climbed_wide(call->layer->steps, pre));
    }
    _mm_storeu_si128((__m128i *)(call->out + row * call->out_stride + column), codes);
}

INLINE void finish_row(const int kind, const linear_call *call, int64_t row, int64_t column, ints a, ints b) {
    const vector_of_outputs first = outputs_from(kind, call->layer, column);
    const vector_of_outputs second = outputs_from(kind, call->layer, column + 16);
    finish_vector(kind, call, &first, row, column, a);
    finish_vector(kind, call, &second, row, column + 16, b);
}
#else
INLINE void finish_row(const int kind, const linear_call *call, int64_t row, int64_t column, ints a, ints b) {
    finish(kind, call, row, column, a, b);
}
#endif

/* `whole`: one period covers the layer, so 16-bit sums are widened once, on the way out. */
INLINE void linear_tile(const int rows, const int kind, const int whole, const linear_call *call, int64_t row,
                        int64_t panel) {
    const linear *layer = call->layer;
    const int64_t groups = layer->groups, stride = call->code_stride, column = panel * PANEL;
    const uint8_t *codes = call->codes + row * stride;
    const int8_t *weight = layer->weight + column * groups * 4;
    const ints start_a = load_ints(layer->start + column), start_b = load_ints(layer->start + column + LANES);
#if LAPIS_VNNI
    (void)whole;
    ints sum[TILE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) sum[r][0] = start_a, sum[r][1] = start_b;
    /* Three rows to a pointer, whose stride addresses take for nothing; one each would not fit the registers. */
    const uint8_t *at[(TILE_ROWS + 2) / 3];
    UNROLL for (int r = 0; r < rows; r += 3) at[r / 3] = codes + r * stride;
    for (int64_t g = 0; g < groups; g++, weight += PANEL * 4) {
        ints a = load_ints(weight), b = load_ints(weight + LANES * 4);
        UNROLL for (int r = 0; r < rows; r++) {
            if (r % 3 == 0) KEEP(at[r / 3]);
            ints x = four_codes(at[r / 3] + r % 3 * stride);
            dot_add(sum[r][0], x, a);
            dot_add(sum[r][1], x, b);
            if (r % 3 == 2 || r == rows - 1) at[r / 3] += 4;
        }
    }
    UNROLL for (int r = 0; r < rows; r++) finish_row(kind, call, row + r, column, sum[r][0], sum[r][1]);
#else
    const ints ones = all16(1);
    ints total[TILE_ROWS][2];
    if (!whole) UNROLL for (int r = 0; r < rows; r++) total[r][0] = start_a, total[r][1] = start_b;
    const int64_t period = whole ? groups : layer->period[panel];
    for (int64_t from = 0; from < groups; from += period) {
        const int8_t *stop = weight + (from + period < groups ? period : groups - from) * PANEL * 4;
        ints sum[TILE_ROWS][2];
        UNROLL for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = zero_ints();
        for (; weight < stop; codes += 4, weight += PANEL * 4) {
            ints a = load_ints(weight), b = load_ints(weight + LANES * 4);
            UNROLL for (int r = 0; r < rows; r++) {
                ints x = four_codes(codes + r * stride);
                sum[r][0] = add16(sum[r][0], multiply_u8_s8(x, a));
                sum[r][1] = add16(sum[r][1], multiply_u8_s8(x, b));
                SETTLE(sum[r][0], sum[r][1]);
            }
        }
        UNROLL for (int r = 0; r < rows; r++) {
            ints wide_a = multiply_s16(sum[r][0], ones), wide_b = multiply_s16(sum[r][1], ones);
            if (whole)
                finish_row(kind, call, row + r, column, add32(wide_a, start_a), add32(wide_b, start_b));
            else
                total[r][0] = add32(total[r][0], wide_a), total[r][1] = add32(total[r][1], wide_b);
        }
    }
    if (!whole)
        UNROLL for (int r = 0; r < rows; r++) finish_row(kind, call, row + r, column, total[r][0], total[r][1]);
#endif
}

typedef void (*tile_function)(const linear_call *, int64_t row, int64_t panel);

#if LAPIS_VNNI
#define TILE(rows_, kind_)                                                                                           \
    static __attribute__((noinline)) void tile_##rows_##_##kind_(const linear_call *call, int64_t row, int64_t panel) { \
        linear_tile(rows_, kind_, 1, call, row, panel);                                                              \
    }
#else
#define TILE(rows_, kind_)                                                                                           \
    static __attribute__((noinline)) void tile_##rows_##_##kind_(const linear_call *call, int64_t row, int64_t panel) { \
        if (call->layer->period[panel] >= call->layer->groups)                                                       \
            linear_tile(rows_, kind_, 1, call, row, panel);                                                          \
        else                                                                                                         \
            linear_tile(rows_, kind_, 0, call, row, panel);                                                          \
    }
#endif
#define TILES(rows_) TILE(rows_, TO_CODES) TILE(rows_, TO_LADDER) TILE(rows_, TO_STREAM)
#define TILE_NAMES(rows_) {tile_##rows_##_TO_CODES, tile_##rows_##_TO_LADDER, tile_##rows_##_TO_STREAM}

TILES(1)
TILES(2)
TILES(3)
TILES(4)
TILES(5)
TILES(6)
#if LAPIS_WIDE
TILES(12)
#endif

static const tile_function TILES_OF[7][3] = {{0},           TILE_NAMES(1), TILE_NAMES(2), TILE_NAMES(3),
                                             TILE_NAMES(4), TILE_NAMES(5), TILE_NAMES(6)};

/* Bring a part of the next panel closer while this one is worked on; a panel is read once for every block of rows, and
 * the first tile would wait for it. */
INLINE void fetch_ahead(const int8_t *next, int64_t bytes, int64_t from, int64_t to, int64_t rows) {
    if (!next) return;
    for (int64_t at = bytes * from / rows / 64 * 64, end = bytes * to / rows; at < end; at += 64)
        _mm_prefetch((const char *)next + at, _MM_HINT_T1);
}

static void linear_vectors(const linear_call *call, int64_t from, int64_t to) {
    const linear *layer = call->layer;
    const int64_t bytes = layer->groups * PANEL * 4;
    int64_t block = CACHED_CODES / (layer->groups * 4) / TILE_ROWS * TILE_ROWS;
    if (block < TILE_ROWS) block = TILE_ROWS;
    for (; from < to; from += block) {
        int64_t stop = from + block < to ? from + block : to, rows = stop - from;
        for (int64_t panel = 0; panel < layer->panels; panel++) {
            const int8_t *next = panel + 1 < layer->panels ? layer->weight + (panel + 1) * bytes : NULL;
            int64_t row = from;
            while (row < stop) {
                int64_t count = stop - row < TILE_ROWS ? stop - row : TILE_ROWS;
#if LAPIS_WIDE
                static const tile_function wide[3] = TILE_NAMES(12);
                if (count < 12 && count > 6) count = 6;
                tile_function run = count == 12 ? wide[layer->kind] : TILES_OF[count][layer->kind];
#else
                tile_function run = TILES_OF[count][layer->kind];
#endif
                fetch_ahead(next, bytes, row - from, row - from + count, rows);
                run(call, row, panel);
                row += count;
            }
        }
    }
}

#if LAPIS_AMX
#include "matrix.h"
#else
static void linear_rows(const linear_call *call, int64_t from, int64_t to) { linear_vectors(call, from, to); }
#endif
