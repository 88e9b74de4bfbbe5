/* The deployed engine: a whole packed network, from bytes of images to integer scores, bit for bit the integer model.
 *
 * Codes are held as u8, code minus the lowest code of their measuring point; "low" below is that code (0 or -T).
 * Arrays are contiguous and are copied or repacked at creation: none is kept. Sizes and ranges are checked before, by
 * csrc/runtime, to the limits of csrc/limits.h. */
#ifndef LAPIS_ENGINE_H
#define LAPIS_ENGINE_H

#include "../library.h"

#ifdef __cplusplus
extern "C" {
#endif

/* pre = fl(fl(fl(sum_i w_oi z_i) scale_o) + shift_o); weight [outputs, inputs], scale and shift [outputs]. */
typedef struct {
    const int8_t *weight;
    const float *scale, *shift;
} lapis_layer;

typedef struct {
    const float *attention_gain, *attention_shift; /* [D] */
    lapis_layer qkv;                               /* 3D <- D */
    const uint16_t *table;                         /* [H, exponents, distances] */
    const uint16_t *row_exponent;                  /* [H, distances] */
    int64_t exponents, distances;
    const int32_t *delay; /* [H, N, N] or NULL */
    float readout_scale, readout_shift;
    lapis_layer proj;                  /* D <- D */
    const float *mlp_gain, *mlp_shift; /* [D] */
    lapis_layer fc1;                   /* hidden <- D */
    const float *rise, *fall;          /* [window - low_hidden]: GELU and its quantizer as comparisons */
    lapis_layer fc2;                   /* D <- hidden */
    /* The smallest code that fires at each point, 1..window; smaller ones become zero. */
    int32_t min_code_attention, min_code_qk, min_code_v, min_code_readout, min_code_mlp, min_code_hidden;
    /* The share of neurons that fire at the points behind which a layer lies, as recorded; negative: not known. */
    float attention_activity, readout_activity, mlp_activity, hidden_activity;
} lapis_block;

typedef struct {
    int64_t image_size, patch_size, width, heads, hidden, depth, classes;
    int64_t position_rows; /* N, or 2: class token, patches */
    int32_t relation; /* LAPIS_L1 or LAPIS_DOT; with dot products tables have one exponent, and there are no delays */
    int32_t window;
    int32_t low_attention, low_qk, low_v, low_readout, low_mlp, low_hidden;
    int32_t mean_pooling;        /* the rounded mean of the patches, or the class token */
    double eps;                  /* LayerNorm's, in units of the stream */
    const int16_t *patch_weight; /* [D, P*P*3] */
    const uint8_t *patch_shift;  /* [D] */
    const int32_t *position;     /* [position_rows, D] */
    const int16_t *head_weight;  /* [classes, D] */
    const int64_t *head_bias;    /* [classes] */
    const lapis_block *blocks;   /* [depth] */
} lapis_model;

/* Points of a trace, in the order of its pointers. */
enum {
    LAPIS_AT_ATTENTION,
    LAPIS_AT_Q,
    LAPIS_AT_K,
    LAPIS_AT_V,
    LAPIS_AT_READOUT,
    LAPIS_AT_MLP,
    LAPIS_AT_HIDDEN,
    LAPIS_POINTS
};

/* What a profile tells apart. */
enum {
    LAPIS_STAGE_EMBED,
    LAPIS_STAGE_NORM,
    LAPIS_STAGE_QKV,
    LAPIS_STAGE_ATTENTION,
    LAPIS_STAGE_PROJ,
    LAPIS_STAGE_FC1,
    LAPIS_STAGE_FC2,
    LAPIS_STAGE_HEAD,
    LAPIS_STAGES
};

/* Their names, in that order; NULL behind the last one. */
LAPIS_API const char *lapis_engine_point_name(int32_t index);
LAPIS_API const char *lapis_engine_stage_name(int32_t index);

typedef struct lapis_engine lapis_engine;

/* Pack a network for the selected instruction set and lay out the working memory of `threads` threads. `low_memory`:
 * keep one form of each layer, six-bit weights in six bits where the instruction set can. */
int32_t lapis_engine_create(const lapis_model *model, int32_t threads, int32_t low_memory, lapis_engine **engine);
void lapis_engine_destroy(lapis_engine *engine);

/* images [batch, S, S, 3] -> scores [batch, classes]. `trace` is NULL or [depth * LAPIS_POINTS] pointers to
 * int8 [batch, N, channels of the point]. `nanoseconds` is NULL or [LAPIS_STAGES], to which the first thread adds its
 * time. One call at a time for each engine; nothing is allocated. */
LAPIS_API int32_t lapis_engine_run(lapis_engine *engine, const uint8_t *images, int64_t batch, int64_t *scores,
                                   int8_t *const *trace, int64_t *nanoseconds);

/* Bytes that an engine holds: packed weights and tables (0), working memory (1). */
LAPIS_API int64_t lapis_engine_bytes(const lapis_engine *engine, int32_t working);

/* Multiplications and additions per nanosecond that one core can do at best in the instruction that the selected linear
 * kernels use, or with the additions that they need besides; 0 for plain C. */
LAPIS_API double lapis_engine_peak(int32_t adds);

/* The sizes of teams that would share `runs` runs of an engine with `threads` threads, where run i of a team of size s
 * takes nanoseconds[i, s - 1] per image and its threads wait for the share waited[i, s - 1] of it: for tests. */
LAPIS_API int32_t lapis_engine_pace(int32_t threads, int64_t runs, const double *nanoseconds, const double *waited,
                                    int32_t *sizes);

/* One linear layer by itself, for tests and benchmarks: codes u8 [rows, inputs], code - low each.
 * kind 0: code - out_low of clamp(floor(pre), out_low, out_high); kind 1: the ladder's count; both to out u8, and those
 * of codes below `min_code` in size as if they were zero.
 * kind 2: floor(pre) added to stream int32 within -2^stream_bits..2^stream_bits - 1. `forms`: 1 dense,
 * 2 driven by its events, and 4 more with weights packed in six bits, where the instruction set can; else dense, not
 * packed. The best nanoseconds of `repeats` runs go to `nanoseconds` (kind 2 adds at every run). */
LAPIS_API int32_t lapis_engine_linear(const int8_t *weight, const float *scale, const float *shift, int64_t rows,
                                      int64_t inputs, int64_t outputs, const uint8_t *codes, int32_t low, int32_t high,
                                      int32_t kind, int32_t forms, int32_t out_low, int32_t out_high, int32_t min_code,
                                      const float *rise, const float *fall, int32_t stream_bits, uint8_t *out,
                                      int32_t *stream, int32_t repeats, int64_t *nanoseconds);

#ifdef __cplusplus
}
#endif
#endif
