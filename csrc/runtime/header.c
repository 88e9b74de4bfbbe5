/* The header of a packed file: everything in it is checked before memory is taken for a tensor. */
#include "packed.h"

/* More values than the largest valid file has: entries of tensors, and class names beside shares of blocks. */
enum { MOST_IN_TABLE = 1 << 12, MOST_IN_DESCRIPTION = 2 * MAX_CLASSES };

/* The status of a text that could not be parsed; `broken` is the rule for one that is not JSON. */
static int32_t unparsed(json_result result, int32_t broken, const char *what, lapis_error *error) {
    if (result == JSON_NO_MEMORY) return no_memory(error);
    return refuse(error, result == JSON_TWICE ? 5 : result == JSON_DIGITS ? 6 : broken, "its %s", what);
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
