/* The parts of a description: configuration, preprocessing, class names, activity. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "packed.h"

enum { LONGEST_NAME = 256, MAX_CODE_DISTANCE = 1 << 14 };

/* The index of a string among words, of which the last is NULL; -1 for others. */
static int find_word(const json_value *value, const char *const *words) {
    for (int i = 0; value->kind == JSON_STRING && words[i]; i++)
        if (json_equals(value->text, words[i])) return i;
    return -1;
}

static int is_number(const json_value *value) {
    return (value->kind == JSON_INTEGER || value->kind == JSON_REAL) && isfinite(value->real);
}

/* The integers of a configuration, in the order in which they are checked. */
static const struct {
    const char *name;
    size_t offset;
    int64_t most;
} INTEGERS[] = {
    {"image_size", offsetof(packed_header, image_size), 4096},
    {"patch_size", offsetof(packed_header, patch_size), 256},
    {"classes", offsetof(packed_header, classes), 1 << 17},
    {"width", offsetof(packed_header, width), 2048},
    {"depth", offsetof(packed_header, depth), MAX_BLOCKS},
    {"heads", offsetof(packed_header, heads), 2048},
    {"mlp_ratio", offsetof(packed_header, mlp_ratio), 16},
    {"window", offsetof(packed_header, window), 63},
    {"weight_bits", offsetof(packed_header, weight_bits), FLOAT_WEIGHTS},
};
enum { INTEGER_COUNT = sizeof INTEGERS / sizeof *INTEGERS };

static int64_t *integer_at(packed_header *header, int index) {
    return (int64_t *)((char *)header + INTEGERS[index].offset);
}

static int32_t read_integers(const json_value *config, packed_header *header, lapis_error *error) {
    for (int i = 0; i < INTEGER_COUNT; i++) {
        const json_value *value = json_field(config, INTEGERS[i].name);
        if (value->kind != JSON_INTEGER) return refuse(error, 13, "%s", INTEGERS[i].name);
        if (value->integer < 1) return refuse(error, 14, "%s", INTEGERS[i].name);
        *integer_at(header, i) = value->integer;
    }
    if (header->width % header->heads) return refuse(error, 17, "heads and width");
    if (header->image_size % header->patch_size) return refuse(error, 18, "image_size and patch_size");
    for (int i = 0; i < INTEGER_COUNT; i++)
        if (*integer_at(header, i) > INTEGERS[i].most) return refuse(error, 14, "%s", INTEGERS[i].name);
    const int64_t bits = header->weight_bits;
    return bits == FLOAT_WEIGHTS || (bits >= 2 && bits <= 8) ? LAPIS_OK : refuse(error, 14, "weight_bits");
}

static int32_t read_words(const json_value *config, packed_header *header, lapis_error *error) {
    static const char *const STYLES[] = {"vit", "beit", NULL}, *const ACTIVATIONS[] = {"gelu", "relu", NULL};
    static const char *const RELATIONS[] = {"laplacian", "laplacian2", "table", NULL};
    static const char *const POW2[] = {"pow2", NULL}, *const SPIKES[] = {"spikes", NULL};
    static const relation_kind KINDS[] = {RELATION_LEAK, RELATION_SHIFT, RELATION_TABLE};
    const json_value *style = json_field(config, "style"), *activation = json_field(config, "activation");
    if (style->kind != JSON_STRING) return refuse(error, 13, "style");
    if (find_word(style, STYLES) < 0) return refuse(error, 15, "style");
    header->beit = find_word(style, STYLES);
    if (activation && activation->kind != JSON_STRING) return refuse(error, 13, "activation");
    if (activation && find_word(activation, ACTIVATIONS) < 0) return refuse(error, 15, "activation");
    const int relation = find_word(json_field(config, "relation"), RELATIONS);
    if (relation < 0 || (relation && (header->beit || header->version == 1))) return refuse(error, 16, "relation");
    header->relation = KINDS[relation];
    if (find_word(json_field(config, "row_scale"), POW2)) return refuse(error, 16, "row_scale");
    if (find_word(json_field(config, "readout"), SPIKES)) return refuse(error, 16, "readout");
    const json_value *quantize = json_field(config, "quantize"), *top_k = json_field(config, "top_k");
    if (quantize->kind != JSON_TRUE) return refuse(error, quantize->kind == JSON_FALSE ? 16 : 13, "quantize");
    if (top_k && !is_number(top_k)) return refuse(error, 13, "top_k");
    return top_k && top_k->real != 1.0 ? refuse(error, 16, "top_k") : LAPIS_OK;
}

static const char *const MODE_FIELDS[] = {"attention_in", "qk", "v", "readout", "mlp_in", "mlp_hidden", NULL};

static int32_t read_modes(const json_value *modes, packed_header *header, lapis_error *error) {
    static const char *const WORDS[] = {"unsigned", "offset", "signed", NULL};
    if (!json_has_exactly(modes, MODE_FIELDS)) return refuse(error, 12, "modes");
    for (int point = 0; point < MODES; point++) {
        const json_value *mode = json_field(modes, MODE_FIELDS[point]);
        if (mode->kind != JSON_STRING) return refuse(error, 13, "modes.%s", MODE_FIELDS[point]);
        const int word = find_word(mode, WORDS);
        if (word < 0) return refuse(error, 15, "modes.%s", MODE_FIELDS[point]);
        header->low[point] = word == 2 ? -(int32_t)header->window : 0;
    }
    return LAPIS_OK;
}

static int is_least_code(const json_value *value, const packed_header *header) {
    return value->kind == JSON_INTEGER && value->integer >= 1 && value->integer <= header->window;
}

static int32_t read_least_codes(const json_value *leasts, packed_header *header, lapis_error *error) {
    if (leasts && !json_has_exactly(leasts, MODE_FIELDS)) return refuse(error, 12, "least_codes");
    for (int point = 0; point < MODES; point++) {
        const json_value *least = leasts ? json_field(leasts, MODE_FIELDS[point]) : NULL;
        const int listed = least && least->kind == JSON_LIST;
        const json_value *one = listed ? least->first : least;
        if (listed && least->count != header->depth) return refuse(error, 56, "least_codes.%s", MODE_FIELDS[point]);
        for (int64_t block = 0; block < header->depth; block++) {
            if (one && !is_least_code(one, header)) return refuse(error, 56, "least_codes.%s", MODE_FIELDS[point]);
            header->least[point][block] = one ? (int32_t)one->integer : 1;
            if (listed) one = one->next;
        }
    }
    return LAPIS_OK;
}

static const char AFFINITY_BITS[] = "affinity_bits";

/* Left out where affinities have all the bits that they may have. */
static int32_t read_affinity_bits(const json_value *config, packed_header *header, lapis_error *error) {
    const json_value *bits = json_field(config, AFFINITY_BITS);
    if (bits &&
        (header->version == 1 || bits->kind != JSON_INTEGER || bits->integer < 1 || bits->integer >= MAX_AFFINITY_BITS))
        return refuse(error, 64, AFFINITY_BITS);
    header->affinity_bits = bits ? bits->integer : MAX_AFFINITY_BITS;
    return LAPIS_OK;
}

int32_t read_config(const json_value *config, packed_header *header, lapis_error *error) {
    /* The last three are those that version 1 does not have. */
    static const char *const FIELDS[] = {"style", "image_size",  "patch_size", "classes",    "width",       "depth",
                                         "heads", "mlp_ratio",   "window",     "relation",   "row_scale",   "readout",
                                         "modes", "weight_bits", "quantize",   "activation", "least_codes", "top_k"};
    const int count = (int)(sizeof FIELDS / sizeof *FIELDS) - (header->version == 1 ? 3 : 0);
    const char *names[sizeof FIELDS / sizeof *FIELDS + 2] = {0};
    memcpy(names, FIELDS, (size_t)count * sizeof *names);
    int32_t status = read_affinity_bits(config, header, error);
    if (status) return status;
    /* One more place: for the field that may be left out. */
    if (json_field(config, AFFINITY_BITS)) names[count] = AFFINITY_BITS;
    if (!json_has_exactly(config, names)) return refuse(error, 11, "config");
    status = read_integers(config, header, error);
    if (!status) status = read_words(config, header, error);
    if (!status) status = read_modes(json_field(config, "modes"), header, error);
    if (!status) status = read_least_codes(json_field(config, "least_codes"), header, error);
    if (status) return status;
    header->grid = header->image_size / header->patch_size;
    header->tokens = header->grid * header->grid + 1;
    header->channels = header->width / header->heads;
    header->hidden = header->width * header->mlp_ratio;
    header->code_distances = header->channels * (header->window - header->low[MODE_QK]) + 1;
    return header->tokens * header->window * AFFINITY_MAX > INT32_MAX ? refuse(error, 19, "image_size and window")
                                                                      : LAPIS_OK;
}

int32_t check_work(const packed_header *header, lapis_error *error) {
    const int64_t heads = header->depth * header->heads;
    const int64_t membranes = header->code_distances + (header->beit ? LONGEST_DELAY : 0);
    if (header->code_distances - 1 > MAX_CODE_DISTANCE) return refuse(error, 60, "width, heads and window");
    if (heads * membranes > header->allowance) return refuse(error, 61, "depth, heads and window");
    if (header->beit && heads * header->tokens * header->tokens > header->allowance)
        return refuse(error, 62, "depth, heads and image_size");
    return LAPIS_OK;
}

/* Three numbers in least..most. */
static int is_triple(const json_value *list, double least, double most) {
    if (list->kind != JSON_LIST || list->count != 3) return 0;
    for (const json_value *item = list->first; item; item = item->next)
        if (!is_number(item) || item->real < least || item->real > most) return 0;
    return 1;
}

int32_t read_preprocess(const json_value *preprocess, packed_header *header, lapis_error *error) {
    static const char *const FIELDS[] = {"size", "mean", "std", "interpolation", "crop", NULL};
    static const char *const FILTERS[] = {"nearest", "bilinear", "bicubic", "lanczos", NULL};
    if (!json_has_exactly(preprocess, FIELDS)) return refuse(error, 20, "preprocess");
    const json_value *size = json_field(preprocess, "size"), *crop = json_field(preprocess, "crop");
    if (size->kind != JSON_INTEGER || size->integer != header->image_size) return refuse(error, 21, "size");
    if (!is_triple(json_field(preprocess, "mean"), -1000, 1000)) return refuse(error, 22, "mean");
    if (!is_triple(json_field(preprocess, "std"), 0.001, 1000)) return refuse(error, 22, "std");
    const int filter = find_word(json_field(preprocess, "interpolation"), FILTERS);
    if (filter < 0) return refuse(error, 23, "interpolation");
    if (!is_number(crop) || crop->real < 0.1 || crop->real > 1) return refuse(error, 24, "crop");
    header->filter = (filter_kind)filter;
    header->crop = crop->real;
    return LAPIS_OK;
}

/* Check one name: its length in code points, and that it has no half of a surrogate pair. */
static int32_t check_name(const json_value *name, lapis_error *error) {
    int32_t letters = 0;
    if (name->kind != JSON_STRING) return refuse(error, 25, "class_names");
    for (size_t i = 0; i < name->text.length; i++) letters += (name->text.bytes[i] & 0xc0) != 0x80;
    if (letters > LONGEST_NAME) return refuse(error, 25, "class_names");
    if (!json_is_utf8((const unsigned char *)name->text.bytes, name->text.length))
        return refuse(error, 26, "class_names");
    return LAPIS_OK;
}

int32_t read_class_names(const json_value *names, packed *file, lapis_error *error) {
    size_t bytes = 0;
    if (names->kind != JSON_LIST) return refuse(error, 25, "class_names");
    for (const json_value *name = names->first; name; name = name->next) {
        int32_t status = check_name(name, error);
        if (status) return status;
        bytes += name->text.length + 1;
    }
    if (!names->count) return LAPIS_OK;
    if (names->count != file->header.classes) return refuse(error, 27, "class_names");
    file->names = malloc(bytes);
    file->starts = malloc((size_t)names->count * sizeof *file->starts);
    if (!file->names || !file->starts) return no_memory(error);
    int64_t at = 0, index = 0;
    for (const json_value *name = names->first; name; name = name->next) {
        file->starts[index++] = at;
        memcpy(file->names + at, name->text.bytes, name->text.length);
        at += (int64_t)name->text.length;
        file->names[at++] = 0;
    }
    return LAPIS_OK;
}

/* One share of neurons for each block. */
static int read_shares(const json_value *shares, float *out, int64_t depth) {
    if (shares->kind != JSON_LIST || shares->count != depth) return 0;
    for (const json_value *share = shares->first; share; share = share->next) {
        if (!is_number(share) || share->real < 0 || share->real > 1) return 0;
        *out++ = (float)share->real;
    }
    return 1;
}

int32_t read_activity(const json_value *activity, packed_header *header, lapis_error *error) {
    int32_t known = 0;
    for (int point = 0; point < LAPIS_POINTS; point++) {
        for (int64_t block = 0; block < header->depth; block++) header->activity[point][block] = -1;
        const json_value *shares = activity ? json_field(activity, lapis_engine_point_name(point)) : NULL;
        if (!shares) continue;
        if (!read_shares(shares, header->activity[point], header->depth))
            return refuse(error, 55, "activity.%s", lapis_engine_point_name(point));
        known++;
    }
    return activity && (!known || activity->count != known) ? refuse(error, 55, "activity") : LAPIS_OK;
}
