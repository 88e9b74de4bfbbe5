/* AVX2 and FMA: 256 bits. */
#include <math.h>
#include <string.h>

#include "kernels.h"
#include "simd/avx2.h"

#define LAPIS_VNNI 0
#define LAPIS_WIDE 0
#include "kernels/prepare.h"
#include "kernels/distance.h"
#include "kernels/attention.h"
#include "kernels/integer_attention.h"
#include "kernels/gradient.h"
#include "kernels/lsq.h"

#define KERNELS_TABLE kernels_avx2
#include "kernels/table.h"
