#define _DEFAULT_SOURCE
#include "pack.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE = 64, LARGE_PAGE = 2 << 20 };

void *plan_take(plan *p, int64_t bytes) {
    void *piece = p->base ? p->base + p->used : NULL;
    p->used += (size_t)round_up(bytes, LINE);
    return piece;
}

int plan_open(plan *p) {
    size_t bytes = p->used ? p->used : LINE;
    void *memory = NULL;
    /* Zero pages come from the system unread, and large ones save the translation of addresses. */
    size_t unit = bytes >= LARGE_PAGE ? LARGE_PAGE : 4096;
    if (posix_memalign(&memory, unit, (bytes + 4095) / 4096 * 4096)) return 0;
#ifdef MADV_HUGEPAGE
    if (unit == LARGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    memset(memory, 0, bytes);
    p->base = memory;
    p->used = 0;
    return 1;
}

void plan_close(plan *p) {
    free(p->base);
    p->base = NULL;
}

int64_t code_stride(int64_t channels) {
    int64_t stride = round_up(channels, CODE_UNIT);
    /* Rows a page apart would meet in the same lines of the first-level cache. */
    return stride % 4096 ? stride : stride + CODE_UNIT;
}

void *pack_words(plan *p, const void *words, int64_t count, int64_t padded) {
    void *out = plan_take(p, padded * 4);
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
        int64_t least = (most * worst + 32766) / 32767;
        if (parts == 1 && least > 2) parts = least / 2;
    }
}

void pack_linear(plan *p, const engine_functions *functions, const lapis_layer *layer, layer_shape shape, linear *out) {
    int64_t panel = functions->panel, groups = (shape.inputs + 3) / 4, panels = (shape.outputs + panel - 1) / panel;
    int64_t padded = panels * panel;
    *out = (linear){.outputs = shape.outputs,
                    .inputs = shape.inputs,
                    .groups = groups,
                    .panels = panels,
                    .low = shape.low,
                    .most = shape.high > -shape.low ? shape.high : -shape.low,
                    .kind = shape.kind,
                    .steps = shape.steps};
    out->weight = plan_take(p, padded * groups * 4);
    out->start = plan_take(p, padded * 4);
    out->lowest = plan_take(p, padded * 2);
    out->span = plan_take(p, padded);
    if (shape.late) out->silent = plan_take(p, padded), out->late = plan_take(p, padded);
    out->period = plan_take(p, panels * 4);
    out->scale = pack_words(p, layer->scale, shape.outputs, padded);
    out->shift = pack_words(p, layer->shift, shape.outputs, padded);
    if (!p->base) return;
    for (int64_t o = 0; o < shape.outputs; o++) {
        const int8_t *row = layer->weight + o * shape.inputs;
        int8_t *to = out->weight + (o / panel * groups * panel + o % panel) * 4;
        int32_t sum = 0;
        for (int64_t i = 0; i < shape.inputs; i++) sum += row[i];
        for (int64_t i = 0; i + 4 <= shape.inputs; i += 4) memcpy(to + i * panel, row + i, 4);
        for (int64_t i = shape.inputs / 4 * 4; i < shape.inputs; i++) to[i / 4 * 4 * panel + i % 4] = row[i];
        out->start[o] = shape.low * sum;
    }
    for (int64_t i = 0; i < panels; i++)
        out->period[i] = functions->narrow_sums
                             ? panel_period(out->weight + i * panel * groups * 4, panel, groups, shape.high - shape.low)
                             : (int32_t)groups;
}

void pack_spikes(plan *p, const engine_functions *functions, const lapis_layer *layer, linear *packed) {
    if (!functions->spikes) return;
    const int64_t panel = functions->spike_panel, inputs = packed->inputs;
    packed->spike_weight = plan_take(p, round_up(packed->outputs, panel) * inputs);
    uint64_t *picks = plan_take(p, 256 * 8);
    if (!p->base) return;
    packed->picks = picks;
    for (int byte = 0; byte < 256; byte++)
        for (int bit = 0, at = 0; bit < 8; bit++)
            if (byte >> bit & 1) picks[byte] |= (uint64_t)bit << 8 * at++;
    int32_t least = 0, largest = 1;
    for (int64_t i = 0; i < packed->outputs * inputs; i++) {
        int32_t w = layer->weight[i];
        least = w < least ? w : least;
        largest = w > largest ? w : largest;
    }
    packed->spike_least = packed->low ? least : 0;
    packed->segment_sum = 32767 / (packed->low ? largest - least : largest > -least ? largest : -least);
    /* Interleaving takes the eights of a vector's first half from the lower eights of its lanes of sixteen. */
    const int64_t half = functions->panel, vector = 2 * half;
    for (int64_t o = 0; o < packed->outputs; o++) {
        int64_t place = o % half / 8 * 16 + o % vector / half * 8 + o % 8, column = o % panel / vector * vector + place;
        int8_t *to = packed->spike_weight + o / panel * panel * inputs + column;
        for (int64_t i = 0; i < inputs; i++)
            to[i * panel] = (int8_t)(layer->weight[o * inputs + i] - packed->spike_least);
    }
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

int16_t *pack_patch(plan *p, const engine_functions *functions, const int16_t *weight, int64_t outputs,
                    int64_t inputs) {
    int64_t panel = functions->panel, even = round_up(inputs, 2), padded = round_up(outputs, panel);
    int16_t *out = plan_take(p, padded * even * 2);
    for (int64_t o = 0; out && o < outputs; o++)
        for (int64_t i = 0; i < inputs; i++)
            out[(o / panel * even + i / 2 * 2) * panel + o % panel * 2 + i % 2] = weight[o * inputs + i];
    return out;
}

/* The distance of a row's nearest key is one that leads to the row, so it is read from the first such on. */
static int64_t first_read(const lapis_block *from, int64_t h, int64_t exponent) {
    int64_t d = 0;
    while (d < from->distances && from->row_exponent[h * from->distances + d] != exponent) d++;
    return d;
}

uint16_t *pack_affinities(plan *p, const lapis_block *from, int64_t heads, const affinity_row **cut) {
    const int64_t rows = heads * from->exponents, size = from->distances;
    affinity_row *out = plan_take(p, rows * (int64_t)sizeof *out);
    /* Distance 0 of the first row must not lie before the table. */
    uint16_t *table = p->base ? (uint16_t *)(p->base + p->used) : NULL;
    int64_t used = size;
    for (int64_t row = 0; row < rows; row++) {
        const uint16_t *whole = from->table + row * size;
        const int64_t first = first_read(from, row / from->exponents, row % from->exponents);
        int64_t last = size - 1;
        if (first == size) continue;
        while (last > first && !whole[last] && !whole[last - 1]) last--;
        if (table) {
            out[row] = (affinity_row){used - first, last};
            memcpy(table + used, whole + first, (size_t)(last - first + 1) * sizeof *table);
        }
        used += last - first + 1;
    }
    plan_take(p, used * (int64_t)sizeof *table);
    *cut = out;
    return table;
}
