/* The engine's stages in AVX2. */
#include <string.h>

#include "stages.h"
#include "../simd/avx2.h"

#define LAPIS_VNNI 0
#define LAPIS_WIDE 0
#include "linear.h"
#include "rows.h"
#include "spikes.h"
#include "peak.h"

#define ENGINE_TABLE engine_avx2
#include "table.h"
