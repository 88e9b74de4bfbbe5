/* The twin of every fast kernel in plain C: what they must equal, and what runs where they cannot. */
#include <math.h>
#include <string.h>

#include "scalar.h"

#include "../simd/unroll.h"

#define TARGET scalar

/* Extend low..high over fp32 codes; 0 where one is not an integer of a sane size. */
static inline int widen_range(const float *x, int64_t stride, int64_t rows, int64_t channels, float *low, float *high) {
    for (int64_t n = 0; n < rows; n++)
        for (int64_t c = 0; c < channels; c++) {
            float value = x[n * stride + c];
            if (!(value >= -255 && value <= 255) || value != (float)(int)value) return 0;
            if (value < *low) *low = value;
            if (value > *high) *high = value;
        }
    return 1;
}

static void KERNEL(copy_codes)(const void *x, int32_t code_type, int64_t stride, int64_t rows, int64_t channels,
                               int shift, int64_t width, uint8_t *out) {
    for (int64_t n = 0; n < rows; n++, out += width) {
        memset(out + channels, 0, (size_t)(width - channels));
        if (code_type == LAPIS_CODES_U8)
            memcpy(out, (const uint8_t *)x + n * stride, (size_t)channels);
        else
            for (int64_t c = 0; c < channels; c++) out[c] = (uint8_t)((int)((const float *)x)[n * stride + c] + shift);
    }
}

int scalar_codes(const lapis_pairs *p, const void *q, const void *k, head_rows own, int64_t width, uint8_t *q_codes,
                 uint8_t *k_codes) {
    int64_t rows = own.to - own.from, size = p->code_type == LAPIS_CODES_U8 ? 1 : sizeof(float);
    const void *q_from = (const char *)q + size * at(p->q_stride, own.b, own.h, own.from);
    const void *k_from = (const char *)k + size * at(p->k_stride, own.b, own.h, 0);
    float low = 0, high = 0;
    if (p->code_type == LAPIS_CODES_F32 &&
        (!widen_range(q_from, p->q_stride[2], rows, p->channels, &low, &high) ||
         !widen_range(k_from, p->k_stride[2], p->keys, p->channels, &low, &high) || high - low > 255))
        return LAPIS_BAD_CODES;
    KERNEL(copy_codes)(q_from, p->code_type, p->q_stride[2], rows, p->channels, (int)-low, width, q_codes);
    KERNEL(copy_codes)(k_from, p->code_type, p->k_stride[2], p->keys, p->channels, (int)-low, width, k_codes);
    return LAPIS_OK;
}

static int32_t l1(const uint8_t *q, const uint8_t *k, int64_t channels) {
    int32_t sum = 0;
    for (int64_t c = 0; c < channels; c++) sum += q[c] > k[c] ? q[c] - k[c] : k[c] - q[c];
    return sum;
}

static int32_t hamming(const uint8_t *q, const uint8_t *k, int64_t channels) {
    int32_t sum = 0;
    for (int64_t c = 0; c < channels; c++) sum += q[c] != k[c];
    return sum;
}

/* The dot product of the codes with its sign turned, and without a part that all keys of a query share. */
static int32_t minus_dot(const uint8_t *q, const uint8_t *k, int64_t channels, int32_t zero_code) {
    int32_t sum = 0;
    for (int64_t c = 0; c < channels; c++) sum += (zero_code - q[c]) * k[c];
    return sum;
}

static int32_t relate(const lapis_pairs *p, const uint8_t *q, const uint8_t *k) {
    if (p->relation == LAPIS_DOT) return minus_dot(q, k, p->channels, (int32_t)p->zero_code);
    return p->relation == LAPIS_L1 ? l1(q, k, p->channels) : hamming(q, k, p->channels);
}

static size_t code_bytes(const lapis_pairs *p) {
    return (size_t)(round_up(p->rows * p->channels, 64) + round_up(p->keys * p->channels, 64));
}

static int KERNEL(distance)(const distance_call *call, head_rows own, unsigned char *scratch) {
    const lapis_pairs *p = &call->p;
    uint8_t *q = scratch_alloc(&scratch, p->rows * p->channels), *k = scratch_alloc(&scratch, p->keys * p->channels);
    int status = scalar_codes(p, call->q, call->k, own, p->channels, q, k);
    if (status) return status;
    int64_t out = ((own.b * p->heads + own.h) * p->rows + own.from) * p->keys;
    for (int64_t i = 0; i < own.to - own.from; i++)
        for (int64_t j = 0; j < p->keys; j++, out++) {
            int32_t d = relate(p, q + i * p->channels, k + j * p->channels);
            if (call->out_type == LAPIS_OUT_I32)
                ((int32_t *)call->out)[out] = d;
            else
                ((float *)call->out)[out] = (float)d;
        }
    return LAPIS_OK;
}

size_t scalar_gradient_scratch(const lapis_pairs *p) {
    return code_bytes(p) + (size_t)round_up(p->channels * (int64_t)sizeof(double), 64);
}

static int slope(int32_t relation, int difference) {
    if (relation == LAPIS_HAMMING && (difference > 1 || difference < -1)) return 0;
    return (difference > 0) - (difference < 0);
}

int scalar_gradient(const gradient_call *call, int64_t b, int64_t h, const span rows[SIDES], unsigned char *scratch) {
    const lapis_pairs *p = &call->p;
    int64_t channels = p->channels, bh = b * p->heads + h;
    uint8_t *q = scratch_alloc(&scratch, p->rows * channels), *k = scratch_alloc(&scratch, p->keys * channels);
    double *sum = scratch_alloc(&scratch, channels * (int64_t)sizeof(double));
    int status = scalar_codes(p, call->q, call->k, (head_rows){b, h, 0, p->rows}, channels, q, k);
    if (status) return status;
    const float *g = call->grad + bh * p->rows * p->keys;
    for (int side = 0; side < SIDES; side++) {
        int64_t others = side == SIDE_Q ? p->keys : p->rows, mine = side == SIDE_Q ? p->rows : p->keys;
        const uint8_t *x = side == SIDE_Q ? q : k, *y = side == SIDE_Q ? k : q;
        float *out = side == SIDE_Q ? call->grad_q : call->grad_k;
        if (out) out += bh * mine * channels;
        for (int64_t i = rows[side].from; i < rows[side].to; i++) {
            for (int64_t c = 0; c < channels; c++) sum[c] = 0;
            for (int64_t j = 0; j < others; j++) {
                double weight = side == SIDE_Q ? g[i * p->keys + j] : g[j * p->keys + i];
                for (int64_t c = 0; c < channels; c++)
                    sum[c] += weight * slope(p->relation, x[i * channels + c] - y[j * channels + c]);
            }
            for (int64_t c = 0; c < channels; c++) out[i * channels + c] = (float)sum[c];
        }
    }
    return LAPIS_OK;
}

size_t scalar_attention_scratch(const lapis_pairs *p) {
    return code_bytes(p) + (size_t)round_up(p->keys * 4, 64) + (size_t)round_up(p->channels * 8, 64);
}

/* D of one row with its delay; 0 where one lies outside 0..size-1. Dot products count from the largest of the row. */
static int KERNEL(row_distances)(const lapis_pairs *p, const uint8_t *q, const uint8_t *k, const int32_t *delay,
                                 int64_t size, int32_t *d, int32_t *nearest) {
    *nearest = INT32_MAX;
    for (int64_t j = 0; j < p->keys; j++) {
        int64_t sum = relate(p, q, k + j * p->channels);
        if (delay) sum += delay[j];
        if (p->relation != LAPIS_DOT && (sum < 0 || sum >= size)) return 0;
        d[j] = (int32_t)sum;
        if (d[j] < *nearest) *nearest = d[j];
    }
    for (int64_t j = 0; p->relation == LAPIS_DOT && j < p->keys; j++) d[j] -= *nearest;
    return 1;
}

int scalar_attention(const attention_call *call, head_rows own, unsigned char *scratch) {
    const lapis_pairs *p = &call->p;
    const int64_t h = own.h;
    uint8_t *q = scratch_alloc(&scratch, p->rows * p->channels), *k = scratch_alloc(&scratch, p->keys * p->channels);
    int32_t *d = scratch_alloc(&scratch, p->keys * 4);
    double *sum = scratch_alloc(&scratch, p->channels * 8);
    int status = scalar_codes(p, call->q, call->k, own, p->channels, q, k);
    if (status) return status;
    const float *table = call->table + h * call->size;
    for (int64_t i = own.from; i < own.to; i++) {
        const int32_t *delay = call->delay ? call->delay + (h * p->rows + i) * p->keys : NULL;
        int32_t nearest;
        if (!KERNEL(row_distances)(p, q + (i - own.from) * p->channels, k, delay, call->size, d, &nearest))
            return LAPIS_BAD_DISTANCE;
        double z = 0;
        for (int64_t c = 0; c < p->channels; c++) sum[c] = 0;
        for (int64_t j = 0; j < p->keys; j++) {
            double a = table[d[j] - nearest];
            const float *v = call->v + at(call->v_stride, own.b, h, j);
            z += a;
            for (int64_t c = 0; c < p->channels; c++) sum[c] += a * v[c];
        }
        double scale = 1 / z;
        if (call->row_scale == LAPIS_POW2) {
            double g = call->gain[h * call->size + nearest];
            int exponent;
            double mantissa = frexp(g * z, &exponent);
            scale = ldexp(g, (mantissa < SQRT_HALF) - exponent);
        }
        float *y = call->y + at(call->y_stride, own.b, h, i);
        for (int64_t c = 0; c < p->channels; c++) y[c] = (float)(sum[c] * scale);
    }
    return LAPIS_OK;
}

static int KERNEL(integer_attention)(const integer_attention_call *call, head_rows own, unsigned char *scratch) {
    const lapis_pairs *p = &call->p;
    const int64_t h = own.h;
    uint8_t *q = scratch_alloc(&scratch, p->rows * p->channels), *k = scratch_alloc(&scratch, p->keys * p->channels);
    int32_t *d = scratch_alloc(&scratch, p->keys * 4);
    int status = scalar_codes(p, call->q, call->k, own, p->channels, q, k);
    if (status) return status;
    for (int64_t i = own.from; i < own.to; i++) {
        const int32_t *delay = call->delay ? call->delay + (h * p->rows + i) * p->keys : NULL;
        int32_t nearest;
        if (!KERNEL(row_distances)(p, q + (i - own.from) * p->channels, k, delay, call->size, d, &nearest))
            return LAPIS_BAD_DISTANCE;
        int64_t exponent = exponent_of(call, h, nearest);
        if (exponent >= call->exponents) return LAPIS_BAD_DISTANCE;
        int32_t last;
        const uint16_t *table = affinities_of(call, h, exponent, &last);
        int32_t *acc = call->acc + at(call->acc_stride, own.b, h, i);
        uint32_t z = 0;
        for (int64_t c = 0; c < p->channels; c++) acc[c] = 0;
        for (int64_t j = 0; j < p->keys; j++) {
            int32_t a = table[d[j] < last ? d[j] : last];
            const uint8_t *v = call->v + at(call->v_stride, own.b, h, j);
            z += (uint32_t)a;
            for (int64_t c = 0; c < p->channels; c++) acc[c] += a * v[c];
        }
        call->zint[(own.b * p->heads + h) * p->rows + i] = z;
    }
    return LAPIS_OK;
}

static float unrounded(float x, lsq_scale s) { return (s.has_offset ? x - s.offset : x) / s.step; }

/* Written so that a NaN goes through, as torch.clamp lets it. */
static float rounded(float u, lsq_scale s) {
    float z = floorf(u + 0.5f);
    z = z < s.low ? s.low : z;
    z = z > s.high ? s.high : z;
    return fabsf(z) < s.min_code ? 0 : z;
}

void scalar_lsq(const float *x, int64_t n, lsq_scale s, float *value, float *codes) {
    for (int64_t i = 0; i < n; i++) {
        float z = rounded(unrounded(x[i], s), s);
        if (value) value[i] = s.has_offset ? z * s.step + s.offset : z * s.step;
        if (codes) codes[i] = z;
    }
}

lsq_sums scalar_lsq_value_backward(const float *x, const float *grad, int64_t n, lsq_scale s, float *grad_x) {
    lsq_sums sums = {0, 0};
    for (int64_t i = 0; i < n; i++) {
        float u = unrounded(x[i], s), z = rounded(u, s);
        int inside = u > s.low && u < s.high;
        if (grad_x) grad_x[i] = inside ? grad[i] : 0;
        sums.step += (double)grad[i] * (inside ? z - u : z);
        sums.offset += inside ? 0 : grad[i];
    }
    return sums;
}

lsq_sums scalar_lsq_codes_backward(const float *x, const float *grad, int64_t n, lsq_scale s, float *grad_x) {
    lsq_sums sums = {0, 0};
    for (int64_t i = 0; i < n; i++) {
        float u = unrounded(x[i], s);
        int inside = u > s.low && u < s.high;
        float scaled = inside ? grad[i] / s.step : 0;
        if (grad_x) grad_x[i] = scaled;
        /* Not zero times u: outside, u may be infinite. */
        if (inside) sums.step -= (double)scaled * u;
        sums.offset -= scaled;
    }
    return sums;
}

const kernel_functions kernels_scalar = {
    .distance_scratch = code_bytes,
    .distance = KERNEL(distance),
    .gradient_scratch = scalar_gradient_scratch,
    .gradient = scalar_gradient,
    .attention_scratch = scalar_attention_scratch,
    .attention = scalar_attention,
    .integer_attention_scratch = scalar_attention_scratch,
    .integer_attention = KERNEL(integer_attention),
    .lsq = scalar_lsq,
    .lsq_value_backward = scalar_lsq_value_backward,
    .lsq_codes_backward = scalar_lsq_codes_backward,
};
