/* The engine's stages in AVX-512 with VNNI's fused multiply and add. */
#define LAPIS_VNNI 1
#define LAPIS_WIDE 1
#define LAPIS_AMX 0
#define SPIKE_COSTS {2.0F, 38}
#define TARGET avx512vnni
#include "../simd/avx512.h"
#include "vector_engine.inc"
