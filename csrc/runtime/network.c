/* The public functions of lapis.h. */
#include "network.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../system.h"

/* Pictures that are resized at once, and then run. */
enum { LENGTH_BYTES = 8, MAX_THREADS = 256, AT_ONCE = 16, LOGIT_BITS = 10 };

/* A packed file as it is read: from memory, or piece by piece. */
typedef struct {
    FILE *file;
    const unsigned char *data; /* where it is in memory */
    int64_t bytes;
    unsigned char *header, *tensors; /* pieces that were read from a file */
} source;

static int32_t unreadable(lapis_error *error) {
    return report(error, LAPIS_CANNOT_READ, "cannot read the file: %s", strerror(errno ? errno : EIO));
}

/* The next bytes of a source, in memory that lives as long as it. */
static int32_t take(source *s, int64_t from, int64_t count, unsigned char **kept, const unsigned char **out,
                    lapis_error *error) {
    if (!s->file) return *out = s->data + from, LAPIS_OK;
    if ((uint64_t)count > SIZE_MAX || !(*kept = malloc(count ? (size_t)count : 1))) return no_memory(error);
    *out = *kept;
    errno = 0;
    if (fread(*kept, 1, (size_t)count, s->file) == (size_t)count) return LAPIS_OK;
    return ferror(s->file) ? unreadable(error) : refuse(error, 36, "%lld bytes", (long long)count);
}

static int32_t read_length(source *s, int64_t *length, lapis_error *error) {
    unsigned char read[LENGTH_BYTES];
    const unsigned char *prefix = s->file ? read : s->data;
    uint64_t claimed = 0;
    if (s->bytes < LENGTH_BYTES) return refuse(error, 1, "%lld bytes", (long long)s->bytes);
    errno = 0;
    if (s->file && fread(read, 1, LENGTH_BYTES, s->file) != LENGTH_BYTES) return unreadable(error);
    for (int i = LENGTH_BYTES; i--;) claimed = claimed << 8 | prefix[i];
    if (claimed > MAX_HEADER || claimed > (uint64_t)(s->bytes - LENGTH_BYTES))
        return refuse(error, 2, "a header of %llu bytes in a file of %lld", (unsigned long long)claimed,
                      (long long)s->bytes);
    *length = (int64_t)claimed;
    return LAPIS_OK;
}

static int32_t read_packed(source *s, packed *file, lapis_error *error) {
    int64_t length = 0;
    const unsigned char *text, *data;
    int32_t status = read_length(s, &length, error);
    if (!status) status = take(s, LENGTH_BYTES, length, &s->header, &text, error);
    const int64_t start = LENGTH_BYTES + length;
    if (!status) status = read_header((const char *)text, (size_t)length, s->bytes - start, file, error);
    if (!status) status = take(s, start, s->bytes - start, &s->tensors, &data, error);
    if (!status && s->file && fgetc(s->file) != EOF) status = refuse(error, 36, "more bytes follow");
    if (!status) status = read_tensors(data, file, error);
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
                         .low_attention_in = h->low[MODE_ATTENTION],
                         .low_qk = h->low[MODE_QK],
                         .low_v = h->low[MODE_V],
                         .low_readout = h->low[MODE_READOUT],
                         .low_mlp_in = h->low[MODE_MLP],
                         .low_mlp_hidden = h->low[MODE_HIDDEN]};
}

static int32_t open_source(source *s, int32_t threads, int32_t flags, lapis_network **network, lapis_error *error) {
    if (threads < 1 || threads > MAX_THREADS || (flags & ~LAPIS_LOW_MEMORY))
        return report(error, LAPIS_BAD_ARGUMENT, "threads=%d must be 1 to %d, and flags=%d 0 or 1", (int)threads,
                      MAX_THREADS, (int)flags);
    lapis_network *made = calloc(1, sizeof *made);
    packed *file = calloc(1, sizeof *file);
    int32_t status = made && file ? read_packed(s, file, error) : no_memory(error);
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
    free(s->header);
    free(s->tensors);
    return status;
}

int32_t lapis_check_memory(const void *data, size_t bytes, lapis_error *error) {
    source s = {.data = data, .bytes = (int64_t)bytes};
    packed *file = calloc(1, sizeof *file);
    int32_t status = file ? read_packed(&s, file, error) : no_memory(error);
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
    source s = {.data = data, .bytes = (int64_t)bytes};
    return open_source(&s, threads, flags, network, error);
}

int32_t lapis_open(const char *path, int32_t threads, int32_t flags, lapis_network **network, lapis_error *error) {
    lapis_error ignored;
    error = error ? error : &ignored;
    if (network) *network = NULL;
    if (!network || !path) return report(error, LAPIS_BAD_ARGUMENT, "path or network is NULL");
    /* A pipe would be waited for, and a device may have no end. */
    if (system_is_special(path))
        return report(error, LAPIS_CANNOT_READ, "cannot read the file: it is not a regular file");
    errno = 0;
    source s = {.file = fopen(path, "rb")};
    if (!s.file) return unreadable(error);
    /* A folder opens on some systems, and then has no size or cannot be read. */
    int32_t status = LAPIS_OK;
    if (fseek(s.file, 0, SEEK_END) || (s.bytes = ftell(s.file)) < 0 || fseek(s.file, 0, SEEK_SET))
        status = unreadable(error);
    if (!status) status = open_source(&s, threads, flags, network, error);
    fclose(s.file);
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
    if (height == size && width == size && network->header.crop == 1)
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
