/* The header of a packed file: everything in it is checked before memory is taken for a tensor. */
#include <stdlib.h>
#include <string.h>

#include "packed.h"

/* More values than the largest valid file has: entries of tensors, and 131072 class names beside 10000 numbers. */
enum { MOST_IN_TABLE = 1 << 12, MOST_IN_DESCRIPTION = 1 << 18, TEST_IMAGES = 10000 };

static const char *const REQUIRED[] = {"class_names",   "config",     "fraction_bits",
                                       "head_exponent", "preprocess", "version"};
static const char *const OPTIONAL[] = {"activity", "trained_slice"};

/* The status of a text that could not be parsed; `broken` is the rule for one that is not JSON. */
static int32_t unparsed(json_result result, int32_t broken, const char *what, lapis_error *error) {
    if (result == JSON_NO_MEMORY) return no_memory(error);
    return refuse(error, result == JSON_TWICE ? 5 : result == JSON_DIGITS ? 6 : broken, "its %s", what);
}

static int32_t read_bounded(const json_value *value, int64_t least, int64_t most, int32_t rule, const char *name,
                            int64_t *out, lapis_error *error) {
    if (value->kind != JSON_INTEGER || value->integer < least || value->integer > most)
        return refuse(error, rule, "%s", name);
    *out = value->integer;
    return LAPIS_OK;
}

static int32_t read_trained_slice(const json_value *slice, lapis_error *error) {
    int64_t before = -1;
    if (slice->kind != JSON_LIST || !slice->count) return refuse(error, 54, "trained_slice");
    for (const json_value *item = slice->first; item; item = item->next) {
        if (item->kind != JSON_INTEGER || item->integer <= before || item->integer >= TEST_IMAGES)
            return refuse(error, 54, "trained_slice");
        before = item->integer;
    }
    return LAPIS_OK;
}

static int32_t read_version(const json_value *description, packed_header *header, lapis_error *error) {
    const json_value *version = json_field(description, "version");
    if (!version) return refuse(error, 9, "its description");
    int32_t status = read_bounded(version, 1, 2, 9, "version", &header->version, error);
    if (status) return status;
    int32_t known = 0;
    for (size_t i = 0; i < sizeof REQUIRED / sizeof *REQUIRED; i++, known++)
        if (!json_field(description, REQUIRED[i])) return refuse(error, 10, "%s", REQUIRED[i]);
    for (size_t i = 0; header->version > 1 && i < sizeof OPTIONAL / sizeof *OPTIONAL; i++)
        known += json_field(description, OPTIONAL[i]) != NULL;
    return description->count == known ? LAPIS_OK : refuse(error, 10, "its description");
}

static int32_t read_description(const json_value *description, packed *file, lapis_error *error) {
    packed_header *header = &file->header;
    if (description->kind != JSON_OBJECT) return refuse(error, 8, "its description");
    int32_t status = read_version(description, header, error);
    if (!status) status = read_config(json_field(description, "config"), header, error);
    if (status) return status;
    list_tensors(file);
    status = check_work(header, error);
    if (!status) status = read_preprocess(json_field(description, "preprocess"), header, error);
    if (!status) status = read_class_names(json_field(description, "class_names"), file, error);
    if (!status)
        status = read_bounded(json_field(description, "fraction_bits"), 8, 20, 28, "fraction_bits",
                              &header->fraction_bits, error);
    if (!status)
        status = read_bounded(json_field(description, "head_exponent"), 0, 40, 29, "head_exponent",
                              &header->head_exponent, error);
    if (!status) status = read_activity(json_field(description, "activity"), header, error);
    const json_value *slice = json_field(description, "trained_slice");
    return status || !slice ? status : read_trained_slice(slice, error);
}

static int32_t read_table(const json_value *table, packed *file, lapis_error *error) {
    static const char *const METADATA[] = {"lapis_packed", NULL};
    if (table->kind != JSON_OBJECT) return refuse(error, 4, "its header");
    const json_value *metadata = json_field(table, "__metadata__");
    if (!metadata || !json_has_exactly(metadata, METADATA) || metadata->first->kind != JSON_STRING)
        return refuse(error, 7, "a training checkpoint is packed by `lapis pack`");
    const json_text text = metadata->first->text;
    json_document description;
    json_result parsed = json_parse(text.bytes, text.length, MOST_IN_DESCRIPTION, &description);
    int32_t status = parsed ? unparsed(parsed, 8, "description", error) : LAPIS_OK;
    if (!status) status = read_description(description.root, file, error);
    json_free(&description);
    return status ? status : read_offsets(table, file, error);
}

int32_t read_header(const char *text, size_t length, int64_t data_bytes, packed *file, lapis_error *error) {
    json_document table;
    if (!json_is_utf8((const unsigned char *)text, length)) return refuse(error, 3, "its header");
    file->data_bytes = data_bytes;
    json_result parsed = json_parse(text, length, MOST_IN_TABLE, &table);
    int32_t status = parsed ? unparsed(parsed, 3, "header", error) : read_table(table.root, file, error);
    json_free(&table);
    return status;
}
