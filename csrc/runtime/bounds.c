/* Every bound that the arithmetic relies on, so that nothing overflows, divides by zero or becomes NaN. The rules are
 * those of lapis.deploy.network.check_network and of schema.inc; conditions on floats are computed in double. */
#include <math.h>

#include "packed.h"

/* The values that each tensor may hold, and the rule that others break; low > high: any. */
static const struct {
    int64_t low, high;
    int32_t rule;
} RANGES[] = {
#define TENSOR(index, name, kind, only, of_block, rank, first, second, low, high, rule) [index] = {low, high, rule},
#include "schema.inc"
};

static int64_t count_of(const tensor *t) {
    return t->shape[0] * (t->rank > 1 ? t->shape[1] : 1) * (t->rank > 2 ? t->shape[2] : 1);
}

/* The items of one block, `each` of them. */
static const float *floats_of(const packed *file, int index, int64_t block, int64_t each) {
    return (const float *)file->tensors[index].items + block * each;
}

static int32_t check_finite(const packed *file, lapis_error *error) {
    for (int i = 0; i < TENSORS; i++) {
        const tensor *t = &file->tensors[i];
        if (!t->name || t->kind != F32) continue;
        for (int64_t k = 0; k < count_of(t); k++)
            if (!isfinite(((const float *)t->items)[k])) return refuse(error, 37, "%s", t->name);
    }
    return LAPIS_OK;
}

/* An integer of a tensor whose values have a range. */
static int64_t integer_at(const tensor *t, int64_t i) {
    switch (t->kind) {
        case I64:
            return ((const int64_t *)t->items)[i];
        case U32:
            return ((const uint32_t *)t->items)[i];
        case I32:
            return ((const int32_t *)t->items)[i];
        case U16:
            return ((const uint16_t *)t->items)[i];
        case I16:
            return ((const int16_t *)t->items)[i];
        default:
            return ((const uint8_t *)t->items)[i];
    }
}

static int32_t check_ranges(const packed *file, lapis_error *error) {
    for (int i = 0; i < TENSORS; i++) {
        const tensor *t = &file->tensors[i];
        if (!t->name || RANGES[i].low > RANGES[i].high) continue;
        for (int64_t k = 0; k < count_of(t); k++) {
            const int64_t value = integer_at(t, k);
            if (value < RANGES[i].low || value > RANGES[i].high)
                return refuse(error, RANGES[i].rule, "%s, item %lld", t->name, (long long)k);
        }
    }
    return LAPIS_OK;
}

static int32_t check_patches(const packed *file, lapis_error *error) {
    const int16_t *weight = file->tensors[PATCH_WEIGHT].items;
    const int64_t inputs = file->tensors[PATCH_WEIGHT].shape[1];
    for (int64_t o = 0; o < file->header.width; o++) {
        int64_t sum = 0;
        for (int64_t i = 0; i < inputs; i++)
            sum += weight[o * inputs + i] < 0 ? -weight[o * inputs + i] : weight[o * inputs + i];
        if (255 * sum > INT32_MAX) return refuse(error, 51, "patch_weight, channel %lld", (long long)o);
    }
    return LAPIS_OK;
}

static int32_t check_norm(const packed *file, int gain, int64_t block, lapis_error *error) {
    const int64_t d = file->header.width;
    const float *gains = floats_of(file, gain, block, d), *shifts = floats_of(file, gain + 1, block, d);
    double largest_gain = 0, largest_shift = 0;
    for (int64_t c = 0; c < d; c++) {
        largest_gain = fmax(largest_gain, fabs((double)gains[c]));
        largest_shift = fmax(largest_shift, fabs((double)shifts[c]));
    }
    /* A standardised channel is at most sqrt(D). */
    if (largest_gain * sqrt((double)d) + largest_shift > MAX_MAGNITUDE)
        return refuse(error, 44, "%s, block %lld", file->tensors[gain].name, (long long)block);
    return LAPIS_OK;
}

/* The sum of the sizes of a row's weights; -1 if one has more bits than it may. */
static double row_size(const tensor *t, int64_t row, int64_t bits) {
    const int8_t *weight = (const int8_t *)t->items + row * t->columns;
    const int32_t largest = (1 << (bits - 1)) - 1;
    int32_t sum = 0, most = 0;
    for (int64_t i = 0; i < t->columns; i++) {
        const int32_t size = weight[i] < 0 ? -weight[i] : weight[i];
        sum += size;
        most = size > most ? size : most;
    }
    return most > largest ? -1 : sum;
}

static int32_t check_layer(const packed *file, int weight, int64_t block, int adds, lapis_error *error) {
    const packed_header *h = &file->header;
    const tensor *t = &file->tensors[weight];
    const int64_t rows = t->shape[1];
    const float *scale = floats_of(file, weight + 1, block, rows), *shift = floats_of(file, weight + 2, block, rows);
    for (int64_t o = 0; o < rows; o++) {
        const double size = row_size(t, block * rows + o, h->weight_bits), reach = size * (double)h->window;
        const double limit = adds ? DELTA_LIMIT : MAX_MAGNITUDE;
        int32_t rule = 0;
        if (size < 0)
            rule = 40;
        else if (reach >= EXACT_FLOAT32)
            rule = 41;
        else if (!adds && !(scale[o] > 0))
            rule = 42;
        else if (reach * fabs((double)scale[o]) + fabs((double)shift[o]) >= limit)
            rule = 43;
        if (rule) return refuse(error, rule, "%s, block %lld, row %lld", t->name, (long long)block, (long long)o);
    }
    return LAPIS_OK;
}

static int32_t check_affinities(const packed *file, int64_t block, lapis_error *error) {
    const int64_t size = file->header.code_distances;
    for (int64_t head = block * file->header.heads; head < (block + 1) * file->header.heads; head++) {
        const uint32_t *u = (const uint32_t *)file->tensors[AFFINITY_MANTISSA].items + head * size;
        const int32_t *e = (const int32_t *)file->tensors[AFFINITY_EXPONENT].items + head * size;
        for (int64_t i = 0; i < size; i++) {
            if (i && (e[i] < e[i - 1] || (e[i] == e[i - 1] && u[i] > u[i - 1])))
                return refuse(error, 59, "block %lld, distance %lld", (long long)block, (long long)i);
        }
    }
    return LAPIS_OK;
}

static int32_t check_points(const packed *file, int64_t block, lapis_error *error) {
    const int64_t levels = file->tensors[RISE].shape[1];
    const double scale = *floats_of(file, READOUT_SCALE, block, 1), shift = *floats_of(file, READOUT_SHIFT, block, 1);
    const float *rise = floats_of(file, RISE, block, levels), *fall = floats_of(file, FALL, block, levels);
    if (!(scale > 0 && scale < MAX_MAGNITUDE && fabs(shift) < MAX_MAGNITUDE))
        return refuse(error, 48, "block %lld", (long long)block);
    for (int64_t m = 0; m < levels; m++)
        if (fall[m] > rise[m] || (m && (rise[m] < rise[m - 1] || fall[m] > fall[m - 1])))
            return refuse(error, 49, "block %lld, level %lld", (long long)block, (long long)m);
    return LAPIS_OK;
}

static int32_t check_block(const packed *file, int64_t block, lapis_error *error) {
    int32_t status = check_norm(file, ATTENTION_NORM_GAIN, block, error);
    if (!status) status = check_norm(file, MLP_NORM_GAIN, block, error);
    if (!status) status = check_layer(file, QKV_WEIGHT, block, 0, error);
    if (!status) status = check_layer(file, PROJ_WEIGHT, block, 1, error);
    if (!status) status = check_layer(file, FC1_WEIGHT, block, 0, error);
    if (!status) status = check_layer(file, FC2_WEIGHT, block, 1, error);
    if (!status) status = check_points(file, block, error);
    if (status) return status;
    return file->header.relation == RELATION_TABLE ? check_affinities(file, block, error) : LAPIS_OK;
}

int32_t check_tensors(const packed *file, lapis_error *error) {
    int32_t status = check_finite(file, error);
    if (!status) status = check_ranges(file, error);
    if (!status) status = check_patches(file, error);
    for (int64_t block = 0; !status && block < file->header.depth; block++) status = check_block(file, block, error);
    return status;
}
