/* One linear layer by itself, and what the processor could do at best, for tests and benchmarks. */
#include <string.h>

#include "../isa.h"
#include "../system.h"
#include "state.h"

static int64_t best_time(const engine_functions *functions, const linear_call *call, int64_t rows, int32_t repeats,
                         unsigned char *scratch) {
    int64_t best = INT64_MAX;
    for (int32_t i = 0; i < repeats; i++) {
        int64_t from = system_thread_clock();
        if (call->layer->spike_weight || call->layer->spike_packed6)
            functions->spikes(call, 0, rows, scratch);
        else
            functions->linear(call, 0, rows);
        int64_t took = system_thread_clock() - from;
        best = took < best ? took : best;
    }
    return best;
}

/* The codes that go out: their range, and the smallest that fires. */
static void set_codes(linear *packed, int32_t low, int32_t high, int32_t min_code) {
    for (int64_t o = 0; o < packed->outputs; o++) {
        packed->lowest[o] = (int16_t)low;
        packed->span[o] = (uint8_t)(high - low);
        if (!packed->below_min_code) continue;
        packed->zero_code[o] = (uint8_t)-low;
        packed->below_min_code[o] = (uint8_t)(min_code - 1);
    }
}

int32_t lapis_engine_linear(const int8_t *weight, const float *scale, const float *shift, int64_t rows, int64_t inputs,
                            int64_t outputs, const uint8_t *codes, int32_t low, int32_t high, int32_t kind,
                            int32_t forms, int32_t out_low, int32_t out_high, int32_t min_code, const float *rise,
                            const float *fall, int32_t stream_bits, uint8_t *out, int32_t *stream, int32_t repeats,
                            int64_t *nanoseconds) {
    if (!weight || !scale || !shift || rows < 1 || inputs < 1 || outputs < 1 || !codes || kind < 0 || kind > 2)
        return LAPIS_BAD_ARGUMENT;
    if (high - low > MAX_LEVELS || high < low || out_high - out_low > MAX_LEVELS || out_high < out_low)
        return LAPIS_BAD_ARGUMENT;
    if (kind == TO_STREAM ? !stream : !out) return LAPIS_BAD_ARGUMENT;
    if (out_low > 0 || min_code < 1 || min_code > MAX_LEVELS) return LAPIS_BAD_ARGUMENT;
    const lapis_layer layer = {weight, scale, shift};
    const engine_functions *functions = current_isa()->engine;
    if (forms & EVENTS && !functions->spikes) forms = (forms & ~EVENTS) | DENSE;
    const int events = forms & EVENTS;
    ladder steps;
    if (kind == TO_LADDER) pack_ladder(rise, fall, out_high - out_low, &steps);
    layer_shape shape = {outputs, inputs, low, high, (linear_kind)kind, &steps, kind != TO_STREAM};
    int64_t in_stride = code_stride(inputs), out_stride = code_stride(outputs);
    int64_t stream_stride = round_up(outputs, STREAM_UNIT);
    arena p = {0};
    linear packed;
    uint8_t *in_codes, *out_codes, *scratch;
    int32_t *moving;
    int8_t *unpacked;
    for (int pass = 0; pass < 2; pass++) {
        pack_linear(&p, functions, &layer, shape, forms, &packed);
        unpacked = arena_take(&p, forms & PACKED6 ? unpacked_bytes(functions, inputs) : 0);
        scratch = arena_take(&p, events ? (int64_t)functions->spike_scratch(inputs, packed.most, rows) : 0);
        in_codes = arena_take(&p, rows * in_stride);
        out_codes = arena_take(&p, rows * out_stride);
        moving = arena_take(&p, rows * stream_stride * 4);
        if (!pass && !arena_open(&p)) return LAPIS_OUT_OF_MEMORY;
    }
    set_codes(&packed, out_low, out_high, min_code);
    for (int64_t r = 0; r < rows; r++) {
        memcpy(in_codes + r * in_stride, codes + r * inputs, (size_t)inputs);
        if (kind == TO_STREAM) memcpy(moving + r * stream_stride, stream + r * outputs, (size_t)outputs * 4);
    }
    linear_call call = {.layer = &packed,
                        .unpacked = unpacked,
                        .codes = in_codes,
                        .code_stride = in_stride,
                        .out = out_codes,
                        .out_stride = out_stride,
                        .stream = moving,
                        .stream_stride = stream_stride,
                        .limit = 1 << stream_bits};
    int64_t best = best_time(functions, &call, rows, repeats, scratch);
    if (nanoseconds) *nanoseconds = best;
    for (int64_t r = 0; r < rows; r++) {
        if (kind == TO_STREAM)
            memcpy(stream + r * outputs, moving + r * stream_stride, (size_t)outputs * 4);
        else
            memcpy(out + r * outputs, out_codes + r * out_stride, (size_t)outputs);
    }
    arena_close(&p);
    return LAPIS_OK;
}

double lapis_engine_peak(int32_t adds) {
    const engine_functions *functions = current_isa()->engine;
    double best = 0;
    for (int i = 0; functions->peak && i < 20; i++) {
        double rate = functions->peak(200000, adds, system_thread_clock);
        best = rate > best ? rate : best;
    }
    return best;
}

int32_t lapis_engine_pace(int32_t threads, int64_t runs, const double *nanoseconds, const double *waited,
                          int32_t *sizes) {
    if (threads < 1 || !nanoseconds || !waited || !sizes) return LAPIS_BAD_ARGUMENT;
    pace p;
    pace_start(&p, threads);
    for (int64_t i = 0; i < runs; i++) {
        sizes[i] = pace_size(&p);
        pace_note(&p, nanoseconds[i * threads + sizes[i] - 1], waited[i * threads + sizes[i] - 1]);
    }
    return LAPIS_OK;
}
