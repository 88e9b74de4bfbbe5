/* AVX-512 with byte and word operations (F, BW, VL, DQ): 512 bits. */
#include <math.h>
#include <string.h>

#include "kernels.h"
#include "simd/avx512.h"

#define LAPIS_VNNI 0
#define LAPIS_WIDE 1
#include "kernels/prepare.h"
#include "kernels/distance.h"
#include "kernels/attention.h"
#include "kernels/integer_attention.h"
#include "kernels/gradient.h"
#include "kernels/lsq.h"

static int supported(void) {
#if LAPIS_EMULATE
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
#endif
}

#define LAPIS_TABLE lapis_avx512bw
#define LAPIS_NAME "avx512bw"
#include "kernels/table.h"
