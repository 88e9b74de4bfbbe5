/* The description of a network: its configuration, preprocessing, class names and activity, by the rows of schema.inc.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "packed.h"

enum { MOST_WORDS = 4 };
enum { IN_DESCRIPTION, IN_CONFIG, IN_PREPROCESS };

static const struct {
    int object, required;
    const char *name;
} FIELDS[] = {
#define FIELD(object, name, required) {object, required, name},
#include "schema.inc"
};

/* The integers, in the order in which they are checked. */
static const struct {
    int object;
    const char *name;
    size_t offset;
    int64_t low, high;
    int32_t typed, ranged;
} INTEGERS[] = {
#define INTEGER(object, name, low, high, typed, ranged) \
    {object, #name, offsetof(packed_header, name), low, high, typed, ranged},
#include "schema.inc"
};

static const struct {
    int object;
    const char *name;
    size_t offset;
    int32_t typed, ranged;
    const char *words[MOST_WORDS + 1];
} WORDS[] = {
#define WORD(object, name, typed, ranged, ...) \
    {object, #name, offsetof(packed_header, name), typed, ranged, {__VA_ARGS__}},
#include "schema.inc"
};

static const struct {
    const char *name;
    size_t offset;
    int32_t count;
    double low, high;
    int32_t rule;
} NUMBER_LISTS[] = {
#define NUMBERS(name, count, low, high, rule) {#name, offsetof(packed_header, name), count, low, high, rule},
#include "schema.inc"
};

static const char *const POINT_NAMES[] = {
#define POINT(index, name) name,
#include "schema.inc"
    NULL};

static const char *const CODINGS[] = {
#define CODING(word) word,
#include "schema.inc"
    NULL};
enum { CODING_SIGNED = 2 };

#define COUNT(table) ((int)(sizeof table / sizeof *table))

/* The index of a string among words, of which the last is NULL; -1 for others. */
static int find_word(const json_value *value, const char *const *words) {
    for (int i = 0; value->kind == JSON_STRING && words[i]; i++)
        if (json_equals(value->text, words[i])) return i;
    return -1;
}

static int is_number(const json_value *value, double low, double high) {
    return (value->kind == JSON_INTEGER || value->kind == JSON_REAL) && isfinite(value->real) && value->real >= low &&
           value->real <= high;
}

/* Whether an object has its required fields, perhaps optional ones, and no others. */
static int32_t check_fields(const json_value *object, int which, int32_t rule, const char *what, lapis_error *error) {
    int32_t known = 0;
    if (object->kind != JSON_OBJECT) return refuse(error, rule, "%s", what);
    for (int i = 0; i < COUNT(FIELDS); i++) {
        if (FIELDS[i].object != which) continue;
        const int found = json_field(object, FIELDS[i].name) != NULL;
        if (!found && FIELDS[i].required) return refuse(error, rule, "%s without %s", what, FIELDS[i].name);
        known += found;
    }
    return object->count == known ? LAPIS_OK : refuse(error, rule, "%s", what);
}

static int32_t read_integers(const json_value *object, int which, packed_header *header, lapis_error *error) {
    for (int i = 0; i < COUNT(INTEGERS); i++) {
        if (INTEGERS[i].object != which) continue;
        const json_value *value = json_field(object, INTEGERS[i].name);
        if (!value) continue; /* optional: 0 */
        if (value->kind != JSON_INTEGER) return refuse(error, INTEGERS[i].typed, "%s", INTEGERS[i].name);
        if (value->integer < INTEGERS[i].low || value->integer > INTEGERS[i].high)
            return refuse(error, INTEGERS[i].ranged, "%s", INTEGERS[i].name);
        memcpy((char *)header + INTEGERS[i].offset, &value->integer, sizeof value->integer);
    }
    return LAPIS_OK;
}

static int32_t read_words(const json_value *object, int which, packed_header *header, lapis_error *error) {
    for (int i = 0; i < COUNT(WORDS); i++) {
        if (WORDS[i].object != which) continue;
        const json_value *value = json_field(object, WORDS[i].name);
        const int32_t word = find_word(value, WORDS[i].words);
        if (value->kind != JSON_STRING) return refuse(error, WORDS[i].typed, "%s", WORDS[i].name);
        if (word < 0) return refuse(error, WORDS[i].ranged, "%s", WORDS[i].name);
        memcpy((char *)header + WORDS[i].offset, &word, sizeof word);
    }
    return LAPIS_OK;
}

static int32_t read_coding(const json_value *coding, packed_header *header, lapis_error *error) {
    if (!json_has_exactly(coding, POINT_NAMES)) return refuse(error, 12, "coding");
    for (int point = 0; point < CODED_POINTS; point++) {
        const json_value *value = json_field(coding, POINT_NAMES[point]);
        if (value->kind != JSON_STRING) return refuse(error, 13, "coding.%s", POINT_NAMES[point]);
        const int word = find_word(value, CODINGS);
        if (word < 0) return refuse(error, 15, "coding.%s", POINT_NAMES[point]);
        header->low[point] = word == CODING_SIGNED ? -(int32_t)header->window : 0;
    }
    return LAPIS_OK;
}

/* One minimum code for all blocks, or one for each. */
static int32_t read_min_codes(const json_value *min_codes, packed_header *header, lapis_error *error) {
    if (!json_has_exactly(min_codes, POINT_NAMES)) return refuse(error, 12, "min_code");
    for (int point = 0; point < CODED_POINTS; point++) {
        const json_value *value = json_field(min_codes, POINT_NAMES[point]);
        const int listed = value->kind == JSON_LIST;
        if (listed && value->count != header->depth) return refuse(error, 56, "min_code.%s", POINT_NAMES[point]);
        const json_value *one = listed ? value->first : value;
        for (int64_t block = 0; block < header->depth; block++) {
            if (one->kind != JSON_INTEGER || one->integer < 1 || one->integer > header->window)
                return refuse(error, 56, "min_code.%s", POINT_NAMES[point]);
            header->min_code[point][block] = (int32_t)one->integer;
            if (listed) one = one->next;
        }
    }
    return LAPIS_OK;
}

static int32_t read_config(const json_value *config, packed_header *header, lapis_error *error) {
    int32_t status = check_fields(config, IN_CONFIG, 11, "config", error);
    if (!status) status = read_integers(config, IN_CONFIG, header, error);
    if (!status) status = read_words(config, IN_CONFIG, header, error);
    if (!status) status = read_coding(json_field(config, "coding"), header, error);
    if (!status) status = read_min_codes(json_field(config, "min_code"), header, error);
    if (status) return status;
    if (header->width % header->heads) return refuse(error, 17, "heads and width");
    if (header->image_size % header->patch_size) return refuse(error, 18, "image_size and patch_size");
    if (header->style == STYLE_BEIT && header->relation != RELATION_LAPLACIAN) return refuse(error, 16, "relation");
    header->grid = header->image_size / header->patch_size;
    header->tokens = header->grid * header->grid + 1;
    header->channels = header->width / header->heads;
    header->hidden = header->width * header->mlp_ratio;
    const int64_t factor = header->relation == RELATION_DOT ? header->window : 1;
    header->code_distances = header->channels * (header->window - header->low[AT_QK]) * factor + 1;
    return header->tokens * header->window * AFFINITY_MAX > INT32_MAX ? refuse(error, 19, "image_size and window")
                                                                      : LAPIS_OK;
}

int32_t check_work(const packed_header *header, lapis_error *error) {
    const int64_t heads = header->depth * header->heads;
    const int relative = header->style == STYLE_BEIT;
    const int64_t membranes = header->code_distances + (relative ? LONGEST_DELAY : 0);
    const int64_t most = header->relation == RELATION_DOT ? MAX_DOT_DISTANCE : MAX_CODE_DISTANCE;
    if (header->code_distances - 1 > most) return refuse(error, 60, "width, heads and window");
    if (heads * membranes > header->allowance) return refuse(error, 54, "depth, heads and window");
    if (relative && heads * header->tokens * header->tokens > header->allowance)
        return refuse(error, 36, "depth, heads and image_size");
    return LAPIS_OK;
}

/* One number, or a list of as many as the field has. */
static int32_t read_numbers(const json_value *preprocess, packed_header *header, lapis_error *error) {
    for (int i = 0; i < COUNT(NUMBER_LISTS); i++) {
        const int32_t count = NUMBER_LISTS[i].count;
        const json_value *value = json_field(preprocess, NUMBER_LISTS[i].name);
        double *out = (double *)(void *)((char *)header + NUMBER_LISTS[i].offset);
        if (count > 1 && (value->kind != JSON_LIST || value->count != count))
            return refuse(error, NUMBER_LISTS[i].rule, "%s", NUMBER_LISTS[i].name);
        const json_value *one = count > 1 ? value->first : value;
        for (int32_t k = 0; k < count; k++, one = one->next) {
            if (!is_number(one, NUMBER_LISTS[i].low, NUMBER_LISTS[i].high))
                return refuse(error, NUMBER_LISTS[i].rule, "%s", NUMBER_LISTS[i].name);
            out[k] = one->real;
        }
    }
    return LAPIS_OK;
}

static int32_t read_preprocess(const json_value *preprocess, packed_header *header, lapis_error *error) {
    int32_t status = check_fields(preprocess, IN_PREPROCESS, 20, "preprocess", error);
    if (!status) status = read_integers(preprocess, IN_PREPROCESS, header, error);
    if (!status && header->size != header->image_size) status = refuse(error, 21, "size");
    if (!status) status = read_words(preprocess, IN_PREPROCESS, header, error);
    return status ? status : read_numbers(preprocess, header, error);
}

/* Check one name: its length in code points, and that it has no half of a surrogate pair. */
static int32_t check_name(const json_value *name, lapis_error *error) {
    int32_t letters = 0;
    if (name->kind != JSON_STRING) return refuse(error, 25, "class_names");
    for (size_t i = 0; i < name->text.length; i++) letters += (name->text.bytes[i] & 0xc0) != 0x80;
    if (letters > MAX_CLASS_NAME) return refuse(error, 25, "class_names");
    if (!json_is_utf8((const unsigned char *)name->text.bytes, name->text.length))
        return refuse(error, 26, "class_names");
    return LAPIS_OK;
}

static int32_t read_class_names(const json_value *names, packed *file, lapis_error *error) {
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

/* One share of values for each block. */
static int read_shares(const json_value *shares, float *out, int64_t depth) {
    if (shares->kind != JSON_LIST || shares->count != depth) return 0;
    for (const json_value *share = shares->first; share; share = share->next) {
        if (!is_number(share, 0, 1)) return 0;
        *out++ = (float)share->real;
    }
    return 1;
}

static int32_t read_activity(const json_value *activity, packed_header *header, lapis_error *error) {
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

int32_t read_description(const json_value *description, packed *file, lapis_error *error) {
    packed_header *header = &file->header;
    if (description->kind != JSON_OBJECT) return refuse(error, 8, "its description");
    const json_value *version = json_field(description, "version");
    if (!version || version->kind != JSON_INTEGER || version->integer != VERSION) return refuse(error, 9, "version");
    int32_t status = check_fields(description, IN_DESCRIPTION, 10, "its description", error);
    if (!status) status = read_integers(description, IN_DESCRIPTION, header, error);
    if (!status) status = read_config(json_field(description, "config"), header, error);
    if (status) return status;
    list_tensors(file);
    status = check_work(header, error);
    if (!status) status = read_preprocess(json_field(description, "preprocess"), header, error);
    if (!status) status = read_class_names(json_field(description, "class_names"), file, error);
    return status ? status : read_activity(json_field(description, "activity"), header, error);
}
