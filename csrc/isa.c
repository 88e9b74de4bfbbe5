/* The table of instruction sets, made from isas.inc, and what this processor has of them. */
#define _DEFAULT_SOURCE /* syscall */
#include "isa.h"

#include <stdatomic.h>

#if LAPIS_X86
#include <cpuid.h>

/* Bits of CPUID, named by register and leaf (71 is part 1 of leaf 7), and of XCR0, which has the registers that the
 * system saves. Not __builtin_cpu_supports, for which not every compiler brings its library. */
typedef struct {
    unsigned c1, b7, c7, d7, a71, saved;
} features;

static const features AVX2 = {.c1 = 1U << 12 | 1U << 27 | 1U << 28, .b7 = 1U << 5, .saved = 6};
#if !LAPIS_EMULATE
static const features AVX512BW = {.b7 = 3U << 16 | 3U << 30, .saved = 7U << 5};
static const features AVX512VNNI = {.c7 = 1U << 11};
#endif

/* Ask for AVX2 first: with it the system is known to tell what it saves. */
static int processor_has(features f) {
    unsigned a, b, c, d, a71 = 0, saved, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & f.c1) != f.c1) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if ((b & f.b7) != f.b7 || (c & f.c7) != f.c7 || (d & f.d7) != f.d7) return 0;
    if (a > 0) __cpuid_count(7, 1, a71, b, c, d);
    if ((a71 & f.a71) != f.a71) return 0;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    return (saved & f.saved) == f.saved;
}

static int supported_avx2(void) { return processor_has(AVX2); }

#if LAPIS_EMULATE
#if LAPIS_WITH_AVXVNNI
static int supported_avxvnni(void) { return supported_avx2(); }
#endif
static int supported_avx512bw(void) { return supported_avx2(); }
static int supported_avx512vnni(void) { return supported_avx2(); }
#else
#if LAPIS_WITH_AVXVNNI
static int supported_avxvnni(void) {
    const features dot_products = {.a71 = 1U << 4};
    return supported_avx2() && processor_has(dot_products);
}
#endif
static int supported_avx512bw(void) { return supported_avx2() && processor_has(AVX512BW); }
static int supported_avx512vnni(void) { return supported_avx512bw() && processor_has(AVX512VNNI); }
#endif

#if LAPIS_WITH_AMX
#if LAPIS_EMULATE
static int supported_amx(void) { return supported_avx2(); }
#elif defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

/* Linux hands the tiles' registers out to processes that ask. */
static int supported_amx(void) {
    enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18 };
    const features tiles = {.d7 = 3U << 24, .saved = 3U << 17};
    return supported_avx512vnni() && processor_has(tiles) && !syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA);
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
