/* work ISA TASK REPEATS [MODEL]: the same work so many times, for count.py, which takes what one more repeat adds.
 *
 * distance: l1 of 197 queries and keys of 64 channels, window 15. linear: a layer 192 -> 768 of 197 tokens, six-bit
 * weights, to codes. image: a picture through MODEL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "lapis.h"
#include "library.h"

enum { TOKENS = 197, CHANNELS = 64, WINDOW = 15, INPUTS = 192, OUTPUTS = 768, SIDE = 32 };

static uint8_t codes[TOKENS * INPUTS], out[TOKENS * OUTPUTS], pixels[SIDE * SIDE * 3];
static int8_t weight[OUTPUTS * INPUTS];
static float scale[OUTPUTS], shift[OUTPUTS];
static int32_t distances[TOKENS * TOKENS];

static int32_t distance(void) {
    lapis_pairs pairs = {1, 1, TOKENS, TOKENS, CHANNELS, {0, 0, CHANNELS}, {0, 0, CHANNELS}, LAPIS_CODES_U8, LAPIS_L1};
    return lapis_distance(&pairs, codes, codes + TOKENS * CHANNELS, distances, LAPIS_OUT_I32, 1);
}

static int32_t layer(int32_t repeats) {
    return lapis_engine_linear(weight, scale, shift, TOKENS, INPUTS, OUTPUTS, codes, 0, WINDOW, 0, 1, 0, WINDOW, 1, NULL,
                               NULL, 20, out, NULL, repeats, NULL);
}

int main(int count, char **words) {
    if (count < 4) return fprintf(stderr, "usage: work ISA distance|linear|image REPEATS [MODEL]\n"), 2;
    const int repeats = atoi(words[3]);
    int32_t index = 0, status = 0;
    while (lapis_isa_name(index) && strcmp(lapis_isa_name(index), words[1])) index++;
    if (lapis_isa_select(index)) return fprintf(stderr, "no %s here\n", words[1]), 2;
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = (uint8_t)(rand() % (WINDOW + 1));
    for (size_t i = 0; i < sizeof weight; i++) weight[i] = (int8_t)(rand() % 63 - 31);
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)rand();
    for (int i = 0; i < OUTPUTS; i++) scale[i] = 0.01F;
    if (!strcmp(words[2], "linear")) return layer(repeats);
    if (!strcmp(words[2], "distance")) {
        for (int i = 0; i < repeats; i++) status |= distance();
        return status;
    }
    lapis_network *network = NULL;
    static int64_t logits[1000];
    if (count < 5 || lapis_open(words[4], 1, 0, &network, NULL) || lapis_classes(network) > 1000) return 1;
    for (int i = 0; i < repeats; i++) status |= lapis_run(network, pixels, 1, SIDE, SIDE, logits, NULL);
    lapis_close(network);
    return status;
}
