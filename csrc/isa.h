/* One row for each instruction set of isas.inc. */
#ifndef LAPIS_ISA_H
#define LAPIS_ISA_H

#include "engine/stages.h"
#include "kernels/kernels.h"

typedef struct {
    const char *name;
    int (*supported)(void); /* by this processor */
    const kernel_functions *kernels;
    const engine_functions *engine;
} lapis_isa;

#define ISA(name, lender)                           \
    extern const kernel_functions kernels_##lender; \
    extern const engine_functions engine_##name;
#include "isas.inc"

/* The one in use: what was selected, else the best that this processor supports. */
const lapis_isa *current_isa(void);

#endif
