/* The engine's stages in NEON, as every ARM of 64 bits has it. */
#include "../simd/neon.h"

#define LAPIS_LINEAR LINEAR_QUADS
#define ENGINE engine_neon
#include "engine128.inc"
