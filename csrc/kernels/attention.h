/* Fused attention in fp32: distances of a few rows at a time, table, row sum, scale, values. Scratch grows with N, never
 * with N squared. */

/* Rows that share one pass over the values; a multiple of every tile. */

/* Keys summed in one go. Sums of sums: the error of a long row stays that of a short one. */
enum { SUM_BLOCK = 32 };

/* v [keys, channels] to [channels / LANES][keys][LANES], zero beyond the channels. */
static void pack_values(const float *v, int64_t stride, int64_t keys, int64_t channels, float *out) {
    for (int64_t c = 0; c < channels; c += 8) {
        __m256i mask = first_lanes(channels - c);
        float *to = out + c / LANES * LANES * keys + c % LANES;
        for (int64_t j = 0; j < keys; j++)
            _mm256_storeu_ps(to + j * LANES, channels - c >= 8 ? _mm256_loadu_ps(v + j * stride + c)
                                                               : _mm256_maskload_ps(v + j * stride + c, mask));
    }
    /* A vector wider than eight may end in lanes that no channel reached. */
    for (int64_t c = round_up(channels, 8); c < round_up(channels, LANES); c += 8) {
        float *to = out + c / LANES * LANES * keys + c % LANES;
        for (int64_t j = 0; j < keys; j++) _mm256_storeu_ps(to + j * LANES, _mm256_setzero_ps());
    }
}

/* y[rows][vecs * LANES] = scale[r] * sum_j a[r][j] v[j]. */
INLINE void values_tile(const int rows, const int vecs, const float *a, int64_t a_stride, const float *v, int64_t keys,
                        const float *scale, float *y, int64_t y_stride, int64_t left) {
    floats total[TILE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int i = 0; i < vecs; i++) total[r][i] = zero_floats();
    for (int64_t start = 0; start < keys; start += SUM_BLOCK) {
        int64_t stop = start + SUM_BLOCK < keys ? start + SUM_BLOCK : keys;
        floats sum[TILE_ROWS][2];
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int i = 0; i < vecs; i++) sum[r][i] = zero_floats();
        for (int64_t j = start; j < stop; j++) {
            floats value[2];
            UNROLL for (int i = 0; i < vecs; i++) value[i] = load_floats(v + (i * keys + j) * LANES);
            UNROLL for (int r = 0; r < rows; r++) {
                floats weight = all_floats(a[r * a_stride + j]);
                UNROLL for (int i = 0; i < vecs; i++) sum[r][i] = multiply_add(weight, value[i], sum[r][i]);
            }
        }
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int i = 0; i < vecs; i++) total[r][i] = add_floats(total[r][i], sum[r][i]);
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int i = 0; i < vecs; i++)
            store_some(y + r * y_stride + i * LANES, multiply_floats(total[r][i], all_floats(scale[r])),
                       left - i * LANES, store_floats);
}

#define VALUES_STRIP(rows_)                                                                                      \
    static __attribute__((noinline)) void values_strip_##rows_(const float *a, int64_t a_stride, const float *v,             \
                                                   int64_t keys, int64_t channels, const float *scale, float *y, \
                                                   int64_t y_stride) {                                           \
        int64_t c = 0;                                                                                           \
        for (; c + LANES < channels; c += 2 * LANES)                                                             \
            values_tile(rows_, 2, a, a_stride, v + c * keys, keys, scale, y + c, y_stride, channels - c);        \
        if (c < channels)                                                                                        \
            values_tile(rows_, 1, a, a_stride, v + c * keys, keys, scale, y + c, y_stride, channels - c);        \
    }

#if LAPIS_WIDE
VALUES_STRIP(12)
#endif
VALUES_STRIP(6)
VALUES_STRIP(3)
VALUES_STRIP(1)

/* Add delays, and find the smallest and the greatest distance of a row. */
static void row_extremes(int32_t *d, const int32_t *delay, int64_t keys, int32_t *least, int32_t *most) {
    ints low = all32(INT32_MAX), high = all32(INT32_MIN);
    int64_t j = 0;
    for (; j + LANES <= keys; j += LANES) {
        ints x = load_ints(d + j);
        if (delay) {
            x = add32(x, load_ints(delay + j));
            store_ints(d + j, x);
        }
        low = min_s32(low, x);
        high = max_s32(high, x);
    }
    if (j && j < keys && !delay) {
        ints x = load_ints(d + keys - LANES);
        low = min_s32(low, x);
        high = max_s32(high, x);
        j = keys;
    }
    *least = least_lane(low);
    *most = greatest_lane(high);
    for (; j < keys; j++) {
        if (delay) d[j] += delay[j];
        *least = d[j] < *least ? d[j] : *least;
        *most = d[j] > *most ? d[j] : *most;
    }
}

/* a = table[d - least], in place, and its sum. Plain loads: gathers are slower than they on what was measured (Zen 3). */
static double look_up(int32_t *d, int32_t least, const float *table, int64_t keys) {
    const uint32_t *bits = (const uint32_t *)((uintptr_t)table - (uintptr_t)least * 4);
    int64_t j = 0;
    for (; j + 8 <= keys; j += 8)
        UNROLL for (int i = 0; i < 8; i++) d[j + i] = (int32_t)bits[d[j + i]];
    for (; j < keys; j++) d[j] = (int32_t)bits[d[j]];
    __m256d sum = _mm256_setzero_pd(), more = sum;
    for (j = 0; j < keys; j += 8) {
        __m256 x = load_row((const float *)(d + j), keys - j);
        sum = _mm256_add_pd(sum, _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
        more = _mm256_add_pd(more, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
    }
    return sum_pd(_mm256_add_pd(sum, more));
}

static size_t attention_scratch(const lapis_pairs *p) {
    return (size_t)(distance_plan_bytes(p) + strip_bytes(p->keys) +
                    round_up(p->keys * round_up(p->channels, LANES) * 4, 64));
}

static float row_factor(const attention_call *call, int64_t h, int32_t nearest, double z) {
    if (call->row_scale == LAPIS_EXACT) return (float)(1 / z);
    double gain = call->gain[h * call->size + nearest];
    int exponent;
    double mantissa = frexp(gain * z, &exponent);
    return (float)ldexp(gain, (mantissa < SQRT_HALF) - exponent);
}

static int attention(const attention_call *call, int64_t b, int64_t h, int64_t from, int64_t to,
                     unsigned char *scratch) {
    const lapis_pairs *p = &call->p;
    if (from >= to) return LAPIS_OK;
    int64_t keys = p->keys, columns = padded_columns(keys), y_stride = call->y_stride[2];
    distance_plan plan;
    int status = plan_distance(p, call->q, call->k, b, h, from, to, &scratch, &plan);
    if (status) return status;
    int32_t *d = carve(&scratch, strip_bytes(p->keys));
    float *v = carve(&scratch, keys * round_up(p->channels, LANES) * 4);
    pack_values(call->v + at(call->v_stride, b, h, 0), call->v_stride[2], keys, p->channels, v);
    const float *a = (const float *)d, *table = call->table + h * call->size;
    for (int64_t i = from; i < to; i += STRIP_ROWS) {
        int64_t rows = to - i < STRIP_ROWS ? to - i : STRIP_ROWS;
        float scale[STRIP_ROWS];
        distance_rows(&plan, i - from, rows, d, columns, NULL);
        for (int64_t r = 0; r < rows; r++) {
            int32_t least, most;
            const int32_t *delay = call->delay ? call->delay + (h * p->rows + i + r) * keys : NULL;
            row_extremes(d + r * columns, delay, keys, &least, &most);
            if (least < 0 || most >= call->size) return LAPIS_BAD_DISTANCE;
            double z = look_up(d + r * columns, least, table, keys);
            scale[r] = row_factor(call, h, least, z);
        }
        float *y = call->y + at(call->y_stride, b, h, i);
        for (int64_t r = 0; r < rows;) {
            int64_t left = rows - r;
#if LAPIS_WIDE
            if (left >= 12) {
                values_strip_12(a, columns, v, keys, p->channels, scale, y, y_stride), r += 12;
                continue;
            }
#endif
            if (left >= 6)
                values_strip_6(a + r * columns, columns, v, keys, p->channels, scale + r, y + r * y_stride, y_stride),
                    r += 6;
            else if (left >= 3)
                values_strip_3(a + r * columns, columns, v, keys, p->channels, scale + r, y + r * y_stride, y_stride),
                    r += 3;
            else
                values_strip_1(a + r * columns, columns, v, keys, p->channels, scale + r, y + r * y_stride, y_stride),
                    r += 1;
        }
    }
    return LAPIS_OK;
}
