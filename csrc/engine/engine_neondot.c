/* The engine's stages in NEON with dot products of bytes. */
#include "../simd/neon.h"

#define LAPIS_LINEAR LINEAR_DOT
#define ENGINE engine_neondot
#include "engine128.inc"
