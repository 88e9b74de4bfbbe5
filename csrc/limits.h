/* The limits of deployed networks, as src/lapis/deploy/schema.py sets them. */
#ifndef LAPIS_LIMITS_H
#define LAPIS_LIMITS_H

enum {
#define LIMIT(name, value) name = value,
#include "runtime/schema.inc"
    AFFINITY_MAX = (1 << AFFINITY_BITS) - 1
};

#define REAL_LIMIT(name, value) static const double name = value;
#include "runtime/schema.inc"

#endif
