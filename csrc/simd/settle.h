/* SETTLE(a, b) keeps a row's two sums in registers: left alone, gcc gathers all products of a tile first and spills the
 * sums. Include it after LAPIS_WIDE is defined. */
#if LAPIS_EMULATE
#define SETTLE(a, b)
#elif LAPIS_WIDE
#define SETTLE(a, b) __asm__ volatile("" : "+v"(a), "+v"(b))
#else
#define SETTLE(a, b) __asm__ volatile("" : "+x"(a), "+x"(b))
#endif
/* KEEP(p) keeps a pointer in its register: gcc would follow every address that is derived from it by a pointer more. */
#define KEEP(p) __asm__("" : "+r"(p))
