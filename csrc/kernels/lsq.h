/* Learned-step quantization, element by element: the same IEEE operations in the same order as the torch composition,
 * so values are equal to the bit. 256 bits wide everywhere: it is bound by memory. */

static inline __m256 lsq_unrounded(__m256 x, const lsq_scale *s) {
    if (s->has_offset) x = _mm256_sub_ps(x, _mm256_set1_ps(s->offset));
    return _mm256_div_ps(x, _mm256_set1_ps(s->step));
}

/* min and max return their second operand where one is a NaN: a NaN goes through, as torch.clamp lets it. */
static inline __m256 lsq_rounded(__m256 u, const lsq_scale *s) {
    __m256 z = _mm256_floor_ps(_mm256_add_ps(u, _mm256_set1_ps(0.5f)));
    return _mm256_min_ps(_mm256_set1_ps(s->high), _mm256_max_ps(_mm256_set1_ps(s->low), z));
}

static inline __m256 lsq_inside(__m256 u, const lsq_scale *s) {
    return _mm256_and_ps(_mm256_cmp_ps(u, _mm256_set1_ps(s->low), _CMP_GT_OQ),
                         _mm256_cmp_ps(u, _mm256_set1_ps(s->high), _CMP_LT_OQ));
}

static inline void store_8(float *to, __m256 v, int64_t left) {
    if (left >= 8)
        _mm256_storeu_ps(to, v);
    else {
        float spill[8];
        _mm256_storeu_ps(spill, v);
        memcpy(to, spill, (size_t)left * 4);
    }
}

static void lsq(const float *x, int64_t n, lsq_scale s, float *value, float *codes) {
    for (int64_t i = 0; i < n; i += 8) {
        __m256 z = lsq_rounded(lsq_unrounded(load_row(x + i, n - i), &s), &s);
        if (codes) store_8(codes + i, z, n - i);
        if (!value) continue;
        __m256 y = _mm256_mul_ps(z, _mm256_set1_ps(s.step));
        if (s.has_offset) y = _mm256_add_ps(y, _mm256_set1_ps(s.offset));
        store_8(value + i, y, n - i);
    }
}

static inline __m256d low_half(__m256 v) { return _mm256_cvtps_pd(_mm256_castps256_ps128(v)); }
static inline __m256d high_half(__m256 v) { return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)); }

static lsq_sums lsq_value_backward(const float *x, const float *grad, int64_t n, lsq_scale s, float *grad_x) {
    __m256d step = _mm256_setzero_pd(), more = step, offset = step, rest = step;
    for (int64_t i = 0; i < n; i += 8) {
        /* Lanes past the end hold g = 0 and a harmless u. */
        __m256 u = lsq_unrounded(load_row(x + i, n - i), &s), z = lsq_rounded(u, &s), inside = lsq_inside(u, &s);
        __m256 g = load_row(grad + i, n - i);
        if (grad_x) store_8(grad_x + i, _mm256_and_ps(inside, g), n - i);
        __m256 slope = _mm256_blendv_ps(z, _mm256_sub_ps(z, u), inside), out = _mm256_andnot_ps(inside, g);
        step = _mm256_add_pd(step, _mm256_mul_pd(low_half(g), low_half(slope)));
        more = _mm256_add_pd(more, _mm256_mul_pd(high_half(g), high_half(slope)));
        offset = _mm256_add_pd(offset, low_half(out));
        rest = _mm256_add_pd(rest, high_half(out));
    }
    return (lsq_sums){sum_pd(_mm256_add_pd(step, more)), sum_pd(_mm256_add_pd(offset, rest))};
}

static lsq_sums lsq_codes_backward(const float *x, const float *grad, int64_t n, lsq_scale s, float *grad_x) {
    __m256d step = _mm256_setzero_pd(), more = step, offset = step, rest = step;
    for (int64_t i = 0; i < n; i += 8) {
        __m256 u = lsq_unrounded(load_row(x + i, n - i), &s), inside = lsq_inside(u, &s);
        __m256 g = _mm256_and_ps(inside, _mm256_div_ps(load_row(grad + i, n - i), _mm256_set1_ps(s.step)));
        if (grad_x) store_8(grad_x + i, g, n - i);
        /* Not zero times u: outside, u may be infinite. */
        u = _mm256_and_ps(inside, u);
        step = _mm256_sub_pd(step, _mm256_mul_pd(low_half(g), low_half(u)));
        more = _mm256_sub_pd(more, _mm256_mul_pd(high_half(g), high_half(u)));
        offset = _mm256_sub_pd(offset, low_half(g));
        rest = _mm256_sub_pd(rest, high_half(g));
    }
    return (lsq_sums){sum_pd(_mm256_add_pd(step, more)), sum_pd(_mm256_add_pd(offset, rest))};
}
