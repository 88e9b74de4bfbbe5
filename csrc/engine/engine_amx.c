/* The engine's stages in AVX-512 with VNNI, and its linear layers in AMX. */
#include "../simd/avx512.h"

#define LAPIS_VNNI 1
#define LAPIS_WIDE 1
#define LAPIS_AMX 1
#define ENGINE engine_amx
#include "vector_engine.inc"
