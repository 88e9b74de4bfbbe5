/* The kernels of the native library, as Python calls them: plain C, no Python, no torch. C programs use lapis.h.
 *
 * Codes are integers 0..255 held as u8, or as fp32 of integer value (training; negative codes are shifted inside,
 * which no relation here can see). Arrays are [batch, heads, tokens, channels] with channels contiguous; the other
 * three axes are given as strides in elements, so a view of [batch, tokens, heads, channels] needs no copy.
 *
 * Every function may be called from several threads at once, starts at most `threads` of its own for the length of the
 * call, and returns a lapis_status. Nothing is kept between calls but one scratch buffer.
 */
#ifndef LAPIS_LIBRARY_H
#define LAPIS_LIBRARY_H

#include "lapis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a signature that Python calls changes; the Python side refuses another number. */
#define LAPIS_ABI 9

typedef enum { LAPIS_CODES_U8 = 0, LAPIS_CODES_F32 = 1 } lapis_code_type;
typedef enum { LAPIS_OUT_I32 = 0, LAPIS_OUT_F32 = 1 } lapis_out_type;
typedef enum { LAPIS_L1 = 0, LAPIS_HAMMING = 1, LAPIS_DOT = 2 } lapis_relation;
typedef enum { LAPIS_EXACT = 0, LAPIS_POW2 = 1 } lapis_row_scale;

/* Sizes and strides that the pairwise kernels share. */
typedef struct {
    int64_t batch, heads, rows, keys, channels; /* B, H, N, M, C */
    int64_t q_stride[3], k_stride[3];           /* of b, h, n */
    int32_t code_type, relation;
    int64_t zero_code; /* of LAPIS_DOT: the u8 that stands for the code 0 */
} lapis_pairs;

LAPIS_API int32_t lapis_abi(void);

/* How lapis_pairs is laid out, for bindings to check theirs: the name of field `index`, which runs from 0 until the
 * result is NULL, and the byte behind it. */
LAPIS_API const char *lapis_pairs_field(int32_t index, int64_t *end);

/* Run tasks on the threads of an OpenMP runtime that the process already has, by its GOMP_parallel; NULL returns to
 * threads of our own. Two sets of threads would fight for the same cores. */
typedef void (*lapis_runner)(void (*work)(void *), void *argument, unsigned threads, unsigned flags);
LAPIS_API int32_t lapis_use_runner(lapis_runner runner);

/* The table of instruction sets, best first; `index` runs from 0 until the name is NULL. */
LAPIS_API const char *lapis_isa_name(int32_t index);
LAPIS_API int32_t lapis_isa_supported(int32_t index);
LAPIS_API int32_t lapis_isa_current(void);
LAPIS_API int32_t lapis_isa_select(int32_t index);

/* D_ij = sum_c |q_ic - k_jc| (l1) or the count of q_ic != k_jc (hamming); out [B,H,N,M], contiguous. */
LAPIS_API int32_t lapis_distance(const lapis_pairs *pairs, const void *q, const void *k, void *out, int32_t out_type,
                                 int32_t threads);

/* grad_q_ic = sum_j g_ij s(q_ic - k_jc), grad_k_jc = -sum_i g_ij s(q_ic - k_jc), with s = sign (l1) or sign where the
 * codes differ by at most one (hamming, a surrogate). g [B,H,N,M] and the outputs contiguous; an output may be NULL. */
LAPIS_API int32_t lapis_distance_backward(const lapis_pairs *pairs, const void *q, const void *k, const float *grad,
                                          float *grad_q, float *grad_k, int32_t threads);

/* D = distance + delay; d0_i = min_j D_ij; A = table[h][D - d0]; Z = sum_j A.
 * exact: Y = A v / Z. pow2: Y = A v g 2^-k, g = gain[h][d0], k = round(log2(g Z)).
 * table [H,size] and gain [H,size] hold exp(-d/tau_h), the latter times the power of two that puts it in [1,2).
 * delay [H,N,M] contiguous or NULL. v, y strides of b, h, n. */
LAPIS_API int32_t lapis_attention(const lapis_pairs *pairs, const void *q, const void *k, const float *v,
                                  const int64_t *v_stride, const float *table, const double *gain, int64_t size,
                                  const int32_t *delay, int32_t row_scale, float *y, const int64_t *y_stride,
                                  int32_t threads);

/* D = distance + delay; r_i = row_exponent[h][min_j D_ij]; A = table[h][r_i][D]; zint_i = sum_j A; acc = A v.
 * table [H,exponents,size] entries at most 32767, row_exponent [H,size] below `exponents`; v u8 at most v_max.
 * acc int32 [B,H,N,C] with strides of b, h, n; zint [B,H,N] contiguous.
 * LAPIS_DOT, which no other function takes: codes up to 127, D = max_j(q_i . k_j) - q_i . k_j of codes less zero_code,
 * r_i = 0, and D beyond the table is read at its end. There are no delays. */
LAPIS_API int32_t lapis_integer_attention(const lapis_pairs *pairs, const uint8_t *q, const uint8_t *k,
                                          const uint8_t *v, const int64_t *v_stride, int32_t v_max,
                                          const uint16_t *table, const uint16_t *row_exponent, int64_t exponents,
                                          int64_t size, const int32_t *delay, int32_t *acc, const int64_t *acc_stride,
                                          uint32_t *zint, int32_t threads);

/* u = (x - offset) / step; z = clamp(floor(u + 1/2), low, high), or 0 where |z| < min_code; value = z step + offset.
 * x [rows, columns] contiguous, step [rows] (per_row) or [1], offset one number or NULL. `value` or `codes` may be
 * NULL. */
LAPIS_API int32_t lapis_lsq(const float *x, int64_t rows, int64_t columns, const float *step, int32_t per_row,
                            const float *offset, float low, float high, float min_code, float *value, float *codes,
                            int32_t threads);

/* Gradients of value: gx = inside ? g : 0; gstep = sum g (inside ? z - u : z); goffset = sum (inside ? 0 : g).
 * Gradients of codes: gx = inside ? g / step : 0; gstep = sum (inside ? -g u / step : 0);
 * goffset = sum (inside ? -g / step : 0). inside is low < u < high. Sums are taken in double over fixed chunks, so they
 * do not depend on `threads`. gstep has the shape of step; goffset one number. */
LAPIS_API int32_t lapis_lsq_value_backward(const float *x, const float *grad, int64_t rows, int64_t columns,
                                           const float *step, int32_t per_row, const float *offset, float low,
                                           float high, float min_code, float *grad_x, double *grad_step,
                                           double *grad_offset, int32_t threads);
LAPIS_API int32_t lapis_lsq_codes_backward(const float *x, const float *grad, int64_t rows, int64_t columns,
                                           const float *step, int32_t per_row, const float *offset, float low,
                                           float high, float min_code, float *grad_x, double *grad_step,
                                           double *grad_offset, int32_t threads);

#ifdef __cplusplus
}
#endif
#endif
