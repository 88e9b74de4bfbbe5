/* Pictures of any size as the network takes them: docs/format.md, "From an image to bytes", operation by operation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "packed.h"

enum { COEFFICIENT_BITS = 22, COLOURS = 3 };
static const int64_t MAX_SIDE = 1 << 30;
static const double PI = 3.14159265358979323846;

static double sinc(double u) { return u == 0 ? 1 : sin(PI * u) / (PI * u); }

static double filter(int32_t kind, double u) {
    if (kind == INTERPOLATION_LANCZOS) return u >= -3 && u < 3 ? sinc(u) * sinc(u / 3) : 0;
    u = fabs(u);
    if (kind == INTERPOLATION_BILINEAR) return u < 1 ? 1 - u : 0;
    if (u < 1) return (1.5 * u - 2.5) * u * u + 1;
    return u < 2 ? (((u - 5) * u + 8) * u - 4) * -0.5 : 0;
}

/* One pass turns a line of `old` pixels into `new`, of which `count` are wanted, from `from` on. */
typedef struct {
    int64_t old, new, from, count;
    int64_t *first, *stop; /* [count]: pixels that an output sees */
    int64_t most;          /* of them */
    int32_t *factors;      /* [count, most], or NULL: an output is its first pixel */
} pass;

static void nearest(pass *p) {
    const double step = (double)p->old / (double)p->new;
    double at = step * 0.5;
    for (int64_t number = 0; number < p->from + p->count; number++, at += step) {
        if (number < p->from) continue;
        const int64_t first = (int64_t)at < p->old ? (int64_t)at : p->old - 1;
        p->first[number - p->from] = first;
        p->stop[number - p->from] = first + 1;
    }
}

static void weigh(pass *p, int32_t kind, double *raw) {
    const double ratio = (double)p->old / (double)p->new, widen = ratio > 1 ? ratio : 1;
    const double support = (kind == INTERPOLATION_BILINEAR ? 1 : kind == INTERPOLATION_BICUBIC ? 2 : 3) * widen;
    for (int64_t out = 0; out < p->count; out++) {
        const double centre = ((double)(p->from + out) + 0.5) * ratio;
        const int64_t low = (int64_t)(centre - support + 0.5), high = (int64_t)(centre + support + 0.5);
        const int64_t first = low > 0 ? low : 0, stop = high < p->old ? high : p->old;
        double total = 0;
        for (int64_t i = first; i < stop; i++) {
            raw[i - first] = filter(kind, ((double)i - centre + 0.5) * (1 / widen));
            total += raw[i - first];
        }
        for (int64_t i = 0; i < stop - first; i++) {
            const double part = total != 0 ? raw[i] / total : raw[i];
            p->factors[out * p->most + i] = (int32_t)(part * (1 << COEFFICIENT_BITS) + (part >= 0 ? 0.5 : -0.5));
        }
        p->first[out] = first;
        p->stop[out] = stop;
    }
}

static void close_pass(pass *p) {
    free(p->first);
    free(p->stop);
    free(p->factors);
}

/* Plan a pass; 0 without memory. */
static int open_pass(pass *p, int32_t kind, int64_t old, int64_t new, int64_t from, int64_t count) {
    *p = (pass){.old = old, .new = new, .from = from, .count = count};
    p->first = malloc((size_t)count * sizeof *p->first);
    p->stop = malloc((size_t)count * sizeof *p->stop);
    if (!p->first || !p->stop) return 0;
    if (old == new || kind == INTERPOLATION_NEAREST) {
        for (int64_t i = 0; i < count; i++) p->first[i] = from + i, p->stop[i] = from + i + 1;
        if (old != new) nearest(p);
        return 1;
    }
    const double ratio = (double)old / (double)new;
    /* Two more than twice the support: an output's first and last pixel are rounded. */
    p->most = (int64_t)(2 * 3 * (ratio > 1 ? ratio : 1)) + 3;
    p->most = p->most < old ? p->most : old;
    if ((uint64_t)p->most > SIZE_MAX / sizeof(double) / (uint64_t)count) return 0;
    p->factors = malloc((size_t)(count * p->most) * sizeof *p->factors);
    double *raw = malloc((size_t)p->most * sizeof *raw);
    if (p->factors && raw) weigh(p, kind, raw);
    free(raw);
    return p->factors && raw;
}

/* One output of one line, whose pixels lie `stride` bytes apart, in each colour. */
static void put(const pass *p, int64_t out, const uint8_t *line, int64_t stride, uint8_t *to) {
    const uint8_t *at = line + p->first[out] * stride;
    if (!p->factors) {
        memcpy(to, at, COLOURS);
        return;
    }
    const int32_t *factors = p->factors + out * p->most;
    int64_t sum[COLOURS] = {1 << (COEFFICIENT_BITS - 1), 1 << (COEFFICIENT_BITS - 1), 1 << (COEFFICIENT_BITS - 1)};
    for (int64_t i = 0; i < p->stop[out] - p->first[out]; i++, at += stride)
        for (int c = 0; c < COLOURS; c++) sum[c] += (int64_t)factors[i] * at[c];
    for (int c = 0; c < COLOURS; c++) {
        const int64_t byte = sum[c] >> COEFFICIENT_BITS;
        to[c] = (uint8_t)(byte < 0 ? 0 : byte > 255 ? 255 : byte);
    }
}

/* Along the rows, then along the columns; rows that no output sees are left out. */
static int run_passes(const pass *across, pass *down, const uint8_t *pixels, int64_t width, uint8_t *out) {
    const int64_t size = across->count, top = down->first[0], rows = down->stop[down->count - 1] - top;
    if ((uint64_t)rows > SIZE_MAX / COLOURS / (uint64_t)size) return 0;
    uint8_t *between = malloc((size_t)(rows * size * COLOURS));
    if (!between) return 0;
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < size; x++)
            put(across, x, pixels + (top + y) * width * COLOURS, COLOURS, between + (y * size + x) * COLOURS);
    for (int64_t y = 0; y < down->count; y++) {
        down->first[y] -= top, down->stop[y] -= top;
        for (int64_t x = 0; x < size; x++)
            put(down, y, between + x * COLOURS, size * COLOURS, out + (y * size + x) * COLOURS);
    }
    free(between);
    return 1;
}

int32_t resize_picture(const packed_header *header, const uint8_t *pixels, int64_t height, int64_t width, uint8_t *out,
                       lapis_error *error) {
    const int64_t size = header->image_size, short_side = (int64_t)floor((double)size / header->crop[0] + 0.5);
    int64_t new_height = height, new_width = width;
    if (height < 1 || width < 1 || height > MAX_SIDE || width > MAX_SIDE)
        return report(error, LAPIS_BAD_ARGUMENT, "a picture of %lld x %lld pixels; sides are 1 to 2^30",
                      (long long)width, (long long)height);
    if (height != short_side || width != short_side) {
        const double share = (double)short_side / (double)(height < width ? height : width);
        const double wide = fmax((double)short_side, rint((double)width * share));
        const double tall = fmax((double)short_side, rint((double)height * share));
        /* A narrow picture would become very long. */
        if (wide * tall > MAX_PIXELS)
            return report(
                error, LAPIS_BAD_ARGUMENT,
                "a picture of %lld x %lld pixels is too narrow: resized it would have more than 2^27; cut out "
                "the part to classify",
                (long long)width, (long long)height);
        new_width = (int64_t)wide;
        new_height = (int64_t)tall;
    }
    pass across = {0}, down = {0};
    const int done = open_pass(&across, header->interpolation, width, new_width, (new_width - size) / 2, size) &&
                     open_pass(&down, header->interpolation, height, new_height, (new_height - size) / 2, size) &&
                     run_passes(&across, &down, pixels, width, out);
    close_pass(&across);
    close_pass(&down);
    return done ? LAPIS_OK : no_memory(error);
}
