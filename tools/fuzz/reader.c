/* A coverage-guided fuzzer (libFuzzer) over the C reader, built by `make reader`.
 *
 * A file must be refused by a rule, or be a network that opens and answers a picture. Sanitizers stop at anything else
 * that the code does, libFuzzer at a crash, a leak or a wait. */
#include <stdlib.h>
#include <string.h>

#include "runtime/network.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A mutated file may be valid and large; those are only checked. */
enum { LARGEST_TOKENS = 64, LARGEST_WIDTH = 64, SIDE = 5, MAX_NAME_BYTES = 4 * MAX_CLASS_NAME };

static void answer(const uint8_t *data, size_t size) {
    static const uint8_t picture[SIDE * (SIDE + 2) * 3] = {255, 0, 1, 128};
    lapis_network *network;
    lapis_error error;
    if (lapis_open_memory(data, size, 1, (int32_t)(size & LAPIS_LOW_MEMORY), &network, &error)) {
        if (error.status != LAPIS_UNSUPPORTED) abort();
        return;
    }
    const lapis_sizes *sizes = lapis_sizes_of(network);
    if (sizes->tokens <= LARGEST_TOKENS && sizes->width <= LARGEST_WIDTH && sizes->classes <= LARGEST_WIDTH) {
        int64_t logits[LARGEST_WIDTH], best[LARGEST_WIDTH];
        int8_t *codes = malloc((size_t)lapis_trace_bytes(network));
        if (codes && lapis_watch(network, picture, SIDE, SIDE + 2, logits, codes, &error)) abort();
        free(codes);
        if (lapis_run(network, picture, 1, SIDE, SIDE + 2, logits, &error)) abort();
        if (lapis_best(network, logits, LARGEST_WIDTH, best) != lapis_classes(network)) abort();
    }
    for (int64_t i = 0; i < sizes->classes; i++) {
        const char *name = lapis_class_name(network, i);
        if (name && strlen(name) > MAX_NAME_BYTES) abort();
    }
    lapis_close(network);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lapis_error error;
    const int32_t status = lapis_check_memory(data, size, &error);
    if (!status)
        answer(data, size);
    else if (status != LAPIS_BAD_FILE || error.rule < 1 || strchr(error.message, '\n'))
        abort();
    return 0;
}

/* Change the header or the tensors alone, and let the length say how long the header then is: a change of any byte
 * would mostly move the tensors away from where the header has them. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    uint64_t length = 0;
    if (size < LENGTH_BYTES || seed % 8 == 0) return LLVMFuzzerMutate(data, size, most);
    for (int i = LENGTH_BYTES; i--;) length = length << 8 | data[i];
    if (length > size - LENGTH_BYTES) return LLVMFuzzerMutate(data, size, most);
    const size_t start = LENGTH_BYTES + (size_t)length, rest = size - start;
    if (seed % 8 < 4) return start + LLVMFuzzerMutate(data + start, rest, most - start);
    uint8_t *tensors = malloc(rest + 1);
    if (!tensors) return size;
    memcpy(tensors, data + start, rest);
    const size_t header = LLVMFuzzerMutate(data + LENGTH_BYTES, (size_t)length, most - rest - LENGTH_BYTES);
    for (int i = 0; i < LENGTH_BYTES; i++) data[i] = (uint8_t)((uint64_t)header >> 8 * i);
    memcpy(data + LENGTH_BYTES + header, tensors, rest);
    free(tensors);
    return LENGTH_BYTES + header + rest;
}
