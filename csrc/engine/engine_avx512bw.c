/* The engine's stages in AVX-512 with byte and word operations. */
#define LAPIS_VNNI 0
#define LAPIS_WIDE 1
#define LAPIS_AMX 0
#define SPIKE_PERCENT 48
#define TARGET avx512bw
#include "../simd/avx512.h"
#include "vector_engine.inc"
