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

#define KERNELS_TABLE kernels_avx512bw
#include "kernels/table.h"
