/* The engine's stages in AVX2. */
#define LAPIS_VNNI 0
#define LAPIS_WIDE 0
#define LAPIS_AMX 0
#define SPIKE_COSTS {1.67F, 50}
#define TARGET avx2
#include "../simd/avx2.h"
#include "vector_engine.inc"
