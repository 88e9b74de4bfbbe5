/* The part of the engine that an instruction set must provide, and the records that the engine hands to it.
 *
 * Rows of every matrix are padded (codes to CODE_UNIT bytes, the stream to STREAM_UNIT integers), and whatever belongs
 * to outputs beyond the last one is zero, so that kernels read and write whole vectors. */
#ifndef LAPIS_STAGES_H
#define LAPIS_STAGES_H

#include <math.h>

#include "../kernels/kernels.h"
#include "../limits.h"

enum { CODE_UNIT = 64, STREAM_UNIT = 64, HEAD_UNIT = 32, MAX_LEVELS = 2 * MAX_WINDOW, TREE_DEPTH = 7 };

typedef enum { TO_CODES = 0, TO_LADDER = 1, TO_STREAM = 2 } linear_kind;

/* The quantizer behind GELU: code - low = #{m : pre >= rise[m] or pre <= fall[m]}. For vectors, tree[l][i] is the i-th
 * node of level l of a binary search in rise, and `falls` are those of fall that can be reached without their rise. */
typedef struct {
    int32_t levels, depth, falls;
    float rise[MAX_LEVELS], fall[MAX_LEVELS], only_fall[MAX_LEVELS];
    float tree[TREE_DEPTH][64];
} ladder;

/* Weights that may be packed in six bits: 64 six-bit ones in 48 bytes, 32 of them the lower four bits of the weight
 * plus 32 (those of weight i + 32 above those of weight i) and 16 the upper two (those of weight i + 16 j at bit 2 j).
 */
enum { PACKED6_WEIGHTS = 64, PACKED6_BYTES = 48, PACKED6_BIAS = 32 };

/* A linear layer as the kernels read it. Weights lie in panels of outputs, [outputs / panel][groups][panel][4]: four
 * inputs of one output in a dword. */
typedef struct {
    int64_t outputs, inputs, groups, panels;
    const int8_t *weight;   /* NULL: packed6, or only for events */
    const uint8_t *packed6; /* the same; unpacked panel by panel */
    int32_t *start;         /* [padded outputs] low times the sum of the output's weights */
    float *scale, *shift;   /* [padded outputs] */
    int16_t *lowest;        /* [padded outputs] the lowest code, for TO_CODES */
    uint8_t *span;          /* [padded outputs] the greatest code less the lowest */
    /* [padded outputs] zero less the lowest code, and the largest size of a code that misses its deadline and becomes
     * zero; both for TO_CODES and TO_LADDER. NULL: every code is in time. */
    uint8_t *zero_code, *below_min_code;
    int32_t *period; /* [panels] groups that can be summed in 16 bits whatever the codes are */
    linear_kind kind;
    const ladder *steps; /* for TO_LADDER */
    int32_t low, most;   /* the lowest code that comes in, and the greatest absolute value */
    /* For layers that may run by events, else NULL: [outputs / spike_panel][inputs][spike_panel] as interleaving wants
     * them, less `spike_low`; and the sum of codes of one sign that 16 bits can take. */
    const int8_t *spike_weight;
    const uint8_t *spike_packed6;
    int32_t spike_low, segment_sum;
    const uint64_t *picks; /* [256] the positions of a byte's bits, first ones first */
} linear;

typedef struct {
    const linear *layer;
    int8_t *unpacked; /* for weights in six bits: a panel, or a block of one */
    const uint8_t *codes;
    int64_t code_stride;
    uint8_t *out; /* TO_CODES, TO_LADDER */
    int64_t out_stride;
    int32_t *stream; /* TO_STREAM: added to, and kept within -limit..limit - 1 */
    int64_t stream_stride;
    int32_t limit;
} linear_call;

/* clamp(floor(fl(fl(u gain) + shift))) - low of the standardised stream; gain and shift are padded with zeros. */
typedef struct {
    int64_t width, padded;
    double eps;
    const float *gain, *shift;
    float low, high;
    int32_t below_min_code; /* the largest size of a code that becomes zero */
} norm_call;

/* Patches int16 [rows, inputs] times weights int16 in panels [outputs / panel][inputs / 2][panel][2]. */
typedef struct {
    int64_t outputs, inputs, panels;
    const int16_t *weight;
    const int32_t *shift, *half; /* [padded outputs] the shift less one, and whether it is above zero */
    int32_t limit;
} patch_call;

/* Mixed values to codes: clamp(floor(fl(fl(fl(acc) factor scale) + shift))) - low. */
typedef struct {
    float scale, shift, low, high;
    int32_t below_min_code; /* the largest size of a code that becomes zero */
} readout_call;

/* What a layer by events costs in the time that the dense kernel takes for one input of one output: each event for each
 * output, and each input however many outputs there are. What follows the sums costs both alike. */
typedef struct {
    float event, input;
} spike_costs;

typedef struct {
    int64_t panel;   /* outputs of a panel */
    int64_t tile;    /* rows of a tile */
    int narrow_sums; /* whether `period` counts */
    int unpacks6;    /* whether weights may be packed in six bits */
    /* Rows of a layer by their events; 0 and NULL: always dense. */
    int64_t spike_panel; /* outputs of a panel */
    int64_t spike_block; /* inputs that are worked on together */
    spike_costs spike_cost;
    int64_t (*count_spikes)(const linear_call *, int64_t from, int64_t to);
    void (*spikes)(const linear_call *, int64_t from, int64_t to, unsigned char *scratch);
    size_t (*spike_scratch)(int64_t inputs, int32_t most, int64_t rows);
    void (*linear)(const linear_call *, int64_t from, int64_t to);
    void (*norm)(const norm_call *, const int32_t *stream, uint8_t *codes);
    /* `position` moves by `position_stride` per row. */
    void (*patch)(const patch_call *, const int16_t *patches, int64_t rows, const int32_t *position,
                  int64_t position_stride, int32_t *stream, int64_t stream_stride);
    void (*readout)(const readout_call *, const int32_t *acc, int64_t channels, int32_t offset, float factor,
                    uint8_t *codes);
    /* sum token_c weight_c over a padded width (a multiple of HEAD_UNIT); no two neighbours of weight may both be
     * -32768. */
    int64_t (*head)(const int16_t *token, const int16_t *weight, int64_t padded);
    /* Multiplications and additions per nanosecond at best; NULL where nobody knows. */
    double (*peak)(int64_t rounds, int adds, int64_t (*clock)(void));
} engine_functions;

/* The share of inputs up to which a layer by events is faster than the dense one; at most 0: never. */
static inline float break_even(const engine_functions *f, int64_t outputs) {
    return f->spikes ? (1 - f->spike_cost.input / (float)outputs) / f->spike_cost.event : 0;
}

/* The stream is kept within -limit..limit - 1. */
static inline int32_t within(int64_t x, int32_t limit) {
    return (int32_t)(x < -limit ? -limit : x > limit - 1 ? limit - 1 : x);
}

/* A code - low that missed its deadline is that of zero. */
static inline uint8_t drop_below(uint8_t code, int32_t zero_code, int32_t below_min_code) {
    return (uint8_t)(code - zero_code > below_min_code || zero_code - code > below_min_code ? code : zero_code);
}

/* m = floor((2 S1 + D) / 2D), the integer nearest to the mean of a token whose sum is S1. */
static inline int64_t norm_mean(int64_t sum, int64_t width) {
    int64_t over = 2 * sum + width, under = 2 * width;
    return over / under - (over % under < 0);
}

/* fl(1 / sqrt(var + eps)), var = (S2 - r^2 / D) / D, from S1, m and S2 = sum (h - m)^2; r = sum (h - m). */
static inline float norm_rstd(int64_t sum, int64_t mean, int64_t squares, int64_t width, double eps) {
    int64_t rest = sum - width * mean;
    double variance = ((double)squares - (double)(rest * rest) / (double)width) / (double)width;
    return (float)(1.0 / sqrt(variance + eps));
}

#endif
