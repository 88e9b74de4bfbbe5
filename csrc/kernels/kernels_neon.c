/* ARM NEON: 128 bits. */
#define TARGET neon
#include "../simd/neon.h"
#include "kernels128.inc"
