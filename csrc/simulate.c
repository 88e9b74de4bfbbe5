/* The spiking network in plain C. Time is the outer loop of everything that holds a state, as in numpy; tokens or heads
 * are divided among threads. The compiler vectorizes the inner loops, which are additions of rows. */
#include "simulate.h"

#include <stdatomic.h>
#include <string.h>

#include "parallel.h"

#define INLINE static inline __attribute__((always_inline))

/* Weights of 8 bits that can be added in 16 bits. */
enum { NARROW_SUMS = 255 };

/* Leaks of lapis.deploy.leak: the bits of a mantissa, the most of an affinity, and the shift that leaves none. */
enum { MANTISSA_BITS = 32, MOST_AFFINITY_BITS = 15, MAX_SHIFT = 40 };

/* The next neuron from `from` on that spikes, or `count`. */
static int64_t next_spike(const uint8_t *row, int64_t count, int64_t from) {
    /* At most one step in T holds the spike of a neuron, so most words are zero. */
    while (from < count) {
        uint64_t word;
        if (from + 8 <= count && (memcpy(&word, row + from, 8), !word)) {
            from += 8;
            continue;
        }
        if (row[from]) return from;
        from++;
    }
    return count;
}

#define FOR_SPIKES(i, row, count) \
    for (int64_t i = next_spike(row, count, 0); i < (count); i = next_spike(row, count, i + 1))

static void add_row(int32_t *restrict to, const int32_t *restrict row, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += row[i];
}

static void subtract_row(int32_t *restrict to, const int32_t *restrict row, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] -= row[i];
}

static void add_times(int32_t *restrict to, const int32_t *restrict row, int32_t factor, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += factor * row[i];
}

/* One step of a window: the thresholds of its level, one for every neuron or a shared one (fall may be NULL), the step,
 * and the latency that stands for silence. */
typedef struct {
    const double *rise, *fall;
    double step, silent;
} moment;

/* Neurons that are silent so far and now reach the level (ON), or do not (OFF), take the step as their latency. The
 * last three arguments are constants where this is inlined, so that the loop vectorizes. */
INLINE void watch(const double *restrict values, int64_t count, moment at, double *restrict latency, int shared,
                  int falls, int on) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t own = shared ? 0 : i;
        int reached = values[i] >= at.rise[own];
        if (falls) reached |= values[i] < at.fall[own];
        latency[i] = ((latency[i] == at.silent) & (reached == on)) ? at.step : latency[i];
    }
}

static void watch_step(const double *values, int64_t count, moment at, double *latency, int shared, int on) {
#define WATCH(shared, falls, on) watch(values, count, at, latency, shared, falls, on)
    if (shared)
        at.fall ? (on ? WATCH(1, 1, 1) : WATCH(1, 1, 0)) : (on ? WATCH(1, 0, 1) : WATCH(1, 0, 0));
    else
        at.fall ? (on ? WATCH(0, 1, 1) : WATCH(0, 1, 0)) : (on ? WATCH(0, 0, 1) : WATCH(0, 0, 0));
#undef WATCH
}

typedef struct {
    const double *values, *rise, *fall;
    int64_t rows, neurons, sets;
    int32_t per_row, low, window, steps;
    uint8_t *train;
    int8_t *codes;
} fire_call;

/* The step at which every neuron of a row crosses its falling threshold, or `steps`. */
static void cross(const fire_call *c, int64_t row, int on, double *latency) {
    const int64_t levels = c->window - c->low, group = c->neurons / c->sets;
    const int64_t first = c->per_row ? row * levels * c->sets : 0;
    const double *values = c->values + row * c->neurons;
    for (int64_t i = 0; i < c->neurons; i++) latency[i] = c->steps;
    for (int32_t step = 0; step < c->steps; step++) {
        /* Level low + 1 comes first. */
        const int32_t sought = on ? c->window - step : 1 - (c->window - step);
        const int64_t from = first + (sought - c->low - 1) * c->sets;
        const moment all = {c->rise + from, c->fall ? c->fall + from : NULL, step, c->steps};
        if (group == 1) watch_step(values, c->neurons, all, latency, 0, on);
        for (int64_t set = 0; group > 1 && set < c->sets; set++) {
            const moment one = {all.rise + set, all.fall ? all.fall + set : NULL, step, c->steps};
            watch_step(values + set * group, group, one, latency + set * group, 1, on);
        }
    }
}

static int fire_row(const void *argument, int64_t row, unsigned char *scratch) {
    const fire_call *c = argument;
    const int64_t width = c->low ? 2 * c->neurons : c->neurons;
    double *latency = (double *)scratch;
    int8_t *codes = c->codes + row * c->neurons;
    memset(codes, 0, (size_t)c->neurons);
    for (int32_t step = 0; step < c->steps; step++) memset(c->train + (step * c->rows + row) * width, 0, (size_t)width);
    for (int off = 0; off <= (c->low < 0); off++) {
        cross(c, row, !off, latency);
        for (int64_t i = 0; i < c->neurons; i++) {
            const int64_t step = (int64_t)latency[i];
            if (step == c->steps) continue;
            c->train[(step * c->rows + row) * width + off * c->neurons + i] = 1;
            codes[i] = (int8_t)(codes[i] + (off ? step - c->window : c->window - step));
        }
    }
    return LAPIS_OK;
}

int32_t lapis_spikes_fire(const double *values, int64_t rows, int64_t neurons, const double *rise, const double *fall,
                          int32_t per_row, int64_t sets, int32_t low, int32_t window, int32_t min_code, uint8_t *train,
                          int8_t *codes, int32_t threads) {
    if (!values || !rise || !train || !codes || rows < 1 || neurons < 1 || sets < 1 || neurons % sets)
        return LAPIS_BAD_ARGUMENT;
    if (window < 1 || window > 127 || min_code < 1 || min_code > window || (low && low != -window))
        return LAPIS_BAD_ARGUMENT;
    const fire_call call = {values, rise, fall, rows, neurons, sets, per_row, low, window, window - min_code + 1,
                            train,  codes};
    return parallel_for(fire_row, &call, rows, threads, (size_t)neurons * sizeof(double));
}

typedef struct {
    const uint8_t *train;
    int64_t steps, targets, neurons, inputs, outputs;
    const int8_t *weight;
    int32_t min_code;
    int32_t *voltage;
    atomic_int_fast64_t *spikes;
} integrate_call;

static void add_narrow(int16_t *restrict to, const int8_t *restrict row, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = (int16_t)(to[i] + row[i]);
}

static void subtract_narrow(int16_t *restrict to, const int8_t *restrict row, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = (int16_t)(to[i] - row[i]);
}

static void widen(int32_t *restrict to, int16_t *restrict narrow, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += narrow[i];
    memset(narrow, 0, (size_t)count * sizeof *narrow);
}

static int integrate_target(const void *argument, int64_t target, unsigned char *scratch) {
    const integrate_call *c = argument;
    int32_t *current = (int32_t *)scratch, *voltage = c->voltage + target * c->outputs;
    int16_t *arrived = (int16_t *)(current + c->outputs);
    int64_t spikes = 0;
    memset(scratch, 0, (size_t)c->outputs * (sizeof *current + sizeof *arrived));
    memset(voltage, 0, (size_t)c->outputs * sizeof *voltage);
    for (int64_t step = 0; step < c->steps; step++) {
        const uint8_t *row = c->train + (step * c->targets + target) * c->neurons;
        int64_t narrow = 0;
        FOR_SPIKES(i, row, c->neurons) {
            const int on = i < c->inputs;
            const int8_t *weight = c->weight + (on ? i : i - c->inputs) * c->outputs;
            (on ? add_narrow : subtract_narrow)(arrived, weight, c->outputs);
            spikes++;
            if (++narrow == NARROW_SUMS) widen(current, arrived, c->outputs), narrow = 0;
        }
        if (narrow) widen(current, arrived, c->outputs);
        add_row(voltage, current, c->outputs);
    }
    add_times(voltage, current, c->min_code - 1, c->outputs);
    atomic_fetch_add(c->spikes, spikes);
    return LAPIS_OK;
}

int32_t lapis_spikes_integrate(const uint8_t *train, int64_t steps, int64_t targets, int64_t neurons,
                               const int8_t *weight, int64_t inputs, int64_t outputs, int32_t min_code,
                               int32_t *voltage, int64_t *crossed, int32_t threads) {
    if (!train || !weight || !voltage || !crossed || steps < 1 || targets < 1 || inputs < 1 || outputs < 1 ||
        min_code < 1)
        return LAPIS_BAD_ARGUMENT;
    if (neurons != inputs && neurons != 2 * inputs) return LAPIS_BAD_ARGUMENT;
    atomic_int_fast64_t spikes = 0;
    const integrate_call call = {train, steps, targets, neurons, inputs, outputs, weight, min_code, voltage, &spikes};
    int status =
        parallel_for(integrate_target, &call, targets, threads, (size_t)outputs * (sizeof(int32_t) + sizeof(int16_t)));
    *crossed = atomic_load(&spikes) * outputs;
    return status;
}

typedef struct {
    const uint8_t *q, *k;
    int64_t steps, heads, rows, keys, neurons;
    int32_t min_code;
    int32_t *distance;
    atomic_int_fast64_t *crossed;
} relate_call;

/* What one side's spikes do: `running` [own, others] changes by the others' state [neurons, others], +1 for a partner
 * that has not fired, -1 for one that has. Then the spikes are noted in the own state [neurons, own]. */
static int64_t meet(const uint8_t *now, int64_t own, int64_t neurons, int64_t others, const int32_t *partners,
                    int32_t *running) {
    int64_t spikes = 0;
    for (int64_t i = 0; i < own; i++) {
        FOR_SPIKES(c, now + i * neurons, neurons) {
            add_row(running + i * others, partners + c * others, others);
            spikes++;
        }
    }
    return spikes * others;
}

static void mark_fired(const uint8_t *now, int64_t own, int64_t neurons, int32_t *state) {
    for (int64_t i = 0; i < own; i++) FOR_SPIKES(c, now + i * neurons, neurons) state[c * own + i] = -1;
}

static size_t relate_scratch(const relate_call *c) {
    return (size_t)(4 * c->rows * c->keys + c->neurons * (c->rows + c->keys)) * sizeof(int32_t);
}

static int relate_head(const void *argument, int64_t head, unsigned char *scratch) {
    const relate_call *c = argument;
    const int64_t pairs = c->rows * c->keys;
    /* A key's spike changes a column: those changes are kept transposed, and put together at the end. */
    int32_t *by_row = (int32_t *)scratch, *by_key = by_row + pairs, *row_sum = by_key + pairs;
    int32_t *key_sum = row_sum + pairs, *q_state = key_sum + pairs, *k_state = q_state + c->neurons * c->rows;
    memset(by_row, 0, (size_t)(4 * pairs) * sizeof *by_row);
    for (int64_t i = 0; i < c->neurons * (c->rows + c->keys); i++) q_state[i] = 1;
    int64_t crossed = 0;
    for (int64_t step = 0; step < c->steps; step++) {
        const uint8_t *q = c->q + (step * c->heads + head) * c->rows * c->neurons;
        const uint8_t *k = c->k + (step * c->heads + head) * c->keys * c->neurons;
        crossed += meet(q, c->rows, c->neurons, c->keys, k_state, by_row);
        mark_fired(q, c->rows, c->neurons, q_state);
        crossed += meet(k, c->keys, c->neurons, c->rows, q_state, by_key);
        mark_fired(k, c->keys, c->neurons, k_state);
        add_row(row_sum, by_row, pairs);
        add_row(key_sum, by_key, pairs);
    }
    add_times(row_sum, by_row, c->min_code - 1, pairs);
    add_times(key_sum, by_key, c->min_code - 1, pairs);
    int32_t *distance = c->distance + head * pairs;
    for (int64_t i = 0; i < c->rows; i++)
        for (int64_t j = 0; j < c->keys; j++)
            distance[i * c->keys + j] = row_sum[i * c->keys + j] + key_sum[j * c->rows + i];
    atomic_fetch_add(c->crossed, crossed);
    return LAPIS_OK;
}

int32_t lapis_spikes_relate(const uint8_t *q, const uint8_t *k, int64_t steps, int64_t heads, int64_t rows,
                            int64_t keys, int64_t neurons, int32_t min_code, int32_t *distance, int64_t *crossed,
                            int32_t threads) {
    if (!q || !k || !distance || !crossed || steps < 1 || heads < 1 || rows < 1 || keys < 1 || neurons < 1 ||
        min_code < 1)
        return LAPIS_BAD_ARGUMENT;
    atomic_int_fast64_t synapses = 0;
    const relate_call call = {q, k, steps, heads, rows, keys, neurons, min_code, distance, &synapses};
    int status = parallel_for(relate_head, &call, heads, threads, relate_scratch(&call));
    *crossed = atomic_load(&synapses);
    return status;
}

/* A = min(floor(u 2^-(32 - bits + e - gain) + 1/2), 2^bits - 1). */
static int32_t read_membrane(uint32_t u, int64_t e, int64_t gain, int32_t bits) {
    const uint64_t largest = (UINT64_C(1) << bits) - 1;
    int64_t shift = e - gain + MANTISSA_BITS - bits;
    shift = shift < 1 ? 1 : shift > MAX_SHIFT ? MAX_SHIFT : shift;
    const uint64_t read = (u + (UINT64_C(1) << (shift - 1))) >> shift;
    return (int32_t)(read < largest ? read : largest);
}

int32_t lapis_spikes_leak(const int32_t *distance, int64_t heads, int64_t rows, int64_t keys, const uint32_t *mantissa,
                          const int64_t *exponent, int64_t steps, int32_t bits, int32_t *affinity, int64_t *mass) {
    if (!distance || !mantissa || !exponent || !affinity || !mass || heads < 1 || rows < 1 || keys < 1)
        return LAPIS_BAD_ARGUMENT;
    if (bits < 1 || bits > MOST_AFFINITY_BITS) return LAPIS_BAD_ARGUMENT;
    for (int64_t i = 0; i < heads * rows; i++, distance += keys, affinity += keys) {
        const uint32_t *u = mantissa + i / rows * steps;
        const int64_t *e = exponent + i / rows * steps;
        int32_t first = distance[0], last = distance[0];
        for (int64_t j = 1; j < keys; j++) {
            first = distance[j] < first ? distance[j] : first;
            last = distance[j] > last ? distance[j] : last;
        }
        if (first < 0 || last >= steps) return LAPIS_BAD_DISTANCE;
        mass[i] = 0;
        /* The first pair of a row that reads sets the row's gain. */
        for (int64_t j = 0; j < keys; j++) {
            affinity[j] = read_membrane(u[distance[j]], e[distance[j]], e[first], bits);
            mass[i] += affinity[j];
        }
    }
    return LAPIS_OK;
}

typedef struct {
    const uint8_t *train;
    int64_t steps, heads, keys, neurons, rows, channels;
    const int32_t *affinity;
    int32_t min_code;
    int32_t *voltage;
    atomic_int_fast64_t *spikes;
} mix_call;

static int mix_head(const void *argument, int64_t head, unsigned char *scratch) {
    const mix_call *c = argument;
    const int64_t size = c->channels * c->rows;
    const int32_t *affinity = c->affinity + head * c->rows * c->keys;
    /* [keys, rows]: one spike of a key reaches every row. */
    int32_t *synapses = (int32_t *)scratch, *current = synapses + c->keys * c->rows,
            *voltage = c->voltage + head * size;
    int64_t spikes = 0;
    for (int64_t j = 0; j < c->keys; j++)
        for (int64_t i = 0; i < c->rows; i++) synapses[j * c->rows + i] = affinity[i * c->keys + j];
    memset(current, 0, (size_t)size * sizeof *current);
    memset(voltage, 0, (size_t)size * sizeof *voltage);
    for (int64_t step = 0; step < c->steps; step++) {
        const uint8_t *now = c->train + (step * c->heads + head) * c->keys * c->neurons;
        for (int64_t j = 0; j < c->keys; j++) {
            FOR_SPIKES(i, now + j * c->neurons, c->neurons) {
                const int on = i < c->channels;
                int32_t *target = current + (on ? i : i - c->channels) * c->rows;
                (on ? add_row : subtract_row)(target, synapses + j * c->rows, c->rows);
                spikes++;
            }
        }
        add_row(voltage, current, size);
    }
    add_times(voltage, current, c->min_code - 1, size);
    atomic_fetch_add(c->spikes, spikes);
    return LAPIS_OK;
}

int32_t lapis_spikes_mix(const uint8_t *train, int64_t steps, int64_t heads, int64_t keys, int64_t neurons,
                         const int32_t *affinity, int64_t rows, int64_t channels, int32_t min_code, int32_t *voltage,
                         int64_t *crossed, int32_t threads) {
    if (!train || !affinity || !voltage || !crossed || steps < 1 || heads < 1 || keys < 1 || rows < 1 || channels < 1)
        return LAPIS_BAD_ARGUMENT;
    if (min_code < 1 || (neurons != channels && neurons != 2 * channels)) return LAPIS_BAD_ARGUMENT;
    atomic_int_fast64_t spikes = 0;
    const mix_call call = {train, steps, heads, keys, neurons, rows, channels, affinity, min_code, voltage, &spikes};
    int status = parallel_for(mix_head, &call, heads, threads, (size_t)(rows * (keys + channels)) * sizeof(int32_t));
    *crossed = atomic_load(&spikes) * rows;
    return status;
}
