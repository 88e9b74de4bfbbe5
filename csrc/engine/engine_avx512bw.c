/* The engine's stages in AVX-512 with byte and word operations. */
#include "../simd/avx512.h"

#define LAPIS_VNNI 0
#define LAPIS_WIDE 1
#define LAPIS_AMX 0
#define SPIKE_PERCENT 48
#define ENGINE engine_avx512bw
#include "vector_engine.inc"
