/* logits MODEL.safetensors PIXELS SIDE: the integer logits of pictures, a line for each, on whatever runs this.
 *
 * PIXELS is a file of uint8 [pictures, SIDE, SIDE, 3]. The first line names the instruction set. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "lapis.h"
#include "library.h"

static uint8_t *read_all(const char *path, int64_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) return NULL;
    *bytes = ftell(file);
    rewind(file);
    uint8_t *data = malloc((size_t)*bytes);
    if (data && fread(data, 1, (size_t)*bytes, file) != (size_t)*bytes) return NULL;
    fclose(file);
    return data;
}

int main(int count, char **words) {
    lapis_network *network = NULL;
    lapis_error error = {0};
    int64_t bytes = 0;
    if (count != 4) return fprintf(stderr, "usage: logits MODEL.safetensors PIXELS SIDE\n"), 2;
    const int64_t side = atoi(words[3]);
    uint8_t *pixels = read_all(words[2], &bytes);
    if (!pixels || side < 1 || bytes % (side * side * 3)) return fprintf(stderr, "%s: not such pictures\n", words[2]), 2;
    if (lapis_open(words[1], 1, 0, &network, &error)) return fprintf(stderr, "%s\n", error.message), 1;
    const int64_t pictures = bytes / (side * side * 3), classes = lapis_classes(network);
    int64_t *logits = malloc((size_t)(pictures * classes) * sizeof *logits);
    if (!logits || lapis_run(network, pixels, pictures, side, side, logits, &error))
        return fprintf(stderr, "%s\n", error.message), 1;
    printf("%s\n", lapis_isa_name(lapis_isa_current()));
    for (int64_t i = 0; i < pictures * classes; i++)
        printf("%" PRId64 "%c", logits[i], (i + 1) % classes ? ' ' : '\n');
    free(logits);
    free(pixels);
    lapis_close(network);
    return 0;
}
