/* Tiles: eight registers of 16 rows by 64 bytes. `tile_dot` adds u8 [16, 64] times s8 [16, 16, 4], packed as the
 * kernels pack weights, to int32 [16, 16]. LAPIS_EMULATE does it in plain C, to prove the code around it anywhere. */
#ifndef LAPIS_SIMD_AMX_H
#define LAPIS_SIMD_AMX_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum { TILE_HEIGHT = 16, TILE_BYTES = 64 };

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shapes;

#if LAPIS_EMULATE
static _Thread_local struct {
    tile_shapes shapes;
    int32_t data[8][TILE_HEIGHT][TILE_BYTES / 4];
} tiles_;

static inline void tile_configure(const tile_shapes *shapes) {
    tiles_.shapes = *shapes;
    memset(tiles_.data, 0, sizeof tiles_.data);
}
static inline void tile_load_(int t, const void *from, int64_t stride) {
    for (int r = 0; r < tiles_.shapes.rows[t]; r++)
        memcpy(tiles_.data[t][r], (const char *)from + r * stride, TILE_BYTES);
}
static inline void tile_store_(int t, void *to, int64_t stride) {
    for (int r = 0; r < tiles_.shapes.rows[t]; r++) memcpy((char *)to + r * stride, tiles_.data[t][r], TILE_BYTES);
}
static inline void tile_dot_(int sum, int a, int b) {
    for (int r = 0; r < tiles_.shapes.rows[sum]; r++)
        for (int k = 0; k < TILE_BYTES; k++)
            for (int c = 0; c < 16; c++)
                tiles_.data[sum][r][c] +=
                    ((const uint8_t *)tiles_.data[a][r])[k] * ((const int8_t *)tiles_.data[b][k / 4])[4 * c + k % 4];
}
#define tile_zero(t) memset(tiles_.data[t], 0, sizeof tiles_.data[t])
#define tile_load(t, from, stride) tile_load_(t, from, stride)
#define tile_store(t, to, stride) tile_store_(t, to, stride)
#define tile_dot(sum, a, b) tile_dot_(sum, a, b)
#define tile_done() ((void)0)
#else
#define tile_configure(shapes) _tile_loadconfig(shapes)
#define tile_zero(t) _tile_zero(t)
#define tile_load(t, from, stride) _tile_loadd(t, from, stride)
#define tile_store(t, to, stride) _tile_stored(t, to, stride)
#define tile_dot(sum, a, b) _tile_dpbusd(sum, a, b)
#define tile_done() _tile_release()
#endif

#endif
