/* The public functions of lapis.h. */
#include "network.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../system.h"

/* Pictures that are resized at once, and then run. */
enum { MAX_THREADS = 256, AT_ONCE = 16, LOGIT_BITS = POOLED_BITS };

/* Check the bytes of a packed file and take its tensors from them. */
static int32_t read_packed(const unsigned char *data, int64_t bytes, packed *file, lapis_error *error) {
    uint64_t length = 0;
    if (bytes < LENGTH_BYTES) return refuse(error, 1, "%lld bytes", (long long)bytes);
    for (int i = LENGTH_BYTES; i--;) length = length << 8 | data[i];
    if (length > MAX_HEADER || length > (uint64_t)(bytes - LENGTH_BYTES))
        return refuse(error, 2, "a header of %llu bytes in a file of %lld", (unsigned long long)length,
                      (long long)bytes);
    const int64_t start = LENGTH_BYTES + (int64_t)length;
    int32_t status = read_header((const char *)data + LENGTH_BYTES, (size_t)length, bytes - start, file, error);
    if (!status) status = read_tensors(data + start, file, error);
    return status ? status : check_tensors(file, error);
}

static lapis_sizes sizes_of(const packed_header *h) {
    return (lapis_sizes){.image_size = h->image_size,
                         .patch_size = h->patch_size,
                         .tokens = h->tokens,
                         .classes = h->classes,
                         .width = h->width,
                         .depth = h->depth,
                         .heads = h->heads,
                         .hidden = h->hidden,
                         .window = (int32_t)h->window,
                         .head_exponent = (int32_t)h->head_exponent,
                         .low_attention_in = h->low[AT_ATTENTION_IN],
                         .low_qk = h->low[AT_QK],
                         .low_v = h->low[AT_V],
                         .low_readout = h->low[AT_READOUT],
                         .low_mlp_in = h->low[AT_MLP_IN],
                         .low_mlp_hidden = h->low[AT_MLP_HIDDEN]};
}

int32_t lapis_check_memory(const void *data, size_t bytes, lapis_error *error) {
    packed *file = calloc(1, sizeof *file);
    int32_t status = file ? read_packed(data, (int64_t)bytes, file, error) : no_memory(error);
    if (file) free_packed(file);
    free(file);
    return status;
}

int32_t lapis_open_memory(const void *data, size_t bytes, int32_t threads, int32_t flags, lapis_network **network,
                          lapis_error *error) {
    lapis_error ignored;
    error = error ? error : &ignored;
    if (network) *network = NULL;
    if (!network || !data) return report(error, LAPIS_BAD_ARGUMENT, "data or network is NULL");
    if (threads < 1 || threads > MAX_THREADS || (flags & ~LAPIS_LOW_MEMORY))
        return report(error, LAPIS_BAD_ARGUMENT, "threads=%d must be 1 to %d, and flags=%d 0 or 1", (int)threads,
                      MAX_THREADS, (int)flags);
    lapis_network *made = calloc(1, sizeof *made);
    packed *file = calloc(1, sizeof *file);
    int32_t status = made && file ? read_packed(data, (int64_t)bytes, file, error) : no_memory(error);
    if (!status) status = make_engine(file, threads, flags & LAPIS_LOW_MEMORY, &made->engine, error);
    if (!status) {
        made->header = file->header;
        made->sizes = sizes_of(&file->header);
        made->names = file->names;
        made->starts = file->starts;
        file->names = NULL;
        file->starts = NULL;
        *network = made;
    } else {
        free(made);
    }
    if (file) free_packed(file);
    free(file);
    return status;
}

static int32_t unreadable(lapis_error *error) {
    return report(error, LAPIS_CANNOT_READ, "cannot read the file: %s", strerror(errno ? errno : EIO));
}

/* All bytes of a file, in memory of the caller's to free; NULL with an error. */
static unsigned char *read_file(const char *path, size_t *bytes, lapis_error *error) {
    errno = 0;
    FILE *file = fopen(path, "rb");
    long size = 0;
    unsigned char *data = NULL;
    if (!file) return unreadable(error), NULL;
    /* A folder opens on some systems, and then cannot be read. */
    if ((getc(file) == EOF && ferror(file)) || fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0 ||
        fseek(file, 0, SEEK_SET)) {
        unreadable(error);
    } else if ((uint64_t)size > SIZE_MAX || !(data = malloc(size ? (size_t)size : 1))) {
        no_memory(error);
    } else {
        *bytes = fread(data, 1, (size_t)size, file);
        if (ferror(file)) {
            unreadable(error);
            free(data);
            data = NULL;
        }
    }
    fclose(file);
    return data;
}

int32_t lapis_open(const char *path, int32_t threads, int32_t flags, lapis_network **network, lapis_error *error) {
    lapis_error ignored;
    error = error ? error : &ignored;
    if (network) *network = NULL;
    if (!network || !path) return report(error, LAPIS_BAD_ARGUMENT, "path or network is NULL");
    /* A pipe would be waited for, and a device may have no end. */
    if (system_is_special(path))
        return report(error, LAPIS_CANNOT_READ, "cannot read the file: it is not a regular file");
    size_t bytes = 0;
    unsigned char *data = read_file(path, &bytes, error);
    if (!data) return error->status;
    int32_t status = lapis_open_memory(data, bytes, threads, flags, network, error);
    free(data);
    return status;
}

void lapis_close(lapis_network *network) {
    if (!network) return;
    lapis_engine_destroy(network->engine);
    free(network->names);
    free(network->starts);
    free(network);
}

lapis_engine *lapis_network_engine(lapis_network *network) { return network->engine; }

const lapis_sizes *lapis_sizes_of(const lapis_network *network) { return &network->sizes; }

int64_t lapis_classes(const lapis_network *network) { return network->sizes.classes; }

const char *lapis_class_name(const lapis_network *network, int64_t index) {
    if (!network->starts || index < 0 || index >= network->sizes.classes) return NULL;
    return network->names + network->starts[index];
}

int64_t lapis_trace_bytes(const lapis_network *network) {
    const lapis_sizes *s = &network->sizes;
    return s->depth * s->tokens * ((LAPIS_POINTS - 1) * s->width + s->hidden);
}

int32_t lapis_prepare(const lapis_network *network, const uint8_t *pixels, int64_t height, int64_t width,
                      uint8_t *prepared, lapis_error *error) {
    lapis_error ignored;
    error = error ? error : &ignored;
    if (!network || !pixels || !prepared) return report(error, LAPIS_BAD_ARGUMENT, "network or picture is NULL");
    return resize_picture(&network->header, pixels, height, width, prepared, error);
}

static int32_t run_prepared(lapis_network *network, const uint8_t *pixels, int64_t batch, int64_t *logits,
                            int8_t *const *trace, lapis_error *error) {
    int32_t status = lapis_engine_run(network->engine, pixels, batch, logits, trace, NULL);
    return status ? report(error, (lapis_status)status, "the engine could not run this batch") : LAPIS_OK;
}

static int32_t run_batch(lapis_network *network, const uint8_t *pixels, int64_t batch, int64_t height, int64_t width,
                         int64_t *logits, int8_t *const *trace, lapis_error *error) {
    if (!network || !pixels || !logits || batch < 1)
        return report(error, LAPIS_BAD_ARGUMENT, "network, pixels or logits is NULL, or there is no picture");
    const int64_t size = network->sizes.image_size, bytes = size * size * 3;
    if (height == size && width == size && network->header.crop[0] == 1)
        return run_prepared(network, pixels, batch, logits, trace, error);
    const int64_t most = batch < AT_ONCE ? batch : AT_ONCE;
    uint8_t *prepared = malloc((size_t)(most * bytes));
    int32_t status = prepared ? LAPIS_OK : no_memory(error);
    for (int64_t first = 0; !status && first < batch; first += most) {
        const int64_t count = batch - first < most ? batch - first : most;
        for (int64_t i = 0; !status && i < count; i++)
            status = resize_picture(&network->header, pixels + (first + i) * height * width * 3, height, width,
                                    prepared + i * bytes, error);
        if (!status)
            status = run_prepared(network, prepared, count, logits + first * network->sizes.classes, trace, error);
    }
    free(prepared);
    return status;
}

int32_t lapis_run(lapis_network *network, const uint8_t *pixels, int64_t batch, int64_t height, int64_t width,
                  int64_t *logits, lapis_error *error) {
    lapis_error ignored;
    return run_batch(network, pixels, batch, height, width, logits, NULL, error ? error : &ignored);
}

int32_t lapis_watch(lapis_network *network, const uint8_t *pixels, int64_t height, int64_t width, int64_t *logits,
                    int8_t *codes, lapis_error *error) {
    lapis_error ignored;
    error = error ? error : &ignored;
    if (!network || !codes) return report(error, LAPIS_BAD_ARGUMENT, "network or codes is NULL");
    const lapis_sizes *s = &network->sizes;
    int8_t **trace = malloc((size_t)(s->depth * LAPIS_POINTS) * sizeof *trace);
    if (!trace) return no_memory(error);
    for (int64_t i = 0; i < s->depth * LAPIS_POINTS; i++) {
        trace[i] = codes;
        codes += s->tokens * (i % LAPIS_POINTS == LAPIS_AT_HIDDEN ? s->hidden : s->width);
    }
    int32_t status = run_batch(network, pixels, 1, height, width, logits, trace, error);
    free(trace);
    return status;
}

float lapis_real(const lapis_network *network, int64_t logit) {
    return (float)ldexp((double)logit, -(LOGIT_BITS + network->sizes.head_exponent));
}

int64_t lapis_best(const lapis_network *network, const int64_t *logits, int64_t count, int64_t *classes) {
    int64_t found = 0;
    for (int64_t i = 0; i < network->sizes.classes && count > 0; i++) {
        int64_t place = found;
        while (place > 0 && lapis_real(network, logits[i]) > lapis_real(network, logits[classes[place - 1]])) place--;
        if (place == count) continue;
        found += found < count;
        memmove(classes + place + 1, classes + place, (size_t)(found - 1 - place) * sizeof *classes);
        classes[place] = i;
    }
    return found;
}
