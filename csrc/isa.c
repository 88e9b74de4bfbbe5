/* The table of instruction sets, made from isas.inc, and what this processor has of them. */
#define _DEFAULT_SOURCE /* syscall */
#include "isa.h"

#include <stdatomic.h>

#if LAPIS_X86
static int supported_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

#if LAPIS_EMULATE
static int supported_avx512bw(void) { return supported_avx2(); }
static int supported_avx512vnni(void) { return supported_avx2(); }
#else
static int supported_avx512bw(void) {
    return supported_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static int supported_avx512vnni(void) { return supported_avx512bw() && __builtin_cpu_supports("avx512vnni"); }
#endif

#if LAPIS_WITH_AMX
#if LAPIS_EMULATE
static int supported_amx(void) { return supported_avx2(); }
#elif defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux hands the tiles' registers out to processes that ask. */
static int supported_amx(void) {
    enum { TILES = 1 << 24, TILES_INT8 = 1 << 25, STATES = 3 << 17, ASK_FOR_STATE = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d, enabled, high;
    if (!supported_avx512vnni() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & TILES) || !(d & TILES_INT8))
        return 0;
    __asm__("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
    return (enabled & STATES) == STATES && !syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA);
}
#else
static int supported_amx(void) { return 0; }
#endif
#endif
#endif

#if LAPIS_ARM
static int supported_neon(void) { return 1; }

#if defined(__linux__)
#include <sys/auxv.h>

/* The kernel's bits, which old headers lack. */
static int supported_neondot(void) { return (getauxval(AT_HWCAP) >> 20 & 1) != 0; }
static int supported_neoni8mm(void) { return supported_neondot() && (getauxval(AT_HWCAP2) >> 13 & 1) != 0; }
#elif defined(__APPLE__)
#include <sys/sysctl.h>

static int processor_has(const char *name) {
    int found = 0;
    size_t size = sizeof found;
    return !sysctlbyname(name, &found, &size, NULL, 0) && found;
}

static int supported_neondot(void) { return processor_has("hw.optional.arm.FEAT_DotProd"); }
static int supported_neoni8mm(void) { return supported_neondot() && processor_has("hw.optional.arm.FEAT_I8MM"); }
#else
static int supported_neondot(void) { return 0; }
static int supported_neoni8mm(void) { return 0; }
#endif
#endif

/* A browser that lacks them refuses the whole module. */
#if LAPIS_WASM
static int supported_wasm128(void) { return 1; }
#endif
#if LAPIS_WASM_RELAXED
static int supported_wasmrelaxed(void) { return 1; }
#endif

static int supported_scalar(void) { return 1; }

static const lapis_isa ISAS[] = {
#define ISA(name, lender) {#name, supported_##name, &kernels_##lender, &engine_##name},
#include "isas.inc"
};
enum { ISA_COUNT = sizeof ISAS / sizeof ISAS[0] };

static atomic_int selected = -1;

const char *lapis_isa_name(int32_t index) { return index >= 0 && index < ISA_COUNT ? ISAS[index].name : NULL; }

int32_t lapis_isa_supported(int32_t index) { return index >= 0 && index < ISA_COUNT && ISAS[index].supported(); }

int32_t lapis_isa_current(void) {
    int index = atomic_load(&selected);
    if (index >= 0) return index;
    for (index = 0; !ISAS[index].supported(); index++) {
    }
    int none = -1;
    return atomic_compare_exchange_strong(&selected, &none, index) ? index : none;
}

int32_t lapis_isa_select(int32_t index) {
    if (!lapis_isa_supported(index)) return LAPIS_BAD_ARGUMENT;
    atomic_store(&selected, index);
    return LAPIS_OK;
}

const lapis_isa *current_isa(void) { return &ISAS[lapis_isa_current()]; }
