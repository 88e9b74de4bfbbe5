/* The engine's stages in AVX-512 with byte and word operations. */
#define LAPIS_VNNI 0
#define LAPIS_WIDE 1
#define LAPIS_AMX 0
#define SPIKE_COSTS {1.54F, 45}
#define TARGET avx512bw
#include "../simd/avx512.h"
#include "vector_engine.inc"
