/* The engine's stages in NEON with matrix products of bytes. */
#include "../simd/neon.h"

#define LAPIS_LINEAR LINEAR_MATRIX
#define ENGINE engine_neoni8mm
#include "engine128.inc"
