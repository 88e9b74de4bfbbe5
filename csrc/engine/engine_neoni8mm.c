/* The engine's stages in NEON with matrix products of bytes. */
#define LAPIS_LINEAR LINEAR_MATRIX
#define TARGET neoni8mm
#include "../simd/neon.h"
#include "engine128.inc"
