/* The engine's stages in AVX-512 with VNNI, and its linear layers in AMX. */
#define LAPIS_VNNI 1
#define LAPIS_WIDE 1
#define LAPIS_AMX 1
#define TARGET amx
#include "../simd/avx512.h"
#include "vector_engine.inc"
