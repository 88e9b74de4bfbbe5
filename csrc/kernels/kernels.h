/* The kernels that an instruction set must provide, and the records that the entry points hand to it.
 *
 * A kernel works on one (b, h) and a range of rows with scratch of its own, so that threads share nothing. */
#ifndef LAPIS_KERNELS_H
#define LAPIS_KERNELS_H

#include <stddef.h>

#include "../library.h"

typedef struct {
    lapis_pairs p;
    const void *q, *k;
    void *out;
    int32_t out_type;
} distance_call;

typedef struct {
    lapis_pairs p;
    const void *q, *k;
    const float *grad;
    float *grad_q, *grad_k;
} gradient_call;

typedef struct {
    lapis_pairs p;
    const void *q, *k;
    const float *v;
    int64_t v_stride[3];
    const float *table;
    const double *gain;
    int64_t size;
    const int32_t *delay;
    int32_t row_scale;
    float *y;
    int64_t y_stride[3];
} attention_call;

/* A row of affinities without the distances below its nearest key, which nobody reads, and without the zeros at its
 * end: distance d, or `last` where it is beyond, lies at table[at + d]. */
typedef struct {
    int64_t at, last;
} affinity_row;

typedef struct {
    lapis_pairs p;
    const uint8_t *q, *k, *v;
    int64_t v_stride[3];
    const uint16_t *table, *row_exponent;
    int64_t exponents, size;
    const affinity_row *cut; /* [H, exponents], or NULL: table is [H, exponents, size] */
    const int32_t *delay;
    int32_t *acc;
    int64_t acc_stride[3];
    uint32_t *zint;
} integer_attention_call;

typedef struct {
    float step, offset, low, high, min_code;
    int has_offset;
} lsq_scale;

typedef struct {
    double step, offset;
} lsq_sums;

/* The two results of the gradient kernel, and the rows of each that a task computes. */
enum { SIDE_Q = 0, SIDE_K = 1, SIDES = 2 };

typedef struct {
    int64_t from, to;
} span;

/* Rows from..to of one (b, h): what most kernels are handed at a time. */
typedef struct {
    int64_t b, h, from, to;
} head_rows;

typedef struct {
    size_t (*distance_scratch)(const lapis_pairs *);
    int (*distance)(const distance_call *, head_rows, unsigned char *scratch);
    size_t (*gradient_scratch)(const lapis_pairs *);
    int (*gradient)(const gradient_call *, int64_t b, int64_t h, const span rows[SIDES], unsigned char *scratch);
    size_t (*attention_scratch)(const lapis_pairs *);
    int (*attention)(const attention_call *, head_rows, unsigned char *scratch);
    size_t (*integer_attention_scratch)(const lapis_pairs *);
    int (*integer_attention)(const integer_attention_call *, head_rows, unsigned char *scratch);
    void (*lsq)(const float *x, int64_t n, lsq_scale s, float *value, float *codes);
    lsq_sums (*lsq_value_backward)(const float *x, const float *grad, int64_t n, lsq_scale s, float *grad_x);
    lsq_sums (*lsq_codes_backward)(const float *x, const float *grad, int64_t n, lsq_scale s, float *grad_x);
} kernel_functions;

/* The smallest double above the real sqrt(1/2); no double lies between the two, so `m >= SQRT_HALF` is exact. */
#define SQRT_HALF 0x1.6a09e667f3bcdp-1

static inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

static inline int64_t at(const int64_t stride[3], int64_t b, int64_t h, int64_t n) {
    return b * stride[0] + h * stride[1] + n * stride[2];
}

/* The row of the table that a row of pairs reads, by the distance of its nearest key. */
static inline int64_t exponent_of(const integer_attention_call *call, int64_t h, int32_t nearest) {
    return call->p.relation == LAPIS_DOT ? 0 : call->row_exponent[h * call->size + nearest];
}

/* Where distance 0 of a row lies, and the last distance that it has. */
static inline const uint16_t *affinities_of(const integer_attention_call *call, int64_t h, int64_t exponent,
                                            int32_t *last) {
    const int64_t row = h * call->exponents + exponent;
    *last = (int32_t)(call->cut ? call->cut[row].last : call->size - 1);
    return call->table + (call->cut ? call->cut[row].at : row * call->size);
}

/* Take `bytes` from a scratch buffer, keeping every piece on its own cache line. */
static inline void *scratch_alloc(unsigned char **scratch, int64_t bytes) {
    void *piece = *scratch;
    *scratch += round_up(bytes, 64);
    return piece;
}

#endif
