/* How many multiplications and additions a second this core can do at best in the kernels' own instruction, from
 * registers: the limit that `lapis bench engine` holds the layers against. */
#if LAPIS_AMX
static double peak_rate(int64_t rounds, int64_t (*clock)(void)) {
    shape_tiles(2 * TILE_HEIGHT);
    int64_t start = clock();
    for (int64_t n = 0; n < rounds; n += 16) {
        tile_dot(0, 4, 6);
        tile_dot(1, 4, 7);
        tile_dot(2, 5, 6);
        tile_dot(3, 5, 7);
    }
    int64_t took = clock() - start;
    tile_done();
    return 4.0 * TILE_HEIGHT * LANES * TILE_BYTES * (double)(rounds / 16) / (double)(took > 0 ? took : 1);
}
#else
static double peak_rate(int64_t rounds, int64_t (*clock)(void)) {
    ints sum[12], x = all8(1);
    UNROLL for (int i = 0; i < 12; i++) sum[i] = all8((char)i);
    int64_t start = clock();
    for (int64_t n = 0; n < rounds; n++)
        UNROLL for (int i = 0; i < 12; i += 2) {
#if LAPIS_VNNI
            sum[i] = _mm512_dpbusd_epi32(sum[i], x, x);
            sum[i + 1] = _mm512_dpbusd_epi32(sum[i + 1], x, x);
#else
            sum[i] = multiply_u8_s8(sum[i], x);
            sum[i + 1] = multiply_u8_s8(sum[i + 1], x);
#endif
            SETTLE(sum[i], sum[i + 1]);
        }
    int64_t took = clock() - start;
    return 12.0 * LANES * 4 * (double)rounds / (double)(took > 0 ? took : 1);
}
#endif
