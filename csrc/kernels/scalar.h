/* What the plain kernels lend to instruction sets that have no faster ones of their own. */
#ifndef LAPIS_KERNELS_SCALAR_H
#define LAPIS_KERNELS_SCALAR_H

#include "kernels.h"

/* Codes of some q rows and of all keys of one (b, h) as u8 [tokens, width], zero beyond their channels; negative fp32
 * codes are shifted to zero. */
int scalar_codes(const lapis_pairs *p, const void *q, const void *k, head_rows own, int64_t width, uint8_t *q_codes,
                 uint8_t *k_codes);

size_t scalar_gradient_scratch(const lapis_pairs *p);
int scalar_gradient(const gradient_call *call, int64_t b, int64_t h, const span rows[SIDES], unsigned char *scratch);
size_t scalar_attention_scratch(const lapis_pairs *p);
int scalar_attention(const attention_call *call, head_rows own, unsigned char *scratch);
void scalar_lsq(const float *x, int64_t n, lsq_scale s, float *value, float *codes);
lsq_sums scalar_lsq_value_backward(const float *x, const float *grad, int64_t n, lsq_scale s, float *grad_x);
lsq_sums scalar_lsq_codes_backward(const float *x, const float *grad, int64_t n, lsq_scale s, float *grad_x);

#endif
