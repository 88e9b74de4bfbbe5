/* JSON as in RFC 8259, from text of any origin: memory and depth are bounded by the text's length and by limits. */
#ifndef LAPIS_JSON_H
#define LAPIS_JSON_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_INTEGER,
    JSON_REAL,
    JSON_STRING,
    JSON_LIST,
    JSON_OBJECT
} json_kind;

/* Strings are UTF-8; half of a surrogate pair, which only an escape can write, is kept as three bytes. */
typedef struct {
    const char *bytes; /* not ended by a zero: a string may hold one */
    size_t length;
} json_text;

typedef struct json_value {
    json_kind kind;
    int32_t count; /* of items or fields */
    struct json_value *first, *next;
    json_text name; /* in an object */
    json_text text;
    int64_t integer; /* at most INT64_MAX in size */
    double real;     /* also of an integer */
} json_value;

typedef struct {
    json_value *root;
    json_value *values;
    char *strings;
} json_document;

typedef enum {
    JSON_OK,
    JSON_BROKEN, /* no JSON, or more of it than the limits allow */
    JSON_TWICE,  /* a name appears twice in an object */
    JSON_DIGITS, /* an integer of more than 19 digits */
    JSON_NO_MEMORY
} json_result;

/* Parse text of at most `most_values` values; free the document in any case. */
json_result json_parse(const char *text, size_t length, int32_t most_values, json_document *document);
void json_free(json_document *document);

/* Whether bytes are UTF-8: shortest forms, no surrogates. */
int json_is_utf8(const unsigned char *bytes, size_t length);

/* The field of an object, or NULL. */
const json_value *json_field(const json_value *object, const char *name);

int json_equals(json_text text, const char *word);

/* Whether a value is an object with exactly these fields; the last of `names` is NULL. */
int json_has_exactly(const json_value *value, const char *const *names);

#endif
