/* Codes into the layouts that the kernels read. 256 bits wide on every x86 instruction set but for floats, of which
 * there are more: this is a small part of the work and bound by memory.
 *
 * A prepared matrix is u8 [tokens, width], zero beyond its channels and with zero tokens up to a multiple of 16. */

enum { TOKEN_UNIT = 16, CHANNEL_UNIT = 32 };

typedef struct {
    uint8_t *codes; /* [tokens, width] */
    int32_t *sums;  /* [tokens] */
    int64_t tokens, width;
    int max;
} prepared;

static int64_t padded_tokens(int64_t tokens) { return round_up(tokens, TOKEN_UNIT); }
static int64_t padded_width(int64_t channels) { return round_up(channels, CHANNEL_UNIT); }

/* Whole vectors of sums may be read and written from any token on. */
static int64_t sums_bytes(int64_t tokens) { return round_up((padded_tokens(tokens) + TOKEN_UNIT) * 4, 64); }

static int64_t prepared_bytes(int64_t tokens, int64_t channels) {
    return round_up(padded_tokens(tokens) * padded_width(channels), 64) + sums_bytes(tokens);
}

static prepared carve_prepared(unsigned char **scratch, int64_t tokens, int64_t channels) {
    prepared m = {.tokens = tokens, .width = padded_width(channels)};
    m.codes = carve(scratch, padded_tokens(tokens) * m.width);
    m.sums = carve(scratch, sums_bytes(tokens));
    memset(m.codes + tokens * m.width, 0, (size_t)((padded_tokens(tokens) - tokens) * m.width));
    memset(m.sums + tokens, 0, (size_t)(padded_tokens(tokens) - tokens) * 4);
    return m;
}

static inline int32_t sum_of_quads(__m256i sad) {
    __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sad), _mm256_extracti128_si256(sad, 1));
    return _mm_cvtsi128_si32(half) + _mm_extract_epi32(half, 2);
}

static inline int greatest_u8(__m256i v) {
    __m128i m = _mm_max_epu8(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    /* The smallest of the complements, found two bytes at a time. */
    m = _mm_sub_epi8(_mm_set1_epi8(-1), m);
    m = _mm_min_epu8(m, _mm_srli_epi16(m, 8));
    return 255 - (_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_and_si128(m, _mm_set1_epi16(255)))) & 255);
}

/* -1 in the first `count` of 8 lanes. */
static inline __m256i first_lanes(int64_t count) {
    static const int32_t edge[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(edge + 8 - (count < 0 ? 0 : count > 8 ? 8 : count)));
}

/* The first `left` of 8 floats, zeros for the others; nothing beyond them is read. */
static inline __m256 load_first(const float *x, int64_t left) {
    return left > 0 ? _mm256_maskload_ps(x, first_lanes(left)) : _mm256_setzero_ps();
}

static inline __m256 load_row(const float *g, int64_t left) {
    return left >= 8 ? _mm256_loadu_ps(g) : load_first(g, left);
}

static inline double sum_pd(__m256d v) {
    double x[4];
    _mm256_storeu_pd(x, v);
    return (x[0] + x[1]) + (x[2] + x[3]);
}

static void prepare_u8(const uint8_t *x, int64_t stride, int64_t channels, prepared *m) {
    __m256i most = _mm256_setzero_si256(), zero = most;
    for (int64_t n = 0; n < m->tokens; n++, x += stride) {
        uint8_t *out = m->codes + n * m->width;
        __m256i sum = zero;
        for (int64_t c = 0; c < channels; c += 32) {
            __m256i v;
            if (channels - c >= 32) {
                v = _mm256_loadu_si256((const __m256i *)(x + c));
            } else {
                uint8_t tail[32] = {0};
                memcpy(tail, x + c, (size_t)(channels - c));
                v = _mm256_loadu_si256((const __m256i *)tail);
            }
            _mm256_storeu_si256((__m256i *)(out + c), v);
            sum = _mm256_add_epi64(sum, _mm256_sad_epu8(v, zero));
            most = _mm256_max_epu8(most, v);
        }
        m->sums[n] = sum_of_quads(sum);
    }
    m->max = greatest_u8(most);
}

typedef struct {
    float low, high;
    int integers;
} code_range;

/* Codes plus `shift` to u8, and what range the codes span; only right if that range fits. */
static void prepare_f32(const float *x, int64_t stride, int64_t channels, int shift, prepared *m, code_range *range) {
    const __m256i zero = _mm256_setzero_si256(), shifts = _mm256_set1_epi32(shift);
    const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i most = zero;
    __m256 low = _mm256_setzero_ps(), high = low, equal = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
#if LAPIS_WIDE
    floats wide_low = zero_floats(), wide_high = wide_low;
    unsigned same = 0xffff;
#endif
    for (int64_t n = 0; n < m->tokens; n++, x += stride) {
        uint8_t *out = m->codes + n * m->width;
        __m256i sum = zero;
        for (int64_t c = 0; c < channels; c += 32) {
            /* Eight tokens ahead: codes as floats are large, and this is all that is done with them. */
            __builtin_prefetch(x + 8 * stride + c), __builtin_prefetch(x + 8 * stride + c + 16);
            __m256i v;
#if LAPIS_WIDE
            if (channels - c >= 32) {
                const floats a = load_floats(x + c), b = load_floats(x + c + 16);
                const ints za = _mm512_cvtps_epi32(a), zb = _mm512_cvtps_epi32(b);
                same &= _mm512_cmp_ps_mask(to_floats(za), a, _CMP_EQ_OQ) & _mm512_cmp_ps_mask(to_floats(zb), b, _CMP_EQ_OQ);
                wide_low = _mm512_min_ps(wide_low, _mm512_min_ps(a, b));
                wide_high = _mm512_max_ps(wide_high, _mm512_max_ps(a, b));
                v = _mm256_set_m128i(_mm512_cvtepi32_epi8(add32(zb, all32(shift))),
                                     _mm512_cvtepi32_epi8(add32(za, all32(shift))));
            } else
#endif
            {
                __m256 value[4];
                __m256i part[4];
                const int whole = channels - c >= 32;
                for (int i = 0; i < 4; i++)
                    value[i] = whole ? _mm256_loadu_ps(x + c + 8 * i) : load_first(x + c + 8 * i, channels - c - 8 * i);
                for (int i = 0; i < 4; i++) {
                    __m256i z = _mm256_cvtps_epi32(value[i]);
                    equal = _mm256_and_ps(equal, _mm256_cmp_ps(_mm256_cvtepi32_ps(z), value[i], _CMP_EQ_OQ));
                    low = _mm256_min_ps(low, value[i]);
                    high = _mm256_max_ps(high, value[i]);
                    part[i] = _mm256_add_epi32(z, shifts);
                }
                if (!whole)
                    for (int i = 0; i < 4; i++) part[i] = _mm256_and_si256(part[i], first_lanes(channels - c - 8 * i));
                v = _mm256_packus_epi16(_mm256_packs_epi32(part[0], part[1]), _mm256_packs_epi32(part[2], part[3]));
                v = _mm256_permutevar8x32_epi32(v, in_order);
            }
            _mm256_storeu_si256((__m256i *)(out + c), v);
            sum = _mm256_add_epi64(sum, _mm256_sad_epu8(v, zero));
            most = _mm256_max_epu8(most, v);
        }
        m->sums[n] = sum_of_quads(sum);
    }
    m->max = greatest_u8(most);
    float lows[8], highs[8];
    _mm256_storeu_ps(lows, low);
    _mm256_storeu_ps(highs, high);
    for (int i = 0; i < 8; i++) {
        range->low = lows[i] < range->low ? lows[i] : range->low;
        range->high = highs[i] > range->high ? highs[i] : range->high;
    }
    range->integers &= _mm256_movemask_ps(equal) == 255;
#if LAPIS_WIDE
    float wide_lows[16], wide_highs[16];
    store_floats(wide_lows, wide_low);
    store_floats(wide_highs, wide_high);
    for (int i = 0; i < 16; i++) {
        range->low = wide_lows[i] < range->low ? wide_lows[i] : range->low;
        range->high = wide_highs[i] > range->high ? wide_highs[i] : range->high;
    }
    range->integers &= same == 0xffff;
#endif
}

/* Codes of q rows from..from+q->tokens and of every key of one (b, h). */
static int prepare_pair(const lapis_pairs *p, const void *q_codes, const void *k_codes, int64_t b, int64_t h,
                        int64_t from, prepared *q, prepared *k) {
    int64_t q_at = at(p->q_stride, b, h, from), k_at = at(p->k_stride, b, h, 0);
    if (p->code_type == LAPIS_CODES_U8) {
        prepare_u8((const uint8_t *)q_codes + q_at, p->q_stride[2], p->channels, q);
        prepare_u8((const uint8_t *)k_codes + k_at, p->k_stride[2], p->channels, k);
        return LAPIS_OK;
    }
    code_range range = {0, 0, 1};
    for (int shift = 0;; shift = (int)-range.low) {
        prepare_f32((const float *)q_codes + q_at, p->q_stride[2], p->channels, shift, q, &range);
        prepare_f32((const float *)k_codes + k_at, p->k_stride[2], p->channels, shift, k, &range);
        if (!range.integers || range.low < -255 || range.high - range.low > 255) return LAPIS_BAD_CODES;
        if (shift == (int)-range.low) return LAPIS_OK;
    }
}

/* 8 rows of 8 dwords to 8 columns. */
static inline void transpose_8x8(__m256i r[8]) {
    __m256i a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm256_unpacklo_epi64(a[i + j], a[i + 2 + j]);
            b[i + 2 * j + 1] = _mm256_unpackhi_epi64(a[i + j], a[i + 2 + j]);
        }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        r[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/* Tokens of x [tokens, width] from `from` on to [tokens / LANES][groups][LANES][4]: a dword lane holds four channels of
 * one key. Whole vectors of tokens are read. */
static void pack_keys(const uint8_t *x, int64_t width, int64_t from, int64_t tokens, int64_t groups, uint8_t *out) {
    for (int64_t j = from; j < round_up(tokens, LANES); j += 8)
        for (int64_t g = 0; g < groups; g += 8) {
            __m256i rows[8];
            for (int i = 0; i < 8; i++)
                rows[i] = _mm256_loadu_si256((const __m256i *)(x + (j + i) * width + 4 * g));
            transpose_8x8(rows);
            uint8_t *to = out + (j / LANES * groups + g) * LANES * 4 + j % LANES * 4;
            for (int i = 0; i < 8 && g + i < groups; i++, to += LANES * 4)
                _mm256_storeu_si256((__m256i *)to, rows[i]);
        }
}

/* [tokens, width] to [width / 16][tokens / 4][16][4]: a dword lane holds one channel of four tokens. */
static void pack_channels(const prepared *m, int64_t channels, uint8_t *out) {
    int64_t quads = (m->tokens + 3) / 4;
    for (int64_t n = 0; n < quads; n++)
        for (int64_t c = 0; c < channels; c += 16) {
            const uint8_t *row = m->codes + 4 * n * m->width + c;
            __m128i r[4];
            for (int i = 0; i < 4; i++) r[i] = _mm_loadu_si128((const __m128i *)(row + i * m->width));
            __m128i ab = _mm_unpacklo_epi8(r[0], r[1]), cd = _mm_unpacklo_epi8(r[2], r[3]);
            __m128i *to = (__m128i *)(out + (c / 16 * quads + n) * 64);
            _mm_storeu_si128(to, _mm_unpacklo_epi16(ab, cd));
            _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(ab, cd));
            ab = _mm_unpackhi_epi8(r[0], r[1]), cd = _mm_unpackhi_epi8(r[2], r[3]);
            _mm_storeu_si128(to + 2, _mm_unpacklo_epi16(ab, cd));
            _mm_storeu_si128(to + 3, _mm_unpackhi_epi16(ab, cd));
        }
}

/* The first `count` lanes of a vector to memory. */
#define store_some(pointer, vector, count, store)                       \
    do {                                                                \
        if ((count) >= LANES) {                                         \
            store(pointer, vector);                                     \
        } else if ((count) > 0) {                                       \
            _Alignas(64) unsigned char spill_[LANES * 4];               \
            store((void *)spill_, vector);                              \
            memcpy(pointer, spill_, (size_t)(count) * 4);               \
        }                                                               \
    } while (0)
