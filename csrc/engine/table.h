/* The engine's part of one instruction set, from the names that its functions have in every one with vectors. */
const engine_functions ENGINE_TABLE = {
    .panel = PANEL,
#if LAPIS_AMX
    .tile = TILE_HEIGHT,
#else
    .tile = TILE_ROWS,
#endif
    .narrow_sums = !LAPIS_VNNI,
    .linear = linear_rows,
#if !LAPIS_VNNI
    .spikes = spike_rows,
    .spike_scratch = spike_scratch,
#endif
    .norm = norm_row,
    .patch = patch_rows,
    .readout = readout_row,
    .head = head_row,
    .peak = peak_rate,
};
