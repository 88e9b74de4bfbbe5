/* The engine's stages in plain C: what the vector kernels must equal, and what runs where they cannot. */
#include "stages.h"

#include "../simd/unroll.h"

#define TARGET scalar

static float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

static int count_levels(const ladder *steps, float pre) {
    int count = 0;
    for (int m = 0; m < steps->levels; m++) count += pre >= steps->rise[m] || pre <= steps->fall[m];
    return count;
}

static void KERNEL(linear_rows)(const linear_call *call, int64_t from, int64_t to) {
    const linear *layer = call->layer;
    for (int64_t row = from; row < to; row++)
        for (int64_t o = 0; o < layer->outputs; o++) {
            const uint8_t *codes = call->codes + row * call->code_stride;
            const int8_t *weight = layer->weight + o * layer->groups * 4;
            int32_t total = layer->start[o];
            for (int64_t i = 0; i < layer->inputs; i++) total += codes[i] * weight[i];
            float pre = (float)total * layer->scale[o];
            pre = pre + layer->shift[o];
            if (layer->kind == TO_STREAM) {
                int32_t *h = call->stream + row * call->stream_stride + o;
                *h = within((int64_t)*h + (int32_t)floorf(pre), call->limit);
            } else {
                float low = layer->lowest[o], high = low + layer->span[o];
                uint8_t code = layer->kind == TO_LADDER ? (uint8_t)count_levels(layer->steps, pre)
                                                        : (uint8_t)(floorf(clamp(pre, low, high)) - low);
                call->out[row * call->out_stride + o] =
                    layer->below_min_code ? drop_below(code, layer->zero_code[o], layer->below_min_code[o]) : code;
            }
        }
}

static void KERNEL(norm_row)(const norm_call *call, const int32_t *stream, uint8_t *codes) {
    int64_t sum = 0, squares = 0;
    for (int64_t c = 0; c < call->width; c++) sum += stream[c];
    int64_t mean = norm_mean(sum, call->width);
    for (int64_t c = 0; c < call->width; c++) squares += (stream[c] - mean) * (stream[c] - mean);
    float rstd = norm_rstd(sum, mean, squares, call->width, call->eps);
    for (int64_t c = 0; c < call->width; c++) {
        float pre = (float)(stream[c] - (int32_t)mean) * rstd;
        pre = pre * call->gain[c];
        pre = pre + call->shift[c];
        uint8_t code = (uint8_t)(floorf(clamp(pre, call->low, call->high)) - call->low);
        codes[c] = drop_below(code, -(int32_t)call->low, call->below_min_code);
    }
}

static void KERNEL(readout_row)(const readout_call *call, const int32_t *acc, int64_t channels, int32_t offset,
                                float factor, uint8_t *codes) {
    for (int64_t c = 0; c < channels; c++) {
        float pre = (float)(acc[c] + offset) * factor;
        pre = pre * call->scale;
        pre = pre + call->shift;
        uint8_t code = (uint8_t)(floorf(clamp(pre, call->low, call->high)) - call->low);
        codes[c] = drop_below(code, -(int32_t)call->low, call->below_min_code);
    }
}

static void KERNEL(patch_rows)(const patch_call *call, const int16_t *patches, int64_t rows, const int32_t *position,
                               int64_t position_stride, int32_t *stream, int64_t stream_stride) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < call->outputs; o++) {
            const int16_t *patch = patches + r * call->inputs, *weight = call->weight + o * call->inputs;
            int64_t sum = 0;
            for (int64_t k = 0; k < call->inputs; k++) sum += patch[k] * weight[k];
            if (call->half[o]) sum = ((sum >> call->shift[o]) + 1) >> 1;
            sum += position[r * position_stride + o];
            stream[r * stream_stride + o] = within(sum, call->limit);
        }
}

static int64_t KERNEL(head_row)(const int16_t *token, const int16_t *weight, int64_t padded) {
    int64_t sum = 0;
    for (int64_t c = 0; c < padded; c++) sum += token[c] * weight[c];
    return sum;
}

const engine_functions engine_scalar = {
    .panel = 1,
    .tile = 1,
    .linear = KERNEL(linear_rows),
    .norm = KERNEL(norm_row),
    .patch = KERNEL(patch_rows),
    .readout = KERNEL(readout_row),
    .head = KERNEL(head_row),
};
