/* Fused attention in integers: u16 affinities from a fixed-point table, values as pairs of int16, int32 sums. */

/* v u8 [keys, channels] to int16 [channels / LANES][keys / 2][LANES][2], zero beyond. */
static void pack_value_pairs(const uint8_t *v, int64_t stride, int64_t keys, int64_t channels, int16_t *out) {
    int64_t pairs = (keys + 1) / 2;
    for (int64_t c = 0; c < round_up(channels, LANES); c += 8) {
        int64_t count = channels - c > 8 ? 8 : channels - c < 0 ? 0 : channels - c;
        for (int64_t j = 0; j < pairs; j++) {
            uint64_t even = 0, odd = 0;
            if (count == 8) {
                memcpy(&even, v + 2 * j * stride + c, 8);
                if (2 * j + 1 < keys) memcpy(&odd, v + (2 * j + 1) * stride + c, 8);
            } else if (count > 0) {
                memcpy(&even, v + 2 * j * stride + c, (size_t)count);
                if (2 * j + 1 < keys) memcpy(&odd, v + (2 * j + 1) * stride + c, (size_t)count);
            }
            __m128i both = _mm_unpacklo_epi8(_mm_cvtsi64_si128((long long)even), _mm_cvtsi64_si128((long long)odd));
            int16_t *to = out + ((c / LANES * pairs + j) * LANES + c % LANES) * 2;
            _mm256_storeu_si256((__m256i *)to, _mm256_cvtepu8_epi16(both));
        }
    }
}

INLINE void integer_values_tile(const int rows, const int vecs, const int16_t *a, int64_t a_stride, const int16_t *v,
                                int64_t pairs, int32_t *y, int64_t y_stride, int64_t left) {
    ints sum[TILE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int i = 0; i < vecs; i++) sum[r][i] = zero_ints();
    for (int64_t j = 0; j < pairs; j++) {
        ints value[2];
        UNROLL for (int i = 0; i < vecs; i++) value[i] = load_ints(v + (i * pairs + j) * LANES * 2);
        UNROLL for (int r = 0; r < rows; r++) {
            ints weight = broadcast_dword((const uint8_t *)(a + r * a_stride + 2 * j));
            UNROLL for (int i = 0; i < vecs; i++)
#if LAPIS_VNNI
                sum[r][i] = _mm512_dpwssd_epi32(sum[r][i], weight, value[i]);
#else
                sum[r][i] = add32(sum[r][i], multiply_s16(weight, value[i]));
#endif
            SETTLE(sum[r][0], sum[r][vecs - 1]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int i = 0; i < vecs; i++)
            store_some(y + r * y_stride + i * LANES, sum[r][i], left - i * LANES, store_ints);
}

#define INTEGER_VALUES_STRIP(rows_)                                                                             \
    static __attribute__((noinline)) void integer_values_strip_##rows_(const int16_t *a, int64_t a_stride, const int16_t *v,\
                                                           int64_t pairs, int64_t channels, int32_t *y,         \
                                                           int64_t y_stride) {                                  \
        int64_t c = 0;                                                                                          \
        for (; c + LANES < channels; c += 2 * LANES)                                                            \
            integer_values_tile(rows_, 2, a, a_stride, v + c * pairs * 2, pairs, y + c, y_stride, channels - c); \
        if (c < channels)                                                                                       \
            integer_values_tile(rows_, 1, a, a_stride, v + c * pairs * 2, pairs, y + c, y_stride, channels - c); \
    }

#if LAPIS_WIDE
INTEGER_VALUES_STRIP(12)
#endif
INTEGER_VALUES_STRIP(6)
INTEGER_VALUES_STRIP(3)
INTEGER_VALUES_STRIP(1)

static size_t integer_attention_scratch(const lapis_pairs *p) {
    int64_t columns = padded_columns(p->keys), pairs = (p->keys + 1) / 2;
    return (size_t)(distance_plan_bytes(p) + round_up(STRIP_ROWS * columns * 4, 64) +
                    round_up(STRIP_ROWS * columns * 2, 64) +
                    round_up(pairs * 2 * round_up(p->channels, LANES) * 2, 64));
}

static int integer_attention(const integer_attention_call *call, int64_t b, int64_t h, int64_t from, int64_t to,
                             unsigned char *scratch) {
    const lapis_pairs *p = &call->p;
    if (from >= to) return LAPIS_OK;
    int64_t keys = p->keys, columns = padded_columns(keys), y_stride = call->acc_stride[2], pairs = (keys + 1) / 2;
    distance_plan plan;
    int status = plan_distance(p, call->q, call->k, b, h, from, to, &scratch, &plan);
    if (status) return status;
    int32_t *d = carve(&scratch, strip_bytes(p->keys));
    int16_t *a = carve(&scratch, STRIP_ROWS * columns * 2);
    int16_t *v = carve(&scratch, pairs * 2 * round_up(p->channels, LANES) * 2);
    pack_value_pairs(call->v + at(call->v_stride, b, h, 0), call->v_stride[2], keys, p->channels, v);
    const uint16_t *tables = call->table + h * call->exponents * call->size;
    for (int64_t i = from; i < to; i += STRIP_ROWS) {
        int64_t rows = to - i < STRIP_ROWS ? to - i : STRIP_ROWS;
        distance_rows(&plan, i - from, rows, d, columns, NULL);
        for (int64_t r = 0; r < rows; r++) {
            int32_t least, most;
            const int32_t *delay = call->delay ? call->delay + (h * p->rows + i + r) * keys : NULL;
            const int32_t *row = d + r * columns;
            row_extremes(d + r * columns, delay, keys, &least, &most);
            if (least < 0 || most >= call->size) return LAPIS_BAD_DISTANCE;
            int64_t exponent = call->row_exponent[h * call->size + least];
            if (exponent >= call->exponents) return LAPIS_BAD_DISTANCE;
            const uint16_t *table = tables + exponent * call->size;
            int16_t *weight = a + r * columns;
            int64_t j = 0;
            for (; j + 8 <= keys; j += 8)
                UNROLL for (int n = 0; n < 8; n++) weight[j + n] = (int16_t)table[row[j + n]];
            for (; j < keys; j++) weight[j] = (int16_t)table[row[j]];
            for (; j < columns; j++) weight[j] = 0;
            ints sum = zero_ints();
            for (j = 0; j < columns; j += 2 * LANES) sum = add32(sum, multiply_s16(load_ints(weight + j), all16(1)));
            call->zint[(b * p->heads + h) * p->rows + i + r] = (uint32_t)sum_of_lanes(sum);
        }
        int32_t *y = call->acc + at(call->acc_stride, b, h, i);
        for (int64_t r = 0; r < rows;) {
            int64_t left = rows - r;
            const int16_t *weights = a + r * columns;
            int32_t *out = y + r * y_stride;
#if LAPIS_WIDE
            if (left >= 12) {
                integer_values_strip_12(weights, columns, v, pairs, p->channels, out, y_stride), r += 12;
                continue;
            }
#endif
            if (left >= 6)
                integer_values_strip_6(weights, columns, v, pairs, p->channels, out, y_stride), r += 6;
            else if (left >= 3)
                integer_values_strip_3(weights, columns, v, pairs, p->channels, out, y_stride), r += 3;
            else
                integer_values_strip_1(weights, columns, v, pairs, p->channels, out, y_stride), r += 1;
        }
    }
    return LAPIS_OK;
}
