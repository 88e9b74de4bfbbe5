/* What went wrong, in one line. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "packed.h"

static const char *const RULES[] = {
#define RULE(number, text, reason) [number] = text,
#include "rules.inc"
};

int32_t refuse(lapis_error *error, int32_t rule, const char *what, ...) {
    char where[160];
    va_list values;
    va_start(values, what);
    vsnprintf(where, sizeof where, what, values);
    va_end(values);
    report(error, LAPIS_BAD_FILE, "%s: %s (rule %d)", where, RULES[rule], (int)rule);
    error->rule = rule;
    return LAPIS_BAD_FILE;
}

int32_t report(lapis_error *error, lapis_status status, const char *what, ...) {
    va_list values;
    va_start(values, what);
    vsnprintf(error->message, sizeof error->message, what, values);
    va_end(values);
    /* Names of a file may hold anything, and the message goes to a terminal. */
    for (char *c = error->message; *c; c++)
        if (*c < 0x20 || *c > 0x7e) *c = '?';
    error->status = status;
    error->rule = 0;
    return status;
}

int32_t no_memory(lapis_error *error) {
    return report(error, LAPIS_OUT_OF_MEMORY, "there is not enough memory for this network or picture");
}
