/* What the engine does to one token or one patch at a time; 256 bits wide on every x86 instruction set but for norms and
 * the patch embedding's products. */

INLINE int64_t sum_of_four(__m256i x) {
    __m128i half = _mm_add_epi64(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return _mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1);
}

/* LayerNorm and its quantizer for one token, padded with zeros. */
#if LAPIS_WIDE
static void norm_row(const norm_call *call, const int32_t *stream, uint8_t *codes) {
    __m512i total = _mm512_setzero_si512(), squares = total;
    for (int64_t c = 0; c < call->padded; c += 8)
        total = _mm512_add_epi64(total, _mm512_cvtepi32_epi64(_mm256_loadu_si256((const __m256i *)(stream + c))));
    const int64_t sum = _mm512_reduce_add_epi64(total), mean = norm_mean(sum, call->width);
    const __m512i m = all32((int32_t)mean);
    for (int64_t c = 0; c < call->padded; c += 16) {
        const __m512i d = sub32(load_ints(stream + c), m), odd = _mm512_srli_epi64(d, 32);
        squares = _mm512_add_epi64(squares, _mm512_mul_epi32(d, d));
        squares = _mm512_add_epi64(squares, _mm512_mul_epi32(odd, odd));
    }
    /* Every zero beyond the width added m^2. */
    const int64_t square = _mm512_reduce_add_epi64(squares) - (call->padded - call->width) * mean * mean;
    const __m512 rstd = all_floats(norm_rstd(sum, mean, square, call->width, call->eps));
    const __m512i low = all32((int32_t)call->low);
    const __m128i span = _mm_set1_epi8((char)(call->high - call->low));
    for (int64_t c = 0; c < call->padded; c += 16) {
        __m512 pre = multiply_floats(to_floats(sub32(load_ints(stream + c), m)), rstd);
        pre = add_floats(multiply_floats(pre, load_floats(call->gain + c)), load_floats(call->shift + c));
        _mm_storeu_si128((__m128i *)(codes + c), _mm_min_epu8(narrow_wide(pre, low), span));
    }
}
#else
static void norm_row(const norm_call *call, const int32_t *stream, uint8_t *codes) {
    __m256i total = _mm256_setzero_si256(), squares = total;
    for (int64_t c = 0; c < call->padded; c += 8) {
        __m256i h = _mm256_loadu_si256((const __m256i *)(stream + c));
        total = _mm256_add_epi64(total, _mm256_cvtepi32_epi64(_mm256_castsi256_si128(h)));
        total = _mm256_add_epi64(total, _mm256_cvtepi32_epi64(_mm256_extracti128_si256(h, 1)));
    }
    int64_t sum = sum_of_four(total), mean = norm_mean(sum, call->width);
    const __m256i m = _mm256_set1_epi32((int32_t)mean);
    for (int64_t c = 0; c < call->padded; c += 8) {
        __m256i d = _mm256_sub_epi32(_mm256_loadu_si256((const __m256i *)(stream + c)), m);
        __m256i odd = _mm256_srli_epi64(d, 32);
        squares = _mm256_add_epi64(squares, _mm256_mul_epi32(d, d));
        squares = _mm256_add_epi64(squares, _mm256_mul_epi32(odd, odd));
    }
    /* Every zero beyond the width added m^2. */
    int64_t square = sum_of_four(squares) - (call->padded - call->width) * mean * mean;
    const __m256 rstd = _mm256_set1_ps(norm_rstd(sum, mean, square, call->width, call->eps));
    const __m256i low = _mm256_set1_epi16((int16_t)call->low);
    const __m128i span = _mm_set1_epi8((char)(call->high - call->low));
    for (int64_t c = 0; c < call->padded; c += 16) {
        __m256i half[2];
        UNROLL for (int i = 0; i < 2; i++) {
            __m256i d = _mm256_sub_epi32(_mm256_loadu_si256((const __m256i *)(stream + c + 8 * i)), m);
            __m256 pre = _mm256_mul_ps(_mm256_cvtepi32_ps(d), rstd);
            pre = _mm256_mul_ps(pre, _mm256_loadu_ps(call->gain + c + 8 * i));
            pre = _mm256_add_ps(pre, _mm256_loadu_ps(call->shift + c + 8 * i));
            half[i] = floored(pre);
        }
        _mm_storeu_si128((__m128i *)(codes + c), _mm_min_epu8(narrow_codes(half[0], half[1], low), span));
    }
}
#endif

static void readout_row(const readout_call *call, const int32_t *acc, int64_t channels, int32_t offset, float factor,
                        uint8_t *codes) {
    const __m256i low = _mm256_set1_epi16((int16_t)call->low);
    const __m128i span = _mm_set1_epi8((char)(call->high - call->low));
    const __m256 power = _mm256_set1_ps(factor);
    const __m256 scale = _mm256_set1_ps(call->scale), shift = _mm256_set1_ps(call->shift);
    const __m256i offsets = _mm256_set1_epi32(offset);
    for (int64_t c = 0; c < channels; c += 16) {
        __m256i half[2];
        UNROLL for (int i = 0; i < 2; i++) {
            __m256i sum = _mm256_add_epi32(_mm256_loadu_si256((const __m256i *)(acc + c + 8 * i)), offsets);
            __m256 pre = _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sum), power), scale);
            pre = _mm256_add_ps(pre, shift);
            half[i] = floored(pre);
        }
        __m128i narrow = _mm_min_epu8(narrow_codes(half[0], half[1], low), span);
        if (channels - c >= 16) {
            _mm_storeu_si128((__m128i *)(codes + c), narrow);
        } else {
            /* The next channel belongs to the next head, and perhaps to another thread. */
            uint8_t tail[16];
            _mm_storeu_si128((__m128i *)tail, narrow);
            memcpy(codes + c, tail, (size_t)(channels - c));
        }
    }
}

#if LAPIS_VNNI
#define add_pairs(sum, x, y) ((sum) = _mm512_dpwssd_epi32(sum, x, y))
#else
#define add_pairs(sum, x, y) ((sum) = add32(sum, multiply_s16(x, y)))
#endif

INLINE void patch_tile(const int rows, const patch_call *call, const int16_t *patches, int64_t panel,
                       const int32_t *position, int64_t position_stride, int32_t *stream, int64_t stream_stride) {
    const int16_t *weight = call->weight + panel * PANEL * call->inputs;
    ints sum[TILE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = zero_ints();
    for (int64_t k = 0; k < call->inputs; k += 2, weight += PANEL * 2) {
        ints a = load_ints(weight), b = load_ints(weight + LANES * 2);
        UNROLL for (int r = 0; r < rows; r++) {
            ints x = four_codes((const uint8_t *)(patches + r * call->inputs + k));
            add_pairs(sum[r][0], x, a);
            add_pairs(sum[r][1], x, b);
            SETTLE(sum[r][0], sum[r][1]);
        }
    }
    /* Beyond four limits the position cannot bring a value back, so 32 bits are enough. */
    const __m256i most = _mm256_set1_epi32(call->limit - 1), least = _mm256_set1_epi32(-call->limit);
    const __m256i far = _mm256_slli_epi32(_mm256_set1_epi32(call->limit), 2), one = _mm256_set1_epi32(1);
    UNROLL for (int r = 0; r < rows; r++) {
        int32_t sums[PANEL];
        store_ints(sums, sum[r][0]);
        store_ints(sums + LANES, sum[r][1]);
        for (int i = 0; i < PANEL; i += 8) {
            int64_t column = panel * PANEL + i;
            __m256i x = _mm256_loadu_si256((const __m256i *)(sums + i));
            /* floor(x / 2^s + 1/2) = (x >> s) + (bit s - 1 of x), with x >> (s - 1) at hand; s = 0 shifts by none. */
            __m256i half = _mm256_loadu_si256((const __m256i *)(call->half + column));
            __m256i y = _mm256_srav_epi32(x, _mm256_loadu_si256((const __m256i *)(call->shift + column)));
            __m256i bit = _mm256_and_si256(_mm256_and_si256(y, one), half);
            y = _mm256_add_epi32(_mm256_srav_epi32(y, half), bit);
            y = _mm256_min_epi32(_mm256_max_epi32(y, _mm256_sub_epi32(_mm256_setzero_si256(), far)), far);
            y = _mm256_add_epi32(y, _mm256_loadu_si256((const __m256i *)(position + r * position_stride + column)));
            _mm256_storeu_si256((__m256i *)(stream + r * stream_stride + column),
                                _mm256_min_epi32(_mm256_max_epi32(y, least), most));
        }
    }
}

#define PATCH(rows_)                                                                                                \
    static __attribute__((noinline)) void patch_##rows_(const patch_call *call, const int16_t *patches, int64_t panel, \
                                                        const int32_t *position, int64_t position_stride,           \
                                                        int32_t *stream, int64_t stream_stride) {                   \
        patch_tile(rows_, call, patches, panel, position, position_stride, stream, stream_stride);                  \
    }
PATCH(1)
PATCH(2)
PATCH(6)

static void patch_rows(const patch_call *call, const int16_t *patches, int64_t rows, const int32_t *position,
                       int64_t position_stride, int32_t *stream, int64_t stream_stride) {
    for (int64_t panel = 0; panel < call->panels; panel++)
        for (int64_t r = 0; r < rows;) {
            int64_t count = rows - r >= 6 ? 6 : rows - r >= 2 ? 2 : 1;
            (count == 6 ? patch_6 : count == 2 ? patch_2 : patch_1)(
                call, patches + r * call->inputs, panel, position + r * position_stride, position_stride,
                stream + r * stream_stride, stream_stride);
            r += count;
        }
}

static int64_t head_row(const int16_t *token, const int16_t *weight, int64_t padded) {
    __m256i sum = _mm256_setzero_si256();
    for (int64_t c = 0; c < padded; c += 16) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(token + c)), b = _mm256_loadu_si256((const __m256i *)(weight + c));
        __m256i pairs = _mm256_madd_epi16(a, b);
        sum = _mm256_add_epi64(sum, _mm256_cvtepi32_epi64(_mm256_castsi256_si128(pairs)));
        sum = _mm256_add_epi64(sum, _mm256_cvtepi32_epi64(_mm256_extracti128_si256(pairs, 1)));
    }
    return sum_of_four(sum);
}
