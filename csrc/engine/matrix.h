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

/* Sums of tokens by a panel, which still have to go through what follows the layer. */
typedef struct {
    _Alignas(64) int32_t sums[2 * TILE_HEIGHT][PANEL];
    int64_t row, column, tokens;
    const char *ahead; /* weights to fetch meanwhile, `lines` of them a step */
    int64_t lines;
} unfinished;

INLINE void finish_some(const int kind, const linear_call *caller, const unfinished *u, int64_t from, int64_t to) {
    /* A copy: codes are bytes, and bytes that are written might be anything, the caller's record too. */
    const linear_call call = *caller;
    const int64_t column = u->column;
    const ints start_a = load_ints(call.layer->start + column), start_b = load_ints(call.layer->start + column + LANES);
    const vector_of_outputs a = outputs_from(kind, call.layer, column);
    const vector_of_outputs b = outputs_from(kind, call.layer, column + LANES);
    for (int64_t r = from; r < to; r++) {
        finish_vector(kind, &call, &a, u->row + r, column, add32(load_ints(u->sums[r]), start_a));
        finish_vector(kind, &call, &b, u->row + r, column + LANES, add32(load_ints(u->sums[r] + LANES), start_b));
    }
}

/* One step of products; each tile is loaded anew, if at all, as soon as its last product has begun. */
INLINE void matrix_step(const int tall, const int load, const uint8_t *codes, int64_t stride, const int8_t *weight) {
    tile_dot(0, 4, 6);
    tile_dot(1, 4, 7);
    if (load) tile_load(4, codes, stride);
    if (tall) tile_dot(2, 5, 6);
    if (load) tile_load(6, weight, PANEL * 4);
    if (tall) tile_dot(3, 5, 7);
    if (load) tile_load(7, weight + TILE_BYTES, PANEL * 4);
    if (load && tall) tile_load(5, codes + TILE_HEIGHT * stride, stride);
}

/* Sums into `now`. Between the products, the tile before is finished: the matrix unit and the vector units work side by
 * side, which they cannot find out for themselves across so many instructions. */
INLINE void matrix_tile(const int kind, const int tall, const linear_call *call, const unfinished *before,
                        unfinished *now) {
    const char *ahead = now->ahead;
    const linear *layer = call->layer;
    const int64_t stride = call->code_stride, steps = layer->groups * 4 / TILE_BYTES;
    const uint8_t *codes = call->codes + now->row * stride;
    const int8_t *weight = layer->weight + now->column * layer->groups * 4;
    const int64_t share = (before->tokens + steps - 1) / steps;
    int64_t done = 0;
    tile_zero(0);
    tile_zero(1);
    if (tall) {
        tile_zero(2);
        tile_zero(3);
        tile_load(5, codes + TILE_HEIGHT * stride, stride);
    }
    tile_load(4, codes, stride);
    tile_load(6, weight, PANEL * 4);
    tile_load(7, weight + TILE_BYTES, PANEL * 4);
    for (int64_t step = 1; step < steps; step++) {
        matrix_step(tall, 1, codes += TILE_BYTES, stride, weight += TILE_HEIGHT * PANEL * 4);
        for (int64_t i = 0; i < now->lines; i++, ahead += 64) _mm_prefetch(ahead, _MM_HINT_T1);
        const int64_t stop = done + share < before->tokens ? done + share : before->tokens;
        finish_some(kind, call, before, done, stop);
        done = stop;
    }
    matrix_step(tall, 0, codes, stride, weight);
    finish_some(kind, call, before, done, before->tokens);
    tile_store(0, now->sums[0], PANEL * 4);
    tile_store(1, now->sums[0] + LANES, PANEL * 4);
    if (tall) {
        tile_store(2, now->sums[TILE_HEIGHT], PANEL * 4);
        tile_store(3, now->sums[TILE_HEIGHT] + LANES, PANEL * 4);
    }
}

#define MATRIX(kind_)                                                                                             \
    static __attribute__((noinline)) void matrix_##kind_(const linear_call *call, const unfinished *before,       \
                                                         unfinished *now) {                                       \
        if (!now)                                                                                                 \
            finish_some(kind_, call, before, 0, before->tokens);                                                  \
        else if (now->tokens > TILE_HEIGHT)                                                                       \
            matrix_tile(kind_, 1, call, before, now);                                                             \
        else                                                                                                      \
            matrix_tile(kind_, 0, call, before, now);                                                             \
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
    enum { HEIGHT = 2 * TILE_HEIGHT, PAIR = 2 };
    static void (*const MATRICES[3])(const linear_call *, const unfinished *, unfinished *) = {
        matrix_TO_CODES, matrix_TO_LADDER, matrix_TO_STREAM};
    const int64_t bytes = layer->groups * PANEL * 4, loads = layer->groups * 4 / TILE_BYTES - 1;
    int64_t block = CACHED_CODES / (layer->groups * 4) / HEIGHT * HEIGHT, shaped = 0;
    if (block < HEIGHT) block = HEIGHT;
    unfinished tiles[2];
    int turn = 0;
    tiles[1].row = tiles[1].column = tiles[1].tokens = 0;
    for (; from < to; from += block) {
        int64_t stop = from + block < to ? from + block : to;
        const int64_t fetches = (stop - from + HEIGHT - 1) / HEIGHT * PAIR * loads;
        const int64_t lines = fetches ? (PAIR * bytes / 64 + fetches - 1) / fetches : 0;
        for (int64_t panel = 0; panel < layer->panels; panel += PAIR) {
            const int64_t last = panel + PAIR < layer->panels ? panel + PAIR : layer->panels;
            /* Behind a layer's last panels lies the next layer. */
            const char *ahead = (const char *)layer->weight + last * bytes;
            for (int64_t row = from; row < stop; row += HEIGHT) {
                const int64_t tokens = stop - row < HEIGHT ? stop - row : HEIGHT;
                if (tokens != shaped) shape_tiles(shaped = tokens);
                for (int64_t p = panel; p < last; p++, turn ^= 1) {
                    unfinished *now = tiles + turn;
                    now->row = row, now->column = p * PANEL, now->tokens = tokens;
                    now->ahead = ahead, now->lines = lines;
                    ahead += lines * 64 * loads;
                    MATRICES[layer->kind](call, tiles + (turn ^ 1), now);
                }
            }
        }
    }
    MATRICES[layer->kind](call, tiles + (turn ^ 1), NULL);
    tile_done();
}
