/* Arrays of a network in the layouts that the kernels read, in memory planned before it is taken. */
#ifndef LAPIS_PACK_H
#define LAPIS_PACK_H

#include "engine.h"
#include "stages.h"

/* Two passes over the same calls: with `base` NULL sizes are added up, then pieces are handed out. */
typedef struct {
    unsigned char *base;
    size_t used;
} plan;

void *plan_take(plan *p, int64_t bytes);

/* Take `used` bytes for a plan, zeroed, in pages as large as the system gives; 0 if there are none. */
int plan_open(plan *p);
void plan_close(plan *p);

/* Bytes from one row of codes to the next. */
int64_t code_stride(int64_t channels);

typedef struct {
    int64_t outputs, inputs;
    int32_t low, high; /* codes that come in */
    linear_kind kind;
    const ladder *steps;
    int late; /* whether some of its codes miss their deadline */
} layer_shape;

/* The codes' range of TO_CODES is the caller's to write into `lowest` and `span`, and deadlines into `silent` and
 * `late`. */
void pack_linear(plan *p, const engine_functions *functions, const lapis_layer *layer, layer_shape shape, linear *out);

void pack_ladder(const float *rise, const float *fall, int32_t levels, ladder *out);

/* Floats or integers with zeros beyond. */
void *pack_words(plan *p, const void *words, int64_t count, int64_t padded);

/* Add the weights that event-driven kernels read; `packed` comes from pack_linear. */
void pack_spikes(plan *p, const engine_functions *functions, const lapis_layer *layer, linear *packed);

/* The rows of a block's affinities [heads, exponents], cut to what is read, and where each of them lies. */
uint16_t *pack_affinities(plan *p, const lapis_block *from, int64_t heads, const affinity_row **cut);

int16_t *pack_patch(plan *p, const engine_functions *functions, const int16_t *weight, int64_t outputs, int64_t inputs);

#endif
