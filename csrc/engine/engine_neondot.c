/* The engine's stages in NEON with dot products of bytes. */
#define LAPIS_LINEAR LINEAR_DOT
#define TARGET neondot
#include "../simd/neon.h"
#include "engine128.inc"
