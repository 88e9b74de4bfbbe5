/* What bindings check their copies against: the fields of lapis_pairs, and the names of what results are counted by. */
#include <stddef.h>

#include "engine/engine.h"

/* Each field and the byte behind it. */
static const struct {
    const char *name;
    int64_t end;
} PAIRS_FIELDS[] = {
#define FIELD(name) {#name, offsetof(lapis_pairs, name) + sizeof(((lapis_pairs *)0)->name)},
    FIELD(batch) FIELD(heads) FIELD(rows) FIELD(keys) FIELD(channels) FIELD(q_stride) FIELD(k_stride) FIELD(code_type)
        FIELD(relation) FIELD(zero_code)};

const char *lapis_pairs_field(int32_t index, int64_t *end) {
    if (index < 0 || index >= (int32_t)(sizeof PAIRS_FIELDS / sizeof *PAIRS_FIELDS)) return NULL;
    *end = PAIRS_FIELDS[index].end;
    return PAIRS_FIELDS[index].name;
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
