/* A linear layer driven by its events: only inputs that spiked cost work.
 *
 * Two spiking inputs at a time, their weights for 64 outputs interleaved on the fly, multiplied and summed in 16 bits for
 * as long as the codes' sum proves that nothing overflows. A step costs about 1.7 times one of the dense kernel for the
 * same inputs, so this pays where about a third of them spike, or fewer. */

/* Events first..first+count, an even number, whose sums fit 16 bits. */
typedef struct {
    int32_t first, count;
} segment;

typedef struct {
    uint16_t *inputs; /* of every event */
    uint8_t *codes;   /* of every event; a last one of code 0 makes a segment even */
    segment *segments;
    int32_t *starts; /* [rows, blocks + 1] the first segment of every block of inputs */
    int32_t *acc;    /* [rows, SPIKE_PANEL] */
    int64_t blocks;
} spike_memory;

/* Eight events are written at a time, however many there are. */
enum { SPIKE_SLACK = 16 };

static int64_t spike_blocks(const linear *layer) { return (layer->inputs + SPIKE_BLOCK - 1) / SPIKE_BLOCK; }

/* A segment is full no sooner than at its fourth event (32767 / 127 / 63), and may need a last one to be even. */
static int64_t most_segments(const linear *layer, int64_t rows) {
    return rows * (layer->inputs * SPIKE_SHARE_PERCENT / 400 + 1 + spike_blocks(layer));
}

static int64_t most_events(const linear *layer, int64_t rows) {
    return rows * (layer->inputs * SPIKE_SHARE_PERCENT / 100 + 1) + most_segments(layer, rows) + SPIKE_SLACK;
}

static size_t spike_scratch(const linear *layer, int64_t rows) {
    return (size_t)(round_up(most_events(layer, rows) * 2, 64) + round_up(most_events(layer, rows), 64) +
                    round_up(most_segments(layer, rows) * (int64_t)sizeof(segment), 64) +
                    round_up(rows * (spike_blocks(layer) + 1) * 4, 64) + rows * SPIKE_PANEL * 4);
}

static int64_t count_spikes(const uint8_t *codes, int64_t stride, int64_t channels, int64_t rows) {
    int64_t count = 0;
    const __m256i zero = _mm256_setzero_si256();
    for (int64_t r = 0; r < rows; r++, codes += stride) {
        int64_t c = 0;
        for (; c + 32 <= channels; c += 32) {
            __m256i silent = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(codes + c)), zero);
            count += 32 - __builtin_popcount((uint32_t)_mm256_movemask_epi8(silent));
        }
        for (; c < channels; c++) count += codes[c] != 0;
    }
    return count;
}

/* Inputs from..to of one row that spiked, appended without a branch: 256 ways to pick bytes out of eight. */
static int32_t append_spikes(const linear *layer, const uint8_t *codes, int64_t from, int64_t to, spike_memory *m,
                             int32_t events, int32_t *sum) {
    const __m256i zero = _mm256_setzero_si256();
    __m256i total = zero;
    for (int64_t c = from; c < to; c += 32) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(codes + c));
        uint32_t spiked = ~(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, zero));
        /* Rows are padded, so a vector may reach beyond the inputs; what it finds there is dropped. */
        if (to - c < 32) {
            spiked &= (1U << (to - c)) - 1;
            for (int64_t i = c; i < to; i++) *sum += codes[i];
        } else {
            total = _mm256_add_epi64(total, _mm256_sad_epu8(x, zero));
        }
        for (int i = 0; i < 4; i++, spiked >>= 8) {
            __m128i pick = _mm_loadl_epi64((const __m128i *)(layer->picks + (spiked & 255)));
            __m128i eight = _mm_loadl_epi64((const __m128i *)(codes + c + 8 * i));
            __m128i inputs = _mm_add_epi16(_mm_cvtepu8_epi16(pick), _mm_set1_epi16((short)(c + 8 * i)));
            _mm_storeu_si128((__m128i *)(m->inputs + events), inputs);
            _mm_storel_epi64((__m128i *)(m->codes + events), _mm_shuffle_epi8(eight, pick));
            events += __builtin_popcount(spiked & 255);
        }
    }
    *sum += (int32_t)sum_of_four(total);
    return events;
}

/* An event of code 0 where a segment would end in half a pair. */
static int32_t make_even(spike_memory *m, int32_t first, int32_t events) {
    if ((events - first) % 2) {
        m->inputs[events] = m->inputs[events - 1];
        m->codes[events++] = 0;
    }
    return events;
}

/* Cut events that sum to too much for one segment; each cut may need an event of its own, so they move apart. */
static int32_t cut_segments(const linear *layer, spike_memory *m, int32_t first, int32_t events, int32_t *segments) {
    int32_t count = events - first, sum = 0, start = first, to = first;
    uint16_t inputs[SPIKE_BLOCK];
    uint8_t codes[SPIKE_BLOCK];
    memcpy(inputs, m->inputs + first, (size_t)count * 2);
    memcpy(codes, m->codes + first, (size_t)count);
    for (int32_t i = 0; i < count; i++) {
        if (sum + codes[i] > layer->segment_sum) {
            to = make_even(m, start, to);
            m->segments[(*segments)++] = (segment){start, to - start};
            start = to, sum = 0;
        }
        sum += codes[i];
        m->inputs[to] = inputs[i];
        m->codes[to++] = codes[i];
    }
    to = make_even(m, start, to);
    m->segments[(*segments)++] = (segment){start, to - start};
    return to;
}

/* The events of rows, in order, as segments. */
static void gather_spikes(const linear *layer, const uint8_t *codes, int64_t stride, int64_t rows, spike_memory *m) {
    int32_t events = 0, segments = 0;
    for (int64_t r = 0; r < rows; r++, codes += stride) {
        for (int64_t block = 0; block < m->blocks; block++) {
            int64_t from = block * SPIKE_BLOCK, to = from + SPIKE_BLOCK;
            int32_t first = events, sum = 0;
            m->starts[r * (m->blocks + 1) + block] = segments;
            events = append_spikes(layer, codes, from, to < layer->inputs ? to : layer->inputs, m, events, &sum);
            if (events == first) continue;
            if (sum > layer->segment_sum) {
                events = cut_segments(layer, m, first, events, &segments);
            } else {
                events = make_even(m, first, events);
                m->segments[segments++] = (segment){first, events - first};
            }
        }
        m->starts[r * (m->blocks + 1) + m->blocks] = segments;
    }
}

/* acc[64] += the weights of the segment's inputs times their codes. */
static inline void add_segment(const uint16_t *inputs, const uint8_t *codes, int64_t count, const int8_t *weight,
                               int32_t *acc) {
    __m256i sum[4];
    UNROLL for (int i = 0; i < 4; i++) sum[i] = _mm256_setzero_si256();
    for (int64_t n = 0; n < count; n += 2) {
        const int8_t *a = weight + (int64_t)inputs[n] * SPIKE_PANEL, *b = weight + (int64_t)inputs[n + 1] * SPIKE_PANEL;
        int16_t two;
        memcpy(&two, codes + n, 2);
        const __m256i pair = _mm256_set1_epi16(two);
        UNROLL for (int i = 0; i < 2; i++) {
            __m256i x = _mm256_loadu_si256((const __m256i *)(a + 32 * i));
            __m256i y = _mm256_loadu_si256((const __m256i *)(b + 32 * i));
            sum[2 * i] = _mm256_add_epi16(sum[2 * i], _mm256_maddubs_epi16(pair, _mm256_unpacklo_epi8(x, y)));
            sum[2 * i + 1] = _mm256_add_epi16(sum[2 * i + 1], _mm256_maddubs_epi16(pair, _mm256_unpackhi_epi8(x, y)));
        }
    }
    UNROLL for (int i = 0; i < 4; i++) {
        __m256i *to = (__m256i *)(acc + 16 * i);
        __m256i low = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(sum[i]));
        __m256i high = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(sum[i], 1));
        _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), low));
        _mm256_storeu_si256(to + 1, _mm256_add_epi32(_mm256_loadu_si256(to + 1), high));
    }
}

/* Rows from..to of a layer to the stream by events; 0 if too many of its inputs spike for that. */
static int spike_rows(const linear_call *call, int64_t from, int64_t to, unsigned char *scratch) {
    const linear *layer = call->layer;
    int64_t rows = to - from, stride = call->code_stride;
    const uint8_t *codes = call->codes + from * stride;
    if (!layer->spike_weight || rows < 1) return 0;
    if (count_spikes(codes, stride, layer->inputs, rows) * 100 > rows * layer->inputs * SPIKE_SHARE_PERCENT) return 0;
    spike_memory m = {.blocks = spike_blocks(layer)};
    m.inputs = carve(&scratch, most_events(layer, rows) * 2);
    m.codes = carve(&scratch, most_events(layer, rows));
    m.segments = carve(&scratch, most_segments(layer, rows) * (int64_t)sizeof(segment));
    m.starts = carve(&scratch, rows * (m.blocks + 1) * 4);
    m.acc = carve(&scratch, rows * SPIKE_PANEL * 4);
    gather_spikes(layer, codes, stride, rows, &m);
    int64_t padded = layer->panels * PANEL;
    for (int64_t column = 0; column < padded; column += SPIKE_PANEL) {
        const int8_t *weight = layer->spike_weight + column * layer->inputs;
        memset(m.acc, 0, (size_t)(rows * SPIKE_PANEL * 4));
        for (int64_t block = 0; block < m.blocks; block++) {
            /* Events read weights in no order that the processor foresees: the next block is fetched along the way. */
            const char *next = (const char *)weight + (block + 1) * SPIKE_BLOCK * SPIKE_PANEL;
            const int64_t ahead = (SPIKE_BLOCK * SPIKE_PANEL + rows * 64 - 1) / (rows * 64) * 64;
            for (int64_t r = 0; r < rows; r++) {
                for (int64_t i = 0; i < ahead; i += 64) _mm_prefetch(next + r * ahead + i, _MM_HINT_T1);
                const int32_t *start = m.starts + r * (m.blocks + 1) + block;
                for (const segment *s = m.segments + start[0]; s < m.segments + start[1]; s++)
                    add_segment(m.inputs + s->first, m.codes + s->first, s->count, weight, m.acc + r * SPIKE_PANEL);
            }
        }
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < SPIKE_PANEL && column + c < padded; c += 16) {
                const __m256i *acc = (const __m256i *)(m.acc + r * SPIKE_PANEL + c);
                finish(TO_STREAM, call, from + r, column + c, _mm256_loadu_si256(acc), _mm256_loadu_si256(acc + 1));
            }
    }
    return 1;
}
