/* Entry points: check the arguments, cut the work into tasks, hand them to the selected instruction set's kernels. */
#include <math.h>
#include <stdlib.h>

#include "isa.h"
#include "limits.h"
#include "parallel.h"

int32_t lapis_abi(void) { return LAPIS_ABI; }

static const kernel_functions *kernels(void) { return current_isa()->kernels; }

/* Below this many byte operations a second thread costs more than it brings. */
static const double WORTH_A_THREAD = 1 << 20;

static int32_t worthwhile(double operations, int32_t threads) {
    double most = operations / WORTH_A_THREAD;
    return most < threads ? (most < 1 ? 1 : (int32_t)most) : threads;
}

/* Rows of one (b, h) are cut only where there are too few (b, h) to keep threads busy: each part repacks the keys. */
static int64_t parts_for(int64_t heads, int64_t rows, int32_t threads) {
    if (threads <= 1 || heads >= 4 * (int64_t)threads) return 1;
    int64_t parts = (4 * (int64_t)threads + heads - 1) / heads, most = (rows + 31) / 32;
    return parts < most ? parts : most;
}

static int bad_pairs(const lapis_pairs *p, int32_t last_relation) {
    if (!p || p->batch < 0 || p->heads < 0 || p->rows < 0 || p->keys < 0 || p->channels < 1) return 1;
    if (p->channels > 1 << 20 || p->rows > INT32_MAX || p->keys > 1 << 22) return 1;
    return p->code_type < LAPIS_CODES_U8 || p->code_type > LAPIS_CODES_F32 || p->relation < LAPIS_L1 ||
           p->relation > last_relation;
}

static double pair_operations(const lapis_pairs *p) {
    return (double)p->batch * p->heads * p->rows * p->keys * p->channels;
}

/* Which (b, h) and which rows a task number stands for. */
typedef struct {
    const kernel_functions *kernels;
    const void *call;
    const lapis_pairs *p;
    int64_t parts;
} pair_job;

typedef struct {
    int64_t b, h, part;
} place;

static place place_of(const pair_job *j, int64_t task) {
    int64_t bh = task / j->parts;
    return (place){bh / j->p->heads, bh % j->p->heads, task % j->parts};
}

static int64_t cut(int64_t rows, int64_t part, int64_t parts) {
    /* On multiples of 12, the row tile, so that cutting makes no ragged tiles. */
    int64_t at_row = (rows * part / parts + 11) / 12 * 12;
    return part == parts || at_row > rows ? rows : at_row;
}

static head_rows rows_of(const pair_job *j, int64_t task) {
    place w = place_of(j, task);
    return (head_rows){w.b, w.h, cut(j->p->rows, w.part, j->parts), cut(j->p->rows, w.part + 1, j->parts)};
}

static int run_distance(const void *job, int64_t task, unsigned char *scratch) {
    const pair_job *j = job;
    return j->kernels->distance(j->call, rows_of(j, task), scratch);
}

int32_t lapis_distance(const lapis_pairs *pairs, const void *q, const void *k, void *out, int32_t out_type,
                       int32_t threads) {
    if (bad_pairs(pairs, LAPIS_HAMMING) || out_type < LAPIS_OUT_I32 || out_type > LAPIS_OUT_F32)
        return LAPIS_BAD_ARGUMENT;
    if (pair_operations(pairs) == 0) return LAPIS_OK;
    if (!q || !k || !out) return LAPIS_BAD_ARGUMENT;
    threads = worthwhile(pair_operations(pairs), threads);
    distance_call call = {*pairs, q, k, out, out_type};
    int64_t heads = pairs->batch * pairs->heads;
    pair_job job = {kernels(), &call, pairs, parts_for(heads, pairs->rows, threads)};
    return parallel_for(run_distance, &job, heads * job.parts, threads, job.kernels->distance_scratch(pairs));
}

static int run_gradient(const void *job, int64_t task, unsigned char *scratch) {
    const pair_job *j = job;
    const gradient_call *call = j->call;
    place w = place_of(j, task);
    span rows[SIDES] = {{0, 0}, {0, 0}};
    for (int side = 0; side < SIDES; side++) {
        int64_t n = side == SIDE_Q ? j->p->rows : j->p->keys;
        if (side == SIDE_Q ? call->grad_q : call->grad_k)
            rows[side] = (span){cut(n, w.part, j->parts), cut(n, w.part + 1, j->parts)};
    }
    return j->kernels->gradient(call, w.b, w.h, rows, scratch);
}

int32_t lapis_distance_backward(const lapis_pairs *pairs, const void *q, const void *k, const float *grad,
                                float *grad_q, float *grad_k, int32_t threads) {
    if (bad_pairs(pairs, LAPIS_HAMMING)) return LAPIS_BAD_ARGUMENT;
    int64_t heads = pairs->batch * pairs->heads;
    if (pairs->rows == 0 || pairs->keys == 0) {
        for (int64_t i = 0; grad_q && i < heads * pairs->rows * pairs->channels; i++) grad_q[i] = 0;
        for (int64_t i = 0; grad_k && i < heads * pairs->keys * pairs->channels; i++) grad_k[i] = 0;
        return LAPIS_OK;
    }
    if (heads == 0) return LAPIS_OK;
    if (!q || !k || !grad) return LAPIS_BAD_ARGUMENT;
    threads = worthwhile(4 * pair_operations(pairs), threads);
    gradient_call call = {*pairs, q, k, grad, grad_q, grad_k};
    int64_t fewest = pairs->rows < pairs->keys ? pairs->rows : pairs->keys;
    pair_job job = {kernels(), &call, pairs, parts_for(heads, fewest, threads)};
    return parallel_for(run_gradient, &job, heads * job.parts, threads, job.kernels->gradient_scratch(pairs));
}

static int run_attention(const void *job, int64_t task, unsigned char *scratch) {
    const pair_job *j = job;
    return j->kernels->attention(j->call, rows_of(j, task), scratch);
}

int32_t lapis_attention(const lapis_pairs *pairs, const void *q, const void *k, const float *v, const int64_t *v_stride,
                        const float *table, const double *gain, int64_t size, const int32_t *delay, int32_t row_scale,
                        float *y, const int64_t *y_stride, int32_t threads) {
    if (bad_pairs(pairs, LAPIS_HAMMING) || pairs->keys < 1 || size < 1 || size > INT32_MAX) return LAPIS_BAD_ARGUMENT;
    if (row_scale < LAPIS_EXACT || row_scale > LAPIS_POW2) return LAPIS_BAD_ARGUMENT;
    if (pair_operations(pairs) == 0) return LAPIS_OK;
    if (!q || !k || !v || !v_stride || !table || !y || !y_stride || (row_scale == LAPIS_POW2 && !gain))
        return LAPIS_BAD_ARGUMENT;
    threads = worthwhile(4 * pair_operations(pairs), threads);
    attention_call call = {.p = *pairs,
                           .q = q,
                           .k = k,
                           .v = v,
                           .table = table,
                           .gain = gain,
                           .size = size,
                           .delay = delay,
                           .row_scale = row_scale,
                           .y = y};
    for (int i = 0; i < 3; i++) call.v_stride[i] = v_stride[i], call.y_stride[i] = y_stride[i];
    int64_t heads = pairs->batch * pairs->heads;
    pair_job job = {kernels(), &call, pairs, parts_for(heads, pairs->rows, threads)};
    return parallel_for(run_attention, &job, heads * job.parts, threads, job.kernels->attention_scratch(pairs));
}

static int run_integer_attention(const void *job, int64_t task, unsigned char *scratch) {
    const pair_job *j = job;
    return j->kernels->integer_attention(j->call, rows_of(j, task), scratch);
}

int32_t lapis_integer_attention(const lapis_pairs *pairs, const uint8_t *q, const uint8_t *k, const uint8_t *v,
                                const int64_t *v_stride, int32_t v_max, const uint16_t *table,
                                const uint16_t *row_exponent, int64_t exponents, int64_t size, const int32_t *delay,
                                int32_t *acc, const int64_t *acc_stride, uint32_t *zint, int32_t threads) {
    if (bad_pairs(pairs, LAPIS_DOT) || pairs->code_type != LAPIS_CODES_U8 || pairs->keys < 1) return LAPIS_BAD_ARGUMENT;
    /* Whatever the codes are, products and their differences then fit 32 bits. */
    if (pairs->relation == LAPIS_DOT &&
        (delay || pairs->channels > 1 << 14 || pairs->zero_code < 0 || pairs->zero_code > 127))
        return LAPIS_BAD_ARGUMENT;
    if (size < 1 || size > INT32_MAX || exponents < 1 || v_max < 0 || v_max > 255) return LAPIS_BAD_ARGUMENT;
    if (pairs->keys * (int64_t)AFFINITY_MAX * (v_max ? v_max : 1) > INT32_MAX) return LAPIS_WOULD_OVERFLOW;
    if (pair_operations(pairs) == 0) return LAPIS_OK;
    if (!q || !k || !v || !v_stride || !table || !row_exponent || !acc || !acc_stride || !zint)
        return LAPIS_BAD_ARGUMENT;
    threads = worthwhile(3 * pair_operations(pairs), threads);
    integer_attention_call call = {.p = *pairs,
                                   .q = q,
                                   .k = k,
                                   .v = v,
                                   .table = table,
                                   .row_exponent = row_exponent,
                                   .exponents = exponents,
                                   .size = size,
                                   .delay = delay,
                                   .acc = acc,
                                   .zint = zint};
    for (int i = 0; i < 3; i++) call.v_stride[i] = v_stride[i], call.acc_stride[i] = acc_stride[i];
    int64_t heads = pairs->batch * pairs->heads;
    pair_job job = {kernels(), &call, pairs, parts_for(heads, pairs->rows, threads)};
    return parallel_for(run_integer_attention, &job, heads * job.parts, threads,
                        job.kernels->integer_attention_scratch(pairs));
}

/* A chunk of a row: sums are kept per chunk and added in order, whoever computed them. */
enum { LSQ_CHUNK = 16384 };

/* Codes from low to high; those smaller than `min_code` are 0. */
typedef struct {
    float low, high, min_code;
} lsq_range;

typedef lsq_sums (*lsq_backward)(const float *, const float *, int64_t, lsq_scale, float *);

typedef struct {
    const kernel_functions *kernels;
    const float *x, *grad, *step, *offset;
    int64_t columns, chunks, group;
    int64_t rows;
    int32_t per_row;
    lsq_range range;
    float *value, *codes, *grad_x;
    lsq_backward backward;
    lsq_sums *sums;
} lsq_job;

static int run_lsq(const void *job, int64_t task, unsigned char *scratch) {
    (void)scratch;
    const lsq_job *j = job;
    int64_t last = (task + 1) * j->group, total = j->rows * j->chunks;
    for (int64_t i = task * j->group; i < last && i < total; i++) {
        int64_t row = i / j->chunks, from = i % j->chunks * LSQ_CHUNK, start = row * j->columns + from;
        int64_t n = j->columns - from < LSQ_CHUNK ? j->columns - from : LSQ_CHUNK;
        lsq_scale s = {j->step[j->per_row ? row : 0],
                       j->offset ? *j->offset : 0,
                       j->range.low,
                       j->range.high,
                       j->range.min_code,
                       j->offset != NULL};
        if (j->backward)
            j->sums[i] = j->backward(j->x + start, j->grad + start, n, s, j->grad_x ? j->grad_x + start : NULL);
        else
            j->kernels->lsq(j->x + start, n, s, j->value ? j->value + start : NULL, j->codes ? j->codes + start : NULL);
    }
    return LAPIS_OK;
}

static int lsq_run(lsq_job *j, int32_t threads) {
    j->chunks = (j->columns + LSQ_CHUNK - 1) / LSQ_CHUNK;
    /* Short rows travel together, so that a task is worth its atomic. */
    j->group = LSQ_CHUNK / (j->columns < LSQ_CHUNK ? j->columns : LSQ_CHUNK);
    int64_t tasks = (j->rows * j->chunks + j->group - 1) / j->group;
    return parallel_for(run_lsq, j, tasks, worthwhile(8.0 * (double)j->rows * (double)j->columns, threads), 0);
}

/* What forward and backward have in common. */
static lsq_job lsq_job_of(const float *x, int64_t rows, int64_t columns, const float *step, int32_t per_row,
                          const float *offset, lsq_range range) {
    return (lsq_job){.kernels = kernels(),
                     .x = x,
                     .step = step,
                     .offset = offset,
                     .columns = columns,
                     .rows = rows,
                     .per_row = per_row,
                     .range = range};
}

int32_t lapis_lsq(const float *x, int64_t rows, int64_t columns, const float *step, int32_t per_row,
                  const float *offset, float low, float high, float min_code, float *value, float *codes,
                  int32_t threads) {
    if (rows < 0 || columns < 0 || !step) return LAPIS_BAD_ARGUMENT;
    if (rows == 0 || columns == 0) return LAPIS_OK;
    if (!x) return LAPIS_BAD_ARGUMENT;
    lsq_job j = lsq_job_of(x, rows, columns, step, per_row, offset, (lsq_range){low, high, min_code});
    j.value = value, j.codes = codes;
    return lsq_run(&j, threads);
}

static int32_t lsq_gradient(lsq_job j, double *grad_step, double *grad_offset, int32_t threads) {
    if (j.rows < 0 || j.columns < 0 || !j.step || !grad_step) return LAPIS_BAD_ARGUMENT;
    for (int64_t i = 0; i < (j.per_row ? j.rows : 1); i++) grad_step[i] = 0;
    if (grad_offset) *grad_offset = 0;
    if (j.rows == 0 || j.columns == 0) return LAPIS_OK;
    if (!j.x || !j.grad) return LAPIS_BAD_ARGUMENT;
    int64_t chunks = j.rows * ((j.columns + LSQ_CHUNK - 1) / LSQ_CHUNK);
    j.sums = malloc((size_t)chunks * sizeof *j.sums);
    if (!j.sums) return LAPIS_OUT_OF_MEMORY;
    int status = lsq_run(&j, threads);
    for (int64_t i = 0; !status && i < chunks; i++) {
        grad_step[j.per_row ? i / j.chunks : 0] += j.sums[i].step;
        if (grad_offset) *grad_offset += j.sums[i].offset;
    }
    free(j.sums);
    return status;
}

int32_t lapis_lsq_value_backward(const float *x, const float *grad, int64_t rows, int64_t columns, const float *step,
                                 int32_t per_row, const float *offset, float low, float high, float min_code,
                                 float *grad_x, double *grad_step, double *grad_offset, int32_t threads) {
    lsq_job j = lsq_job_of(x, rows, columns, step, per_row, offset, (lsq_range){low, high, min_code});
    j.grad = grad, j.grad_x = grad_x, j.backward = j.kernels->lsq_value_backward;
    return lsq_gradient(j, grad_step, grad_offset, threads);
}

int32_t lapis_lsq_codes_backward(const float *x, const float *grad, int64_t rows, int64_t columns, const float *step,
                                 int32_t per_row, const float *offset, float low, float high, float min_code,
                                 float *grad_x, double *grad_step, double *grad_offset, int32_t threads) {
    lsq_job j = lsq_job_of(x, rows, columns, step, per_row, offset, (lsq_range){low, high, min_code});
    j.grad = grad, j.grad_x = grad_x, j.backward = j.kernels->lsq_codes_backward;
    return lsq_gradient(j, grad_step, grad_offset, threads);
}
