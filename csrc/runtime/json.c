/* A parser that makes one pass and takes its memory before it starts. */
#include "json.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "../limits.h"

/* A packed file nests four deep and has some forty names in an object; comparing more names in pairs would take long.
 */
enum { MAX_DEPTH = 32, MAX_NAMES = 128, LONGEST_POINT = 16 };

typedef struct {
    const char *at, *end;
    json_value *next, *last; /* values that are left */
    char *write;             /* where the next string goes */
    json_result result;
} parser;

static json_value *fail(parser *p, json_result why) {
    if (p->result == JSON_OK) p->result = why;
    return NULL;
}

static void skip_space(parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')) p->at++;
}

static int take(parser *p, char c) {
    if (p->at == p->end || *p->at != c) return 0;
    p->at++;
    return 1;
}

static int is_digit(const parser *p) { return p->at < p->end && *p->at >= '0' && *p->at <= '9'; }

static const char *skip_digits(parser *p) {
    while (is_digit(p)) p->at++;
    return p->at;
}

/* Four hexadecimal digits, or -1. */
static int32_t read_hex(parser *p) {
    int32_t value = 0;
    if (p->end - p->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        const char c = *p->at++;
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

static void write_letter(parser *p, int32_t letter) {
    if (letter < 0x80) {
        *p->write++ = (char)letter;
    } else if (letter < 0x800) {
        *p->write++ = (char)(0xc0 | letter >> 6);
        *p->write++ = (char)(0x80 | (letter & 63));
    } else if (letter < 0x10000) {
        *p->write++ = (char)(0xe0 | letter >> 12);
        *p->write++ = (char)(0x80 | (letter >> 6 & 63));
        *p->write++ = (char)(0x80 | (letter & 63));
    } else {
        *p->write++ = (char)(0xf0 | letter >> 18);
        *p->write++ = (char)(0x80 | (letter >> 12 & 63));
        *p->write++ = (char)(0x80 | (letter >> 6 & 63));
        *p->write++ = (char)(0x80 | (letter & 63));
    }
}

/* The letter of \uXXXX, or of two that form a pair; 0 if there are no digits. */
static int read_unicode(parser *p) {
    int32_t letter = read_hex(p);
    if (letter < 0) return 0;
    if (letter >= 0xd800 && letter < 0xdc00 && p->end - p->at >= 6 && p->at[0] == '\\' && p->at[1] == 'u') {
        const char *back = p->at;
        p->at += 2;
        const int32_t low = read_hex(p);
        if (low >= 0xdc00 && low < 0xe000)
            letter = 0x10000 + (letter - 0xd800) * 0x400 + (low - 0xdc00);
        else
            p->at = back;
    }
    write_letter(p, letter);
    return 1;
}

static int read_escape(parser *p) {
    static const char LETTERS[] = "\"\\/bfnrt", MEANINGS[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end) return 0;
    const char c = *p->at++;
    if (c == 'u') return read_unicode(p);
    const char *found = c ? strchr(LETTERS, c) : NULL;
    if (!found) return 0;
    *p->write++ = MEANINGS[found - LETTERS];
    return 1;
}

/* What stands behind an opening quote. No string is longer than its source, so there is always room. */
static int read_string(parser *p, json_text *text) {
    text->bytes = p->write;
    while (p->at < p->end && *p->at != '"') {
        const char c = *p->at++;
        if ((unsigned char)c < 0x20) return 0;
        if (c != '\\')
            *p->write++ = c;
        else if (!read_escape(p))
            return 0;
    }
    text->length = (size_t)(p->write - text->bytes);
    return take(p, '"');
}

static void read_integer(const char *from, const char *to, json_value *value) {
    const int negative = *from == '-';
    uint64_t size = 0;
    for (from += negative; from < to; from++) size = size * 10 + (uint64_t)(*from - '0');
    const int64_t limited = size > INT64_MAX ? INT64_MAX : (int64_t)size;
    value->kind = JSON_INTEGER;
    value->integer = negative ? -limited : limited;
    value->real = negative ? -(double)size : (double)size;
}

/* strtod wants the point of the program's language; it is given one in spare memory behind the last string. */
static void read_real(parser *p, const char *from, const char *to, json_value *value) {
    const char *point = localeconv()->decimal_point;
    char *out = p->write;
    for (; from < to; from++) {
        if (*from == '.' && point && strlen(point) < LONGEST_POINT) {
            memcpy(out, point, strlen(point));
            out += strlen(point);
        } else {
            *out++ = *from;
        }
    }
    *out = 0;
    value->kind = JSON_REAL;
    value->real = strtod(p->write, NULL);
}

static json_value *read_number(parser *p, json_value *value) {
    const char *from = p->at;
    int whole = 1;
    take(p, '-');
    const char *digits = p->at;
    if (!is_digit(p)) return fail(p, JSON_BROKEN);
    if (!take(p, '0')) skip_digits(p);
    const ptrdiff_t count = p->at - digits;
    if (p->at < p->end && *p->at == '.') {
        const char *start = ++p->at;
        if (skip_digits(p) == start) return fail(p, JSON_BROKEN);
        whole = 0;
    }
    if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        p->at++;
        if (!take(p, '+')) take(p, '-');
        const char *start = p->at;
        if (skip_digits(p) == start) return fail(p, JSON_BROKEN);
        whole = 0;
    }
    if (whole && count > MAX_DIGITS) return fail(p, JSON_DIGITS);
    if (whole)
        read_integer(from, p->at, value);
    else
        read_real(p, from, p->at, value);
    return value;
}

static json_value *read_word(parser *p, json_value *value) {
    static const struct {
        const char *word;
        json_kind kind;
    } WORDS[] = {{"null", JSON_NULL}, {"true", JSON_TRUE}, {"false", JSON_FALSE}};
    for (int i = 0; i < 3; i++) {
        const size_t length = strlen(WORDS[i].word);
        if ((size_t)(p->end - p->at) < length || memcmp(p->at, WORDS[i].word, length)) continue;
        p->at += length;
        value->kind = WORDS[i].kind;
        return value;
    }
    return fail(p, JSON_BROKEN);
}

static int same_text(json_text one, json_text other) {
    return one.length == other.length && !memcmp(one.bytes, other.bytes, one.length);
}

static json_value *read_value(parser *p, int depth);

/* The name and colon in front of a field's value. */
static int read_name(parser *p, json_text *name) {
    skip_space(p);
    if (!take(p, '"') || !read_string(p, name)) return 0;
    skip_space(p);
    return take(p, ':');
}

/* The items of a list or the fields of an object, behind its bracket. */
static json_value *read_items(parser *p, json_value *value, int depth) {
    const int object = value->kind == JSON_OBJECT;
    const char close = object ? '}' : ']';
    json_value **link = &value->first;
    skip_space(p);
    if (take(p, close)) return value;
    do {
        json_text name = {0};
        if (object && (value->count == MAX_NAMES || !read_name(p, &name))) return fail(p, JSON_BROKEN);
        json_value *item = read_value(p, depth + 1);
        if (!item) return NULL;
        item->name = name;
        for (const json_value *other = value->first; object && other; other = other->next)
            if (same_text(other->name, name)) return fail(p, JSON_TWICE);
        *link = item;
        link = &item->next;
        value->count++;
        skip_space(p);
    } while (take(p, ','));
    return take(p, close) ? value : fail(p, JSON_BROKEN);
}

static json_value *read_value(parser *p, int depth) {
    if (depth > MAX_DEPTH || p->next == p->last) return fail(p, JSON_BROKEN);
    json_value *value = p->next++;
    skip_space(p);
    if (take(p, '"')) {
        value->kind = JSON_STRING;
        return read_string(p, &value->text) ? value : fail(p, JSON_BROKEN);
    }
    if (take(p, '{')) return value->kind = JSON_OBJECT, read_items(p, value, depth);
    if (take(p, '[')) return value->kind = JSON_LIST, read_items(p, value, depth);
    if (is_digit(p) || (p->at < p->end && *p->at == '-')) return read_number(p, value);
    return read_word(p, value);
}

json_result json_parse(const char *text, size_t length, int32_t most_values, json_document *document) {
    /* A value takes at least one letter, and another parts it from the next. */
    const size_t room = length / 2 + 1, count = room < (size_t)most_values ? room : (size_t)most_values;
    document->root = NULL;
    document->values = calloc(count, sizeof *document->values);
    document->strings = malloc(length + LONGEST_POINT + 1);
    if (!document->values || !document->strings) return JSON_NO_MEMORY;
    parser p = {.at = text, .end = text + length, .write = document->strings};
    p.next = document->values;
    p.last = document->values + count;
    document->root = read_value(&p, 0);
    skip_space(&p);
    if (p.at != p.end) fail(&p, JSON_BROKEN);
    return p.result;
}

void json_free(json_document *document) {
    free(document->values);
    free(document->strings);
    *document = (json_document){0};
}

/* The bytes of the letter that starts here, or 0. */
static size_t letter_bytes(const unsigned char *s, size_t left) {
    const size_t count = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (count > left) return 0;
    for (size_t i = 1; i < count; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (s[0] == 0xe0 && s[1] < 0xa0) return 0; /* has a shorter form */
    if (s[0] == 0xed && s[1] > 0x9f) return 0; /* a surrogate */
    if (s[0] == 0xf0 && s[1] < 0x90) return 0; /* has a shorter form */
    if (s[0] == 0xf4 && s[1] > 0x8f) return 0; /* beyond U+10FFFF */
    return count;
}

int json_is_utf8(const unsigned char *bytes, size_t length) {
    for (size_t at = 0, count; at < length; at += count) {
        count = letter_bytes(bytes + at, length - at);
        if (!count) return 0;
    }
    return 1;
}

int json_equals(json_text text, const char *word) {
    return text.length == strlen(word) && !memcmp(text.bytes, word, text.length);
}

const json_value *json_field(const json_value *object, const char *name) {
    const json_value *field = object->kind == JSON_OBJECT ? object->first : NULL;
    while (field && !json_equals(field->name, name)) field = field->next;
    return field;
}

int json_has_exactly(const json_value *value, const char *const *names) {
    int32_t count = 0;
    if (value->kind != JSON_OBJECT) return 0;
    for (; names[count]; count++)
        if (!json_field(value, names[count])) return 0;
    return value->count == count;
}
