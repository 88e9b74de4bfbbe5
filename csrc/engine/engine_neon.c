/* The engine's stages in NEON, as every ARM of 64 bits has it. */
#define LAPIS_LINEAR LINEAR_QUADS
#define TARGET neon
#include "../simd/neon.h"
#include "engine128.inc"
