/* The engine's stages in AVX2 with AVX-VNNI's fused multiply and add. */
#define LAPIS_VNNI 1
#define LAPIS_WIDE 0
#define LAPIS_AMX 0
#define SPIKE_COSTS {2.3F, 69}
#define TARGET avxvnni
#include "../simd/avx2.h"
#include "vector_engine.inc"
