/* An opened network. */
#ifndef LAPIS_NETWORK_H
#define LAPIS_NETWORK_H

#include "packed.h"

struct lapis_network {
    packed_header header;
    lapis_sizes sizes;
    lapis_engine *engine;
    char *names;
    int64_t *starts;
};

/* The engine of a network, which lives as long: Python runs batches that it has prepared. */
LAPIS_API lapis_engine *lapis_network_engine(lapis_network *network);

/* Whether the bytes of a file keep to every rule, without an engine: for fuzzers. */
LAPIS_API int32_t lapis_check_memory(const void *data, size_t bytes, lapis_error *error);

#endif
