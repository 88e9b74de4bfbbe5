/* What bindings check their copies against: the fields of every struct that callers fill in, and the names of what
 * results are counted by. */
#include <stddef.h>
#include <string.h>

#include "engine/engine.h"

/* Every field of every such struct. */
/* clang-format off */
#define STRUCTS(STRUCT)                                                                                               \
    STRUCT(lapis_pairs)
#define FIELDS_OF_lapis_pairs(FIELD, s)                                                                               \
    FIELD(s, batch) FIELD(s, heads) FIELD(s, rows) FIELD(s, keys) FIELD(s, channels) FIELD(s, q_stride)               \
    FIELD(s, k_stride) FIELD(s, code_type) FIELD(s, relation)
/* clang-format on */

/* The structs have no padding where pointers take 8 bytes, so a field that is not listed above shows in the sum. */
#define ADD_SIZE(s, field) +sizeof(((s *)0)->field)
#define CHECK(s)                                                                     \
    _Static_assert(sizeof(void *) != 8 || 0 FIELDS_OF_##s(ADD_SIZE, s) == sizeof(s), \
                   "csrc/layout.c must list every field of " #s ", which must have no padding");
STRUCTS(CHECK)

typedef struct {
    const char *of, *name; /* no name: the struct itself */
    int64_t offset, size;
} layout;

#define ONE_FIELD(s, field) {#s, #field, offsetof(s, field), sizeof(((s *)0)->field)},
#define ONE_STRUCT(s) {#s, NULL, 0, sizeof(s)}, FIELDS_OF_##s(ONE_FIELD, s)
static const layout LAYOUTS[] = {STRUCTS(ONE_STRUCT)};
enum { LAYOUT_COUNT = sizeof LAYOUTS / sizeof LAYOUTS[0] };

/* The row of a struct, or LAYOUT_COUNT. Its fields follow. */
static int row_of(const char *name) {
    int row = 0;
    while (row < LAYOUT_COUNT && (LAYOUTS[row].name || strcmp(LAYOUTS[row].of, name))) row++;
    return row;
}

int64_t lapis_struct_size(const char *name) {
    int row = row_of(name);
    return row < LAYOUT_COUNT ? LAYOUTS[row].size : 0;
}

const char *lapis_struct_field(const char *name, int32_t index, int64_t *offset, int64_t *size) {
    int64_t row = (int64_t)row_of(name) + 1 + index;
    if (index < 0 || row >= LAYOUT_COUNT || strcmp(LAYOUTS[row].of, name)) return NULL;
    *offset = LAYOUTS[row].offset;
    *size = LAYOUTS[row].size;
    return LAYOUTS[row].name;
}

/* Under the names of lapis.trace. */
static const char *const POINT_NAMES[LAPIS_POINTS] = {
    [LAPIS_AT_ATTENTION] = "attention_in",
    [LAPIS_AT_Q] = "q",
    [LAPIS_AT_K] = "k",
    [LAPIS_AT_V] = "v",
    [LAPIS_AT_READOUT] = "readout",
    [LAPIS_AT_MLP] = "mlp_in",
    [LAPIS_AT_HIDDEN] = "mlp_hidden",
};

const char *lapis_engine_point_name(int32_t index) {
    return index >= 0 && index < LAPIS_POINTS ? POINT_NAMES[index] : NULL;
}

static const char *const STAGE_NAMES[LAPIS_STAGES] = {
    [LAPIS_STAGE_EMBED] = "embed", [LAPIS_STAGE_NORM] = "norm",
    [LAPIS_STAGE_QKV] = "qkv",     [LAPIS_STAGE_ATTENTION] = "attention",
    [LAPIS_STAGE_PROJ] = "proj",   [LAPIS_STAGE_FC1] = "fc1",
    [LAPIS_STAGE_FC2] = "fc2",     [LAPIS_STAGE_HEAD] = "head",
};

const char *lapis_engine_stage_name(int32_t index) {
    return index >= 0 && index < LAPIS_STAGES ? STAGE_NAMES[index] : NULL;
}
