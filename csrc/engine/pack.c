#include "pack.h"

#include <stdlib.h>
#include <string.h>

#include "../system.h"

enum { LINE = 64 };

void *arena_take(arena *p, int64_t bytes) {
    void *piece = p->base ? p->base + p->used : NULL;
    p->used += (size_t)round_up(bytes, LINE);
    return piece;
}

void *arena_spare(arena *p, int64_t bytes) {
    if (!p->base && (size_t)bytes > p->spare_bytes) p->spare_bytes = (size_t)bytes;
    return p->spare;
}

int arena_open(arena *p) {
    size_t bytes = p->used ? p->used : LINE;
    unsigned char *memory = system_allocate_pages((bytes + 4095) / 4096 * 4096);
    if (!memory) return 0;
    memset(memory, 0, bytes);
    p->base = memory;
    p->used = 0;
    if (p->spare_bytes) p->spare = malloc(p->spare_bytes);
    return !p->spare_bytes || p->spare;
}

void arena_end_packing(arena *p) {
    free(p->spare);
    p->spare = NULL;
}

void arena_close(arena *p) {
    arena_end_packing(p);
    system_release(p->base);
    p->base = NULL;
}

int64_t code_stride(int64_t channels) {
    int64_t stride = round_up(channels, CODE_UNIT);
    /* Rows a page apart would meet in the same lines of the first-level cache. */
    return stride % 4096 ? stride : stride + CODE_UNIT;
}

void *pack_words(arena *p, const void *words, int64_t count, int64_t padded) {
    void *out = arena_take(p, padded * 4);
    if (out && words) memcpy(out, words, (size_t)count * 4);
    return out;
}

/* The longest run of groups after which no 16-bit sum of this panel can have left its range, if all runs but the last
 * are that long: for each lane, the largest code times the positive weights, and times the negative ones. */
static int32_t panel_period(const int8_t *weight, int64_t panel, int64_t groups, int32_t most) {
    for (int64_t parts = 1;; parts++) {
        int64_t period = (groups + parts - 1) / parts, worst = 0;
        if (period == 1) return 1;
        for (int64_t from = 0; from < groups && most * worst <= 32767; from += period) {
            int64_t to = from + period < groups ? from + period : groups;
            int32_t up[64] = {0}, down[64] = {0};
            for (int64_t g = from; g < to; g++)
                for (int64_t i = 0; i < 2 * panel; i++)
                    for (int64_t j = 0; j < 2; j++) {
                        int32_t w = weight[g * panel * 4 + 2 * i + j];
                        up[i] += w > 0 ? w : 0;
                        down[i] += w < 0 ? -w : 0;
                    }
            for (int64_t i = 0; i < 2 * panel; i++) {
                worst = up[i] > worst ? up[i] : worst;
                worst = down[i] > worst ? down[i] : worst;
            }
        }
        if (most * worst <= 32767) return (int32_t)period;
        /* No fewer parts than this many can do. */
        int64_t fewest = (most * worst + 32766) / 32767;
        if (parts == 1 && fewest > 2) parts = fewest / 2;
    }
}

int64_t unpacked_bytes(const engine_functions *functions, int64_t inputs) {
    const int64_t dense = round_up(inputs, 4) * functions->panel,
                  events = functions->spike_block * functions->spike_panel;
    return functions->unpacks6 ? dense > events ? dense : events : 0;
}

static int fits_six_bits(const engine_functions *functions, const lapis_layer *layer, int64_t count) {
    int64_t i = 0;
    while (i < count && layer->weight[i] >= -PACKED6_BIAS && layer->weight[i] < PACKED6_BIAS) i++;
    return functions->unpacks6 && i == count;
}

static void pack6(const int8_t *weight, int64_t count, uint8_t *out) {
    memset(out, 0, (size_t)(count / PACKED6_WEIGHTS * PACKED6_BYTES));
    for (int64_t i = 0; i < count; i++) {
        uint8_t *to = out + i / PACKED6_WEIGHTS * PACKED6_BYTES, w = (uint8_t)(weight[i] + PACKED6_BIAS);
        const int at = (int)(i % PACKED6_WEIGHTS);
        to[at % 32] |= (uint8_t)((w & 15) << at / 32 * 4);
        to[32 + at % 16] |= (uint8_t)((w >> 4) << at / 16 * 2);
    }
}

/* Where `bytes` weights are to be written: to what is kept, or to spare memory from which they are packed. */
static int8_t *take_weights(arena *p, int64_t bytes, int packed6, uint8_t **kept) {
    *kept = arena_take(p, packed6 ? bytes / PACKED6_WEIGHTS * PACKED6_BYTES : bytes);
    int8_t *to = packed6 ? arena_spare(p, bytes) : (int8_t *)*kept;
    if (packed6 && to) memset(to, 0, (size_t)bytes);
    return to;
}

static void pack_dense(arena *p, const engine_functions *functions, const lapis_layer *layer, int32_t span, int packed6,
                       linear *out) {
    const int64_t panel = functions->panel, groups = out->groups, bytes = out->panels * panel * groups * 4;
    uint8_t *kept;
    int8_t *weight = take_weights(p, bytes, packed6, &kept);
    if (!p->base) return;
    for (int64_t o = 0; o < out->outputs; o++) {
        const int8_t *row = layer->weight + o * out->inputs;
        int8_t *to = weight + (o / panel * groups * panel + o % panel) * 4;
        for (int64_t i = 0; i + 4 <= out->inputs; i += 4) memcpy(to + i * panel, row + i, 4);
        for (int64_t i = out->inputs / 4 * 4; i < out->inputs; i++) to[i / 4 * 4 * panel + i % 4] = row[i];
    }
    for (int64_t i = 0; functions->narrow_sums && i < out->panels; i++)
        out->period[i] = panel_period(weight + i * panel * groups * 4, panel, groups, span);
    if (packed6) {
        pack6(weight, bytes, kept);
        out->packed6 = kept;
    } else {
        out->weight = weight;
    }
}

static void pack_spikes(arena *p, const engine_functions *functions, const lapis_layer *layer, int packed6,
                        linear *out) {
    const int64_t panel = functions->spike_panel, inputs = out->inputs, bytes = round_up(out->outputs, panel) * inputs;
    uint8_t *kept;
    int8_t *weight = take_weights(p, bytes, packed6, &kept);
    uint64_t *picks = arena_take(p, 256 * 8);
    if (!p->base) return;
    out->picks = picks;
    for (int byte = 0; byte < 256; byte++)
        for (int bit = 0, at = 0; bit < 8; bit++)
            if (byte >> bit & 1) picks[byte] |= (uint64_t)bit << 8 * at++;
    int32_t low = 0, largest = 1;
    for (int64_t i = 0; i < out->outputs * inputs; i++) {
        int32_t w = layer->weight[i];
        low = w < low ? w : low;
        largest = w > largest ? w : largest;
    }
    out->spike_low = out->low ? low : 0;
    out->segment_sum = 32767 / (out->low ? largest - low : largest > -low ? largest : -low);
    /* Interleaving takes the eights of a vector's first half from the lower eights of its lanes of sixteen. */
    const int64_t half = functions->panel, vector = 2 * half;
    const int32_t less = packed6 ? 0 : out->spike_low;
    for (int64_t o = 0; o < out->outputs; o++) {
        int64_t place = o % half / 8 * 16 + o % vector / half * 8 + o % 8, column = o % panel / vector * vector + place;
        int8_t *to = weight + o / panel * panel * inputs + column;
        for (int64_t i = 0; i < inputs; i++) to[i * panel] = (int8_t)(layer->weight[o * inputs + i] - less);
    }
    if (packed6) {
        pack6(weight, bytes, kept);
        out->spike_packed6 = kept;
    } else {
        out->spike_weight = weight;
    }
}

void pack_linear(arena *p, const engine_functions *functions, const lapis_layer *layer, layer_shape shape, int forms,
                 linear *out) {
    const int64_t panel = functions->panel, panels = (shape.outputs + panel - 1) / panel, padded = panels * panel;
    *out = (linear){.outputs = shape.outputs,
                    .inputs = shape.inputs,
                    .groups = (shape.inputs + 3) / 4,
                    .panels = panels,
                    .low = shape.low,
                    .most = shape.high > -shape.low ? shape.high : -shape.low,
                    .kind = shape.kind,
                    .steps = shape.steps};
    out->start = arena_take(p, padded * 4);
    out->lowest = arena_take(p, padded * 2);
    out->span = arena_take(p, padded);
    if (shape.below_min_code) out->zero_code = arena_take(p, padded), out->below_min_code = arena_take(p, padded);
    out->period = arena_take(p, panels * 4);
    out->scale = pack_words(p, layer->scale, shape.outputs, padded);
    out->shift = pack_words(p, layer->shift, shape.outputs, padded);
    for (int64_t o = 0; p->base && o < shape.outputs; o++) {
        int32_t sum = 0;
        for (int64_t i = 0; i < shape.inputs; i++) sum += layer->weight[o * shape.inputs + i];
        out->start[o] = shape.low * sum;
    }
    const int packed6 = forms & PACKED6 && fits_six_bits(functions, layer, shape.outputs * shape.inputs);
    if (forms & DENSE) pack_dense(p, functions, layer, shape.high - shape.low, packed6, out);
    if (forms & EVENTS) pack_spikes(p, functions, layer, packed6, out);
}

void pack_ladder(const float *rise, const float *fall, int32_t levels, ladder *out) {
    memset(out, 0, sizeof *out);
    out->levels = levels;
    out->depth = 4;
    while ((1 << out->depth) - 1 < levels) out->depth++;
    memcpy(out->rise, rise, (size_t)levels * sizeof *rise);
    memcpy(out->fall, fall, (size_t)levels * sizeof *fall);
    for (int32_t level = 0; level < out->depth; level++)
        for (int32_t i = 0; i < 1 << level; i++) {
            int32_t at = ((2 * i + 1) << (out->depth - 1 - level)) - 1;
            out->tree[level][i] = at < levels ? rise[at] : INFINITY;
        }
    for (int32_t m = 0; m < levels; m++)
        if (fall[m] > -3.4e38F) {
            float below = fall[m] < rise[m] ? fall[m] : nextafterf(rise[m], -INFINITY);
            out->only_fall[out->falls++] = below;
        }
}

int16_t *pack_patch(arena *p, const engine_functions *functions, const int16_t *weight, int64_t outputs,
                    int64_t inputs) {
    int64_t panel = functions->panel, even = round_up(inputs, 2), padded = round_up(outputs, panel);
    int16_t *out = arena_take(p, padded * even * 2);
    for (int64_t o = 0; out && o < outputs; o++)
        for (int64_t i = 0; i < inputs; i++)
            out[(o / panel * even + i / 2 * 2) * panel + o % panel * 2 + i % 2] = weight[o * inputs + i];
    return out;
}

/* The distance of a row's nearest key is one that leads to the row, so it is read from the first such on; rows rise
 * with the distance, and `first` is that of the row before. */
static int64_t first_read(const lapis_block *from, int64_t h, int64_t exponent, int64_t first) {
    while (first < from->distances && from->row_exponent[h * from->distances + first] < exponent) first++;
    return first;
}

/* The last entry that is read: all behind it are zero, and it is too, unless the table ends there. */
static int64_t last_read(const uint16_t *row, int64_t first, int64_t last) {
    uint64_t four = 0;
    while (!row[last] && last - 4 >= first && (memcpy(&four, row + last - 4, sizeof four), !four)) last -= 4;
    while (last > first && !row[last] && !row[last - 1]) last--;
    return last;
}

uint16_t *pack_affinities(arena *p, const lapis_block *from, int64_t heads, const affinity_row **cut) {
    const int64_t rows = heads * from->exponents, size = from->distances;
    affinity_row *out = arena_take(p, rows * (int64_t)sizeof *out);
    /* Distance 0 of the first row must not lie before the table. */
    uint16_t *table = p->base ? (uint16_t *)(p->base + p->used) : NULL;
    int64_t used = size, first = 0;
    for (int64_t row = 0; row < rows; row++) {
        const uint16_t *whole = from->table + row * size;
        const int64_t exponent = row % from->exponents;
        first = first_read(from, row / from->exponents, exponent, exponent ? first : 0);
        if (first == size) continue;
        const int64_t last = last_read(whole, first, size - 1);
        if (table) {
            out[row] = (affinity_row){used - first, last};
            memcpy(table + used, whole + first, (size_t)(last - first + 1) * sizeof *table);
        }
        used += last - first + 1;
    }
    arena_take(p, used * (int64_t)sizeof *table);
    *cut = out;
    return table;
}
