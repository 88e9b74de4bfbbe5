/* The gradient of a distance: out_ic = sum_j g_ij s(x_ic - y_jc), s in {-1, 0, 1}.
 *
 * A row of g becomes fixed point: times the power of two that puts its largest entry in [2^29, 2^30), so that entries
 * down to 1/64 of it keep every bit and the rest err by 2^-30 of it. The 31-bit integers are written in four signed
 * base-256 digits; u = s + 1 in {0, 1, 2} is two byte operations, digit times u two more, and sums of integers are exact:
 *   out = 2^-e (sum_j G_ij u_ijc - sum_j G_ij).
 * For y's own gradient the roles swap: sum_i g_ij s(y_jc - x_ic), with columns of g for rows. */

enum { DIGITS = 4, COLUMN_BLOCK = 64 };

/* Quads of tokens whose u * digit products fit an int16 lane: 64 * 2 * (2 * 128) = 2^15, reached only from below. */
enum { QUADS_IN_INT16 = 63 };

/* Quads whose sums of one digit times 256 fit int32. */
enum { QUADS_IN_INT32 = 2048 };

typedef struct {
    float scale, lift; /* 2^e = scale * lift: for tiny gradients it exceeds what one float holds */
    double unscale;    /* 2^-e, or NaN where the gradient is not finite */
} fixed_point;

static fixed_point fixed_point_of(int32_t largest_bits) {
    int exponent = largest_bits >> 23;
    if (exponent == 255) return (fixed_point){0, 0, NAN};
    int shift = 29 - (exponent - 127), first = shift > 127 ? 127 : shift;
    return (fixed_point){ldexpf(1.0f, first), ldexpf(1.0f, shift - first), ldexp(1.0, -shift)};
}

static inline int32_t greatest_s32(__m256i v) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return _mm_cvtsi128_si32(m);
}

/* Bits of |g|, whose order is that of the numbers with infinities and NaNs above all. */
static inline __m256i magnitude(__m256 g) {
    return _mm256_and_si256(_mm256_castps_si256(g), _mm256_set1_epi32(INT32_MAX));
}

static inline __m256i to_fixed(__m256 g, __m256 scale, __m256 lift) {
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_mul_ps(g, scale), lift));
}

/* The four digits of 8 integers, digit 0 first, in the bytes of each dword. */
static inline __m256i digits_of(__m256i x) {
    const __m256i bias = _mm256_set1_epi32(0x808080);
    return _mm256_xor_si256(_mm256_add_epi32(x, bias), bias);
}

/* 4 tokens x 4 digits to 4 digits x 4 tokens in each half. */
static inline __m256i digit_planes(__m256i x) {
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(order));
}

/* Sums of digit planes are kept in dwords: a lane is one digit of four tokens. */
static inline __m256i add_digits(__m256i sums, __m256i planes) {
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), planes);
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline double sum_of_digits(__m128i sums) {
    int32_t digit[4];
    _mm_storeu_si128((__m128i *)digit, sums);
    return digit[0] + 256.0 * digit[1] + 65536.0 * digit[2] + 16777216.0 * digit[3];
}

#if LAPIS_WIDE
/* The same for 16 integers. */
static inline ints wide_magnitude(floats g) {
    return _mm512_and_si512(_mm512_castps_si512(g), all32(INT32_MAX));
}

static inline ints wide_digits(floats g, floats scale, floats lift) {
    const ints bias = all32(0x808080);
    ints x = _mm512_cvtps_epi32(multiply_floats(multiply_floats(g, scale), lift));
    return xor_ints(add32(x, bias), bias);
}

static inline ints wide_planes(ints x) {
    return shuffle8(x, four_copies(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
}

static inline ints add_wide_digits(ints sums, ints planes) {
    return add32(sums, multiply_s16(multiply_u8_s8(all8(1), planes), all16(1)));
}

static inline __m256i halves_greatest(ints x) {
    return _mm256_max_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
}

static inline __m256i halves_sum(ints x) {
    return _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
}
#endif

/* One row of g [count] to digits [count / 4][4 digits][4 tokens], and the sum of its integers. */
static fixed_point split_row(const float *g, int64_t count, uint8_t *digits, double *total) {
    __m256i most = _mm256_setzero_si256(), sums = most;
    int64_t j = 0;
#if LAPIS_WIDE
    ints wide_most = zero_ints(), wide_sums = wide_most;
    for (; j + 16 <= count; j += 16) wide_most = max_s32(wide_most, wide_magnitude(load_floats(g + j)));
    most = halves_greatest(wide_most);
#endif
    for (; j < count; j += 8) most = _mm256_max_epi32(most, magnitude(load_row(g + j, count - j)));
    fixed_point f = fixed_point_of(greatest_s32(most));
    __m256 scale = _mm256_set1_ps(f.scale), lift = _mm256_set1_ps(f.lift);
    j = 0;
#if LAPIS_WIDE
    for (; j + 16 <= count; j += 16) {
        ints planes = wide_planes(wide_digits(load_floats(g + j), all_floats(f.scale), all_floats(f.lift)));
        wide_sums = add_wide_digits(wide_sums, planes);
        store_ints(digits + j * DIGITS, planes);
    }
    sums = halves_sum(wide_sums);
#endif
    for (; j < count; j += 8) {
        __m256i planes = digit_planes(digits_of(to_fixed(load_row(g + j, count - j), scale, lift)));
        sums = add_digits(sums, planes);
        _mm256_storeu_si256((__m256i *)(digits + j * DIGITS), planes);
    }
    *total = sum_of_digits(_mm256_castsi256_si128(sums)) + sum_of_digits(_mm256_extracti128_si256(sums, 1));
    return f;
}

#if LAPIS_WIDE
/* 16 columns as split_columns has them. */
static void split_16_columns(const float *g, int64_t stride, int64_t count, uint8_t *digits, int64_t digit_stride,
                             fixed_point *f, double *total) {
    ints most = zero_ints(), sums[4] = {most, most, most, most};
    for (int64_t i = 0; i < count; i++) most = max_s32(most, wide_magnitude(load_floats(g + i * stride)));
    int32_t largest[16];
    float scales[16], lifts[16];
    store_ints(largest, most);
    for (int i = 0; i < 16; i++) f[i] = fixed_point_of(largest[i]), scales[i] = f[i].scale, lifts[i] = f[i].lift;
    const floats scale = load_floats(scales), lift = load_floats(lifts);
    for (int64_t i = 0; i < count; i += 4) {
        ints x[4];
        for (int r = 0; r < 4; r++)
            x[r] = wide_digits(i + r < count ? load_floats(g + (i + r) * stride) : zero_floats(), scale, lift);
        ints a = _mm512_unpacklo_epi32(x[0], x[1]), b = _mm512_unpackhi_epi32(x[0], x[1]);
        ints c = _mm512_unpacklo_epi32(x[2], x[3]), d = _mm512_unpackhi_epi32(x[2], x[3]);
        ints column[4] = {_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c), _mm512_unpacklo_epi64(b, d),
                          _mm512_unpackhi_epi64(b, d)};
        UNROLL for (int k = 0; k < 4; k++) {
            ints planes = wide_planes(column[k]);
            sums[k] = add_wide_digits(sums[k], planes);
            uint8_t *to = digits + k * digit_stride + i * DIGITS;
            _mm_storeu_si128((__m128i *)to, _mm512_castsi512_si128(planes));
            _mm_storeu_si128((__m128i *)(to + 4 * digit_stride), _mm512_extracti32x4_epi32(planes, 1));
            _mm_storeu_si128((__m128i *)(to + 8 * digit_stride), _mm512_extracti32x4_epi32(planes, 2));
            _mm_storeu_si128((__m128i *)(to + 12 * digit_stride), _mm512_extracti32x4_epi32(planes, 3));
        }
    }
    for (int k = 0; k < 4; k++) {
        _Alignas(64) int32_t lanes[16];
        store_ints(lanes, sums[k]);
        for (int n = 0; n < 4; n++) total[4 * n + k] = sum_of_digits(_mm_load_si128((const __m128i *)(lanes + 4 * n)));
    }
}
#endif

/* Columns of g [count, stride], at most COLUMN_BLOCK of them, to digits [column][count / 4][4 digits][4 tokens]. */
static void split_columns(const float *g, int64_t stride, int64_t count, int64_t columns, uint8_t *digits,
                          int64_t digit_stride, fixed_point *f, double *total) {
    int64_t j = 0;
#if LAPIS_WIDE
    for (; j + 16 <= columns; j += 16)
        split_16_columns(g + j, stride, count, digits + j * digit_stride, digit_stride, f + j, total + j);
#endif
    for (; j < columns; j += 8) {
        int64_t left = columns - j, many = left < 8 ? left : 8;
        __m256i most = _mm256_setzero_si256();
        for (int64_t i = 0; i < count; i++)
            most = _mm256_max_epi32(most, magnitude(load_row(g + i * stride + j, left)));
        int32_t largest[8];
        float scales[8], lifts[8];
        _mm256_storeu_si256((__m256i *)largest, most);
        for (int i = 0; i < 8; i++) {
            fixed_point column = fixed_point_of(largest[i]);
            scales[i] = column.scale, lifts[i] = column.lift;
            if (i < many) f[j + i] = column;
        }
        __m256 scale = _mm256_loadu_ps(scales), lift = _mm256_loadu_ps(lifts);
        const __m256i none = _mm256_setzero_si256();
        __m256i sums[4] = {none, none, none, none};
        for (int64_t i = 0; i < count; i += 4) {
            __m256i x[4];
            for (int r = 0; r < 4; r++) {
                __m256 row = i + r < count ? load_row(g + (i + r) * stride + j, left) : _mm256_setzero_ps();
                x[r] = digits_of(to_fixed(row, scale, lift));
            }
            __m256i a = _mm256_unpacklo_epi32(x[0], x[1]), b = _mm256_unpackhi_epi32(x[0], x[1]);
            __m256i c = _mm256_unpacklo_epi32(x[2], x[3]), d = _mm256_unpackhi_epi32(x[2], x[3]);
            __m256i column[4] = {_mm256_unpacklo_epi64(a, c), _mm256_unpackhi_epi64(a, c), _mm256_unpacklo_epi64(b, d),
                                 _mm256_unpackhi_epi64(b, d)};
            for (int k = 0; k < 4; k++) {
                __m256i planes = digit_planes(column[k]);
                sums[k] = add_digits(sums[k], planes);
                uint8_t *to = digits + (j + k) * digit_stride + i * DIGITS;
                if (k < many) _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(planes));
                if (k + 4 < many)
                    _mm_storeu_si128((__m128i *)(to + 4 * digit_stride), _mm256_extracti128_si256(planes, 1));
            }
        }
        for (int64_t i = 0; i < many; i++)
            total[j + i] =
                sum_of_digits(i < 4 ? _mm256_castsi256_si128(sums[i]) : _mm256_extracti128_si256(sums[i - 4], 1));
    }
}

/* u = s(x - y) + 1, from x + 1 and y: l1 saturates at 0 and is cut at 2; hamming's surrogate sends all else to 1. */
INLINE ints slope_plus_one(const int relation, ints x_plus_one, ints y) {
    if (relation == LAPIS_L1) return min_u8(subs_u8(x_plus_one, y), all8(2));
    const ints map = four_copies(_mm_setr_epi8(0, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
    return shuffle8(map, min_u8(sub8(x_plus_one, y), all8(3)));
}

/* low + 2^16 high = sum_j G_j u_jc for LANES * vecs channels of `rows` tokens over quads from..to. */
INLINE void gradient_tile(const int rows, const int vecs, const int relation, ints x[][GRADIENT_VECS],
                          const uint8_t *y, const uint8_t *const *digits, int64_t from, int64_t to,
                          ints low[][GRADIENT_VECS], ints high[][GRADIENT_VECS]) {
    ints wide[GRADIENT_ROWS][GRADIENT_VECS][DIGITS];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < vecs; v++)
            UNROLL for (int n = 0; n < DIGITS; n++) wide[r][v][n] = zero_ints();
#if LAPIS_VNNI
    for (int64_t j = from; j < to; j++)
        UNROLL for (int v = 0; v < vecs; v++) {
            ints other = load_ints(y + (j * vecs + v) * LANES * 4);
            UNROLL for (int r = 0; r < rows; r++) {
                ints u = slope_plus_one(relation, x[r][v], other);
                UNROLL for (int n = 0; n < DIGITS; n++) dot_add_all(wide[r][v][n], u, digits[r] + (j * DIGITS + n) * 4);
            }
        }
#else
    for (int64_t start = from; start < to; start += QUADS_IN_INT16) {
        int64_t stop = start + QUADS_IN_INT16 < to ? start + QUADS_IN_INT16 : to;
        ints sum[GRADIENT_ROWS][GRADIENT_VECS][DIGITS];
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int v = 0; v < vecs; v++)
                UNROLL for (int n = 0; n < DIGITS; n++) sum[r][v][n] = zero_ints();
        for (int64_t j = start; j < stop; j++)
            UNROLL for (int r = 0; r < rows; r++) {
                ints digit[DIGITS];
                UNROLL for (int n = 0; n < DIGITS; n++) digit[n] = broadcast_dword(digits[r] + (j * DIGITS + n) * 4);
                UNROLL for (int v = 0; v < vecs; v++) {
                    ints u = slope_plus_one(relation, x[r][v], load_ints(y + (j * vecs + v) * LANES * 4));
                    UNROLL for (int n = 0; n < DIGITS; n++)
                        accumulate16(sum[r][v][n], multiply_u8_s8(u, digit[n]));
                }
            }
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int v = 0; v < vecs; v++)
                UNROLL for (int n = 0; n < DIGITS; n++)
                    wide[r][v][n] = add32(wide[r][v][n], multiply_s16(sum[r][v][n], all16(1)));
    }
#endif
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < vecs; v++) {
            low[r][v] = add32(wide[r][v][0], shift_left_32(wide[r][v][1], 8));
            high[r][v] = add32(wide[r][v][2], shift_left_32(wide[r][v][3], 8));
        }
}

/* 16 channels of `rows` tokens: x and out point at the first, y at the packed panel of these channels. */
INLINE void gradient_panel(const int rows, const int relation, const uint8_t *x, int64_t x_width, const uint8_t *y,
                           int64_t quads, const uint8_t *const *digits, const fixed_point *f, const double *total,
                           float *out, int64_t out_stride, int64_t left) {
    enum { vecs = GRADIENT_VECS };
    const ints spread = four_copies(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    ints code[GRADIENT_ROWS][GRADIENT_VECS];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < vecs; v++)
            code[r][v] = add8(shuffle8(widen_u8(x + r * x_width + v * LANES), spread), all8(1));
    for (int64_t from = 0; from < quads; from += QUADS_IN_INT32) {
        int64_t to = from + QUADS_IN_INT32 < quads ? from + QUADS_IN_INT32 : quads;
        ints low[GRADIENT_ROWS][GRADIENT_VECS], high[GRADIENT_ROWS][GRADIENT_VECS];
        gradient_tile(rows, vecs, relation, code, y, digits, from, to, low, high);
        UNROLL for (int r = 0; r < rows; r++) {
            _Alignas(64) int32_t lows[16], highs[16];
            _Alignas(64) float result[16];
            UNROLL for (int v = 0; v < vecs; v++) {
                store_ints(lows + v * LANES, low[r][v]);
                store_ints(highs + v * LANES, high[r][v]);
            }
            __m256d unscale = _mm256_set1_pd(f[r].unscale);
            /* The sum of g leaves with the first part; later parts, beyond 8192 tokens, add to what is there. */
            __m256d start = _mm256_set1_pd(from ? 0 : total[r]);
            for (int c = 0; c < 16; c += 4) {
                __m256d sum = _mm256_mul_pd(_mm256_cvtepi32_pd(_mm_load_si128((const __m128i *)(highs + c))),
                                            _mm256_set1_pd(65536));
                sum = _mm256_add_pd(sum, _mm256_cvtepi32_pd(_mm_load_si128((const __m128i *)(lows + c))));
                sum = _mm256_mul_pd(_mm256_sub_pd(sum, start), unscale);
                _mm_store_ps(result + c, _mm256_cvtpd_ps(sum));
            }
            float *to_row = out + r * out_stride;
            int64_t count = left < 16 ? left : 16;
            if (from)
                for (int64_t c = 0; c < count; c++) to_row[c] += result[c];
            else if (count == 16)
                memcpy(to_row, result, sizeof result);
            else
                memcpy(to_row, result, (size_t)count * 4);
        }
    }
}

#define GRADIENT_STRIP(rows_, name_, relation_)                                                                     \
    static __attribute__((noinline)) void gradient_strip_##name_##_##rows_(                                                     \
        const uint8_t *x, int64_t x_width, const uint8_t *y, int64_t quads, const uint8_t *digits,                  \
        int64_t digit_stride, const fixed_point *f, const double *total, float *out, int64_t channels) {            \
        const uint8_t *row_digits[rows_];                                                                           \
        for (int r = 0; r < rows_; r++) row_digits[r] = digits + r * digit_stride;                                  \
        /* The lines to be written arrive while the sums are taken. */                                              \
        for (int64_t c = 0; c < rows_ * channels; c += 16) __builtin_prefetch(out + c, 1);                          \
        for (int64_t c = 0; c < channels; c += 16)                                                                  \
            gradient_panel(rows_, relation_, x + c, x_width, y + c / 16 * quads * 64, quads, row_digits, f, total,  \
                           out + c, channels, channels - c);                                                        \
    }

GRADIENT_STRIP(1, l1, LAPIS_L1)
GRADIENT_STRIP(1, hamming, LAPIS_HAMMING)
#if LAPIS_WIDE
GRADIENT_STRIP(4, l1, LAPIS_L1)
#endif

static void gradient_rows(int32_t relation, const uint8_t *x, int64_t x_width, const uint8_t *y, int64_t quads,
                          const uint8_t *digits, int64_t digit_stride, const fixed_point *f, const double *total,
                          float *out, int64_t channels, int64_t rows) {
    int64_t i = 0;
#if LAPIS_WIDE
    for (; relation == LAPIS_L1 && i + 4 <= rows; i += 4)
        gradient_strip_l1_4(x + i * x_width, x_width, y, quads, digits + i * digit_stride, digit_stride, f + i,
                            total + i, out + i * channels, channels);
#endif
    for (; i < rows; i++)
        (relation == LAPIS_L1 ? gradient_strip_l1_1 : gradient_strip_hamming_1)(
            x + i * x_width, x_width, y, quads, digits + i * digit_stride, digit_stride, f + i, total + i,
            out + i * channels, channels);
}

static int64_t most_tokens(const lapis_pairs *p) { return p->rows > p->keys ? p->rows : p->keys; }

static size_t gradient_scratch(const lapis_pairs *p) {
    int64_t most = padded_tokens(most_tokens(p));
    return (size_t)(prepared_bytes(p->rows, p->channels) + prepared_bytes(p->keys, p->channels) +
                    round_up(most * padded_width(p->channels), 64) + COLUMN_BLOCK * most * DIGITS);
}

/* Rows of one side. `packed` and `digits` are scratch. */
static void gradient_side(const gradient_call *call, int side, int64_t bh, const prepared *x, const prepared *y,
                          span own, uint8_t *packed, uint8_t *digits, int64_t digit_stride) {
    const lapis_pairs *p = &call->p;
    int64_t quads = (y->tokens + 3) / 4, step = side == SIDE_K ? COLUMN_BLOCK : GRADIENT_ROWS;
    const float *g = call->grad + bh * p->rows * p->keys;
    float *out = (side == SIDE_Q ? call->grad_q : call->grad_k) + bh * x->tokens * p->channels;
    fixed_point f[COLUMN_BLOCK];
    double total[COLUMN_BLOCK];
    pack_channels(y, p->channels, packed);
    for (int64_t i = own.from; i < own.to; i += step) {
        int64_t rows = own.to - i < step ? own.to - i : step;
        if (side == SIDE_K) {
            split_columns(g + i, p->keys, p->rows, rows, digits, digit_stride, f, total);
        } else {
            for (int64_t r = 0; r < rows; r++)
                f[r] = split_row(g + (i + r) * p->keys, p->keys, digits + r * digit_stride, &total[r]);
            /* The next rows arrive while the sums of these are taken. */
            const float *next = g + (i + rows) * p->keys;
            if (i + rows < own.to)
                for (int64_t j = 0; j < rows * p->keys; j += 16) __builtin_prefetch(next + j);
        }
        gradient_rows(p->relation, x->codes + i * x->width, x->width, packed, quads, digits, digit_stride, f, total,
                      out + i * p->channels, p->channels, rows);
    }
}

static int gradient(const gradient_call *call, int64_t b, int64_t h, const span rows[SIDES], unsigned char *scratch) {
    const lapis_pairs *p = &call->p;
    prepared q = carve_prepared(&scratch, p->rows, p->channels), k = carve_prepared(&scratch, p->keys, p->channels);
    uint8_t *packed = carve(&scratch, padded_tokens(most_tokens(p)) * padded_width(p->channels));
    int64_t digit_stride = padded_tokens(most_tokens(p)) * DIGITS, bh = b * p->heads + h;
    uint8_t *digits = carve(&scratch, COLUMN_BLOCK * digit_stride);
    int status = prepare_pair(p, call->q, call->k, b, h, 0, &q, &k);
    if (status) return status;
    for (int side = 0; side < SIDES; side++) {
        const prepared *x = side == SIDE_Q ? &q : &k, *y = side == SIDE_Q ? &k : &q;
        if (rows[side].from >= rows[side].to) continue;
        /* x + 1 must fit a byte. */
        if (x->max == 255) return LAPIS_BAD_CODES;
        gradient_side(call, side, bh, x, y, rows[side], packed, digits, digit_stride);
    }
    return LAPIS_OK;
}
