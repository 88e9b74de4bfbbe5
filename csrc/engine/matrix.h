/* Linear layers by the matrix unit: 32 tokens by 32 outputs at a time, in four tiles of sums. The weights lie as the
 * vector kernels want them: of a panel's rows, each tile reads one half. */

#include "../simd/amx.h"

/* Tiles: 0 and 1 sum the first 16 tokens, 2 and 3 the others; 4 and 5 hold their codes, 6 and 7 weights. */
static void shape_tiles(int64_t tokens) {
    const int64_t first = tokens < TILE_HEIGHT ? tokens : TILE_HEIGHT, second = tokens - first;
    const uint8_t rows[8] = {(uint8_t)first, (uint8_t)first,  (uint8_t)second, (uint8_t)second,
                             (uint8_t)first, (uint8_t)second, TILE_HEIGHT,     TILE_HEIGHT};
    tile_shapes shapes = {.palette = 1};
    for (int t = 0; t < 8; t++)
        if (rows[t]) shapes.rows[t] = rows[t], shapes.bytes[t] = TILE_BYTES;
    tile_configure(&shapes);
}

INLINE void matrix_tile(const int kind, const linear_call *call, int64_t row, int64_t tokens, int64_t panel) {
    const linear *layer = call->layer;
    const int64_t stride = call->code_stride, column = panel * PANEL;
    const uint8_t *codes = call->codes + row * stride, *more = codes + TILE_HEIGHT * stride;
    const int8_t *weight = layer->weight + column * layer->groups * 4, *stop = weight + layer->groups * PANEL * 4;
    _Alignas(64) int32_t sums[2 * TILE_HEIGHT][PANEL];
    tile_zero(0);
    tile_zero(1);
    if (tokens > TILE_HEIGHT) {
        tile_zero(2);
        tile_zero(3);
        for (; weight < stop; weight += TILE_HEIGHT * PANEL * 4, codes += TILE_BYTES, more += TILE_BYTES) {
            tile_load(4, codes, stride);
            tile_load(6, weight, PANEL * 4);
            tile_dot(0, 4, 6);
            tile_load(7, weight + TILE_BYTES, PANEL * 4);
            tile_dot(1, 4, 7);
            tile_load(5, more, stride);
            tile_dot(2, 5, 6);
            tile_dot(3, 5, 7);
        }
        tile_store(2, sums[TILE_HEIGHT], PANEL * 4);
        tile_store(3, sums[TILE_HEIGHT] + LANES, PANEL * 4);
    } else {
        for (; weight < stop; weight += TILE_HEIGHT * PANEL * 4, codes += TILE_BYTES) {
            tile_load(4, codes, stride);
            tile_load(6, weight, PANEL * 4);
            tile_dot(0, 4, 6);
            tile_load(7, weight + TILE_BYTES, PANEL * 4);
            tile_dot(1, 4, 7);
        }
    }
    tile_store(0, sums[0], PANEL * 4);
    tile_store(1, sums[0] + LANES, PANEL * 4);
    const ints start_a = load_ints(layer->start + column), start_b = load_ints(layer->start + column + LANES);
    for (int64_t r = 0; r < tokens; r++)
        finish_row(kind, call, row + r, column, add32(load_ints(sums[r]), start_a),
                   add32(load_ints(sums[r] + LANES), start_b));
}

#define MATRIX(kind_)                                                                                      \
    static __attribute__((noinline)) void matrix_##kind_(const linear_call *call, int64_t row, int64_t tokens, \
                                                         int64_t panel) {                                  \
        matrix_tile(kind_, call, row, tokens, panel);                                                      \
    }
MATRIX(TO_CODES)
MATRIX(TO_LADDER)
MATRIX(TO_STREAM)

static void linear_rows(const linear_call *call, int64_t from, int64_t to) {
    const linear *layer = call->layer;
    if (layer->groups * 4 % TILE_BYTES) {
        linear_vectors(call, from, to);
        return;
    }
    enum { HEIGHT = 2 * TILE_HEIGHT };
    static void (*const MATRICES[3])(const linear_call *, int64_t, int64_t, int64_t) = {
        matrix_TO_CODES, matrix_TO_LADDER, matrix_TO_STREAM};
    const int64_t bytes = layer->groups * PANEL * 4;
    int64_t block = CACHED_CODES / (layer->groups * 4) / HEIGHT * HEIGHT, shaped = 0;
    if (block < HEIGHT) block = HEIGHT;
    for (; from < to; from += block) {
        int64_t stop = from + block < to ? from + block : to;
        for (int64_t panel = 0; panel < layer->panels; panel++) {
            const int8_t *next = panel + 1 < layer->panels ? layer->weight + (panel + 1) * bytes : NULL;
            for (int64_t row = from; row < stop; row += HEIGHT) {
                int64_t tokens = stop - row < HEIGHT ? stop - row : HEIGHT;
                if (tokens != shaped) shape_tiles(shaped = tokens);
                fetch_ahead(next, bytes, row - from, row - from + tokens, stop - from);
                MATRICES[layer->kind](call, row, tokens, panel);
            }
        }
    }
    tile_done();
}
