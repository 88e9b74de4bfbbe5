/* AVX-512 with byte and word operations and VNNI's fused multiply and add: 512 bits. */
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

#define KERNELS_TABLE kernels_avx512vnni
#include "kernels/table.h"
