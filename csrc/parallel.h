#ifndef LAPIS_PARALLEL_H
#define LAPIS_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

/* One piece of work; `scratch` belongs to the calling thread. Returns a lapis_status. */
typedef int (*parallel_task)(const void *call, int64_t task, unsigned char *scratch);

/* Run tasks 0..tasks-1 on at most `threads` threads, each with `scratch` bytes; the first error wins. */
int parallel_for(parallel_task run, const void *call, int64_t tasks, int32_t threads, size_t scratch);

#endif
