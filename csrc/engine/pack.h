/* Arrays of a network in the layouts that the kernels read, in memory planned before it is taken. */
#ifndef LAPIS_PACK_H
#define LAPIS_PACK_H

#include "engine.h"
#include "stages.h"

/* Two passes over the same calls: with `base` NULL sizes are added up, then pieces are handed out. */
typedef struct {
    unsigned char *base;
    size_t used;
    unsigned char *spare; /* lives as long as the packing */
    size_t spare_bytes;
} arena;

void *arena_take(arena *p, int64_t bytes);

/* Memory for the time of packing, not zeroed; every call gets the same. NULL in the first pass. */
void *arena_spare(arena *p, int64_t bytes);

/* Take `used` bytes for an arena, zeroed, in pages as large as the system gives; 0 if there are none. */
int arena_open(arena *p);
void arena_end_packing(arena *p);
void arena_close(arena *p);

/* Bytes from one row of codes to the next. */
int64_t code_stride(int64_t channels);

typedef struct {
    int64_t outputs, inputs;
    int32_t low, high; /* codes that come in */
    linear_kind kind;
    const ladder *steps;
    int below_min_code; /* whether some of its codes miss their deadline */
} layer_shape;

/* Which forms of a layer's weights are kept. */
enum { DENSE = 1, EVENTS = 2, PACKED6 = 4 };

/* The codes' range of TO_CODES is the caller's to write into `lowest` and `span`, and deadlines into `zero_code` and
 * `below_min_code`. */
void pack_linear(arena *p, const engine_functions *functions, const lapis_layer *layer, layer_shape shape, int forms,
                 linear *out);

/* Bytes of `unpacked` that a layer of so many inputs needs. */
int64_t unpacked_bytes(const engine_functions *functions, int64_t inputs);

void pack_ladder(const float *rise, const float *fall, int32_t levels, ladder *out);

/* Floats or integers with zeros beyond. */
void *pack_words(arena *p, const void *words, int64_t count, int64_t padded);

/* The rows of a block's affinities [heads, exponents], cut to what is read, and where each of them lies. */
uint16_t *pack_affinities(arena *p, const lapis_block *from, int64_t heads, const affinity_row **cut);

int16_t *pack_patch(arena *p, const engine_functions *functions, const int16_t *weight, int64_t outputs,
                    int64_t inputs);

#endif
