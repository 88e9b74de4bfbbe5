/* The engine's stages in AVX-512 with VNNI's fused multiply and add. */
#include "../simd/avx512.h"

#define LAPIS_VNNI 1
#define LAPIS_WIDE 1
#define LAPIS_AMX 0
#define SPIKE_PERCENT 40
#define ENGINE engine_avx512vnni
#include "vector_engine.inc"
