/* The operations of the spiking network, spike by spike: the simulator of lapis.deploy.simulate in C.
 *
 * A spike train is u8 [steps, ..., neurons], 1 where a neuron spikes; none spikes twice, and steps = T - z0 + 1 end at
 * the deadline of the minimum code z0. Signed points have an ON neuron for every channel and then as many OFF neurons.
 * Every function computes what its namesake in numpy does, integer by integer; arrays are contiguous. */
#ifndef LAPIS_SIMULATE_H
#define LAPIS_SIMULATE_H

#include "library.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One spike at the first step n whose level m = T - n is reached: value >= rise[m], or value < fall[m] where there is a
 * fall. An OFF neuron (low < 0) fires at the first n at which level 1 - m is not reached. values [rows, neurons];
 * rise and fall [rows or 1, window - low, sets]: neuron i reads set i / (neurons / sets). Out: the train
 * [steps, rows, neurons or 2 neurons] and the codes [rows, neurons] that it stands for. */
LAPIS_API int32_t lapis_spikes_fire(const double *values, int64_t rows, int64_t neurons, const double *rise,
                                    const double *fall, int32_t per_row, int64_t sets, int32_t low, int32_t window,
                                    int32_t min_code, uint8_t *train, int8_t *codes, int32_t threads);

/* I += w on a spike, V += I at every step, V += (min_code - 1) I at the end. train [steps, targets, neurons], neurons =
 * inputs, or 2 inputs with OFF neurons behind; weight [inputs, outputs] -> voltage [targets, outputs], and how many
 * synapses were crossed. */
LAPIS_API int32_t lapis_spikes_integrate(const uint8_t *train, int64_t steps, int64_t targets, int64_t neurons,
                                         const int8_t *weight, int64_t inputs, int64_t outputs, int32_t min_code,
                                         int32_t *voltage, int64_t *crossed, int32_t threads);

/* Counters that run between the spikes of a query and a key: q [steps, heads, rows, neurons], k [steps, heads, keys,
 * neurons] -> distance [heads, rows, keys]. */
LAPIS_API int32_t lapis_spikes_relate(const uint8_t *q, const uint8_t *k, int64_t steps, int64_t heads, int64_t rows,
                                      int64_t keys, int64_t neurons, int32_t min_code, int32_t *distance,
                                      int64_t *crossed, int32_t threads);

/* Membranes that are read after as many leak steps as the counters ran. mantissa and exponent [heads, steps]: a head's
 * membrane after 0, 1, 2, ... steps, alike for all its pairs. distance [heads, rows, keys], below `steps` -> affinity
 * alike, of `bits` bits for the nearest key of a row, and its row sums [heads, rows]. */
LAPIS_API int32_t lapis_spikes_leak(const int32_t *distance, int64_t heads, int64_t rows, int64_t keys,
                                    const uint32_t *mantissa, const int64_t *exponent, int64_t steps, int32_t bits,
                                    int32_t *affinity, int64_t *mass);

/* Value spikes through affinities: train [steps, heads, keys, neurons], neurons = channels, or 2 channels with OFF
 * neurons behind; affinity [heads, rows, keys] -> voltage [heads, channels, rows]. */
LAPIS_API int32_t lapis_spikes_mix(const uint8_t *train, int64_t steps, int64_t heads, int64_t keys, int64_t neurons,
                                   const int32_t *affinity, int64_t rows, int64_t channels, int32_t min_code,
                                   int32_t *voltage, int64_t *crossed, int32_t threads);

#ifdef __cplusplus
}
#endif
#endif
