/* AVX-512 with byte and word operations and VNNI's fused multiply and add: 512 bits. */
#define _DEFAULT_SOURCE /* syscall */
#include <math.h>
#include <string.h>

#include "kernels.h"
#include "simd/avx512.h"

#define LAPIS_VNNI 1
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
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
#endif
}

#define LAPIS_TABLE lapis_avx512vnni
#define LAPIS_NAME "avx512vnni"
#include "kernels/table.h"

/* AMX: the engine's matrix unit, on which the kernels themselves are the ones above. Linux hands its registers out to
 * processes that ask. */
#if LAPIS_EMULATE
static int amx_supported(void) { return supported(); }
#elif defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static int amx_supported(void) {
    enum { TILES = 1 << 24, TILES_INT8 = 1 << 25, STATES = 3 << 17, ASK_FOR_STATE = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d, enabled, high;
    if (!supported() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & TILES) || !(d & TILES_INT8)) return 0;
    __asm__("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
    return (enabled & STATES) == STATES && !syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA);
}
#else
static int amx_supported(void) { return 0; }
#endif

#undef LAPIS_TABLE
#undef LAPIS_NAME
#define LAPIS_TABLE lapis_amx
#define LAPIS_NAME "amx"
#define supported amx_supported
#include "kernels/table.h"
