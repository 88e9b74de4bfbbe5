/* A linear layer driven by its events: only inputs that spiked cost work.
 *
 * Two spiking inputs at a time, their weights for 64 outputs interleaved on the fly, multiplied and summed in 16 bits for
 * as long as the codes' sum proves that nothing overflows. A step costs about 1.7 times one of the dense kernel for the
 * same inputs, so this pays where fewer than a third of them spike. */

typedef struct {
    uint16_t a, b, codes; /* two inputs, and their codes in its low and high byte */
} spike_pair;

/* Pairs first..first+count whose sums fit 16 bits. */
typedef struct {
    int32_t first, count;
} segment;

typedef struct {
    spike_pair *pairs;
    segment *segments;
    int32_t *starts; /* [rows, blocks + 1] the first segment of every block of inputs */
    int32_t *acc;    /* [rows, SPIKE_PANEL] */
    int64_t blocks;
} spike_memory;

static int64_t spike_blocks(const linear *layer) { return (layer->inputs + SPIKE_BLOCK - 1) / SPIKE_BLOCK; }

/* A segment is full no sooner than at its fourth event (32767 / 127 / 63), and may end in half a pair. */
static int64_t most_segments(const linear *layer, int64_t rows) {
    return rows * (layer->inputs * SPIKE_SHARE_PERCENT / 400 + 1 + spike_blocks(layer));
}

static int64_t most_pairs(const linear *layer, int64_t rows) {
    return rows * (layer->inputs * SPIKE_SHARE_PERCENT / 200 + 1) + most_segments(layer, rows);
}

static size_t spike_scratch(const linear *layer, int64_t rows) {
    return (size_t)(round_up(most_pairs(layer, rows) * (int64_t)sizeof(spike_pair), 64) +
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

/* The events of rows, in order, cut into segments. */
static void gather_spikes(const linear *layer, const uint8_t *codes, int64_t stride, int64_t rows, spike_memory *m) {
    const __m256i zero = _mm256_setzero_si256();
    int32_t pairs = 0, segments = 0;
    for (int64_t r = 0; r < rows; r++, codes += stride) {
        for (int64_t block = 0; block < m->blocks; block++) {
            m->starts[r * (m->blocks + 1) + block] = segments;
            int64_t from = block * SPIKE_BLOCK, to = from + SPIKE_BLOCK < layer->inputs ? from + SPIKE_BLOCK : layer->inputs;
            int32_t sum = 0, first = pairs, half = 0;
            for (int64_t c = from; c < to; c += 32) {
                /* Rows are padded, so a vector may reach beyond the inputs; those bits are dropped. */
                __m256i silent = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(codes + c)), zero);
                uint32_t spiked = ~(uint32_t)_mm256_movemask_epi8(silent);
                if (to - c < 32) spiked &= (1U << (to - c)) - 1;
                for (; spiked; spiked &= spiked - 1) {
                    int64_t i = c + __builtin_ctz(spiked);
                    int32_t z = codes[i];
                    if (sum + z > layer->segment_sum) {
                        pairs += half;
                        m->segments[segments++] = (segment){first, pairs - first};
                        first = pairs, sum = 0, half = 0;
                    }
                    sum += z;
                    spike_pair *p = m->pairs + pairs;
                    if (half) {
                        p->b = (uint16_t)i;
                        p->codes = (uint16_t)(p->codes | z << 8);
                        pairs++;
                    } else {
                        *p = (spike_pair){(uint16_t)i, (uint16_t)i, (uint16_t)z};
                    }
                    half ^= 1;
                }
            }
            pairs += half;
            if (pairs > first) m->segments[segments++] = (segment){first, pairs - first};
        }
        m->starts[r * (m->blocks + 1) + m->blocks] = segments;
    }
}

/* acc[64] += the weights of the segment's inputs times their codes. */
static inline void add_segment(const spike_pair *pair, int64_t count, const int8_t *weight, int32_t *acc) {
    __m256i sum[4];
    UNROLL for (int i = 0; i < 4; i++) sum[i] = _mm256_setzero_si256();
    for (const spike_pair *end = pair + count; pair < end; pair++) {
        const int8_t *a = weight + (int64_t)pair->a * SPIKE_PANEL, *b = weight + (int64_t)pair->b * SPIKE_PANEL;
        const __m256i codes = _mm256_set1_epi16((short)pair->codes);
        UNROLL for (int i = 0; i < 2; i++) {
            __m256i x = _mm256_loadu_si256((const __m256i *)(a + 32 * i));
            __m256i y = _mm256_loadu_si256((const __m256i *)(b + 32 * i));
            sum[2 * i] = _mm256_add_epi16(sum[2 * i], _mm256_maddubs_epi16(codes, _mm256_unpacklo_epi8(x, y)));
            sum[2 * i + 1] = _mm256_add_epi16(sum[2 * i + 1], _mm256_maddubs_epi16(codes, _mm256_unpackhi_epi8(x, y)));
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
    m.pairs = carve(&scratch, most_pairs(layer, rows) * (int64_t)sizeof(spike_pair));
    m.segments = carve(&scratch, most_segments(layer, rows) * (int64_t)sizeof(segment));
    m.starts = carve(&scratch, rows * (m.blocks + 1) * 4);
    m.acc = carve(&scratch, rows * SPIKE_PANEL * 4);
    gather_spikes(layer, codes, stride, rows, &m);
    int64_t padded = layer->panels * PANEL;
    for (int64_t column = 0; column < padded; column += SPIKE_PANEL) {
        const int8_t *weight = layer->spike_weight + column * layer->inputs;
        memset(m.acc, 0, (size_t)(rows * SPIKE_PANEL * 4));
        for (int64_t block = 0; block < m.blocks; block++)
            for (int64_t r = 0; r < rows; r++) {
                const int32_t *start = m.starts + r * (m.blocks + 1) + block;
                for (int32_t s = start[0]; s < start[1]; s++)
                    add_segment(m.pairs + m.segments[s].first, m.segments[s].count, weight, m.acc + r * SPIKE_PANEL);
            }
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < SPIKE_PANEL && column + c < padded; c += 16) {
                const __m256i *acc = (const __m256i *)(m.acc + r * SPIKE_PANEL + c);
                finish(TO_STREAM, call, from + r, column + c, _mm256_loadu_si256(acc), _mm256_loadu_si256(acc + 1));
            }
    }
    return 1;
}
