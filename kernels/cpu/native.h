/* What C and native.py both say: failures, and a list by which a library proves that its structs
   and codes are Python's. */
#ifndef EVEWATCH_NATIVE_H
#define EVEWATCH_NATIVE_H

#include <stdint.h>

/* What an entry point returns; nothing was written then. */
enum Failure { NO_MEMORY = 1, ROWS_RISE, PAGE_ID, SLAB_ID, SCRATCH_ID, POSITION, ROW_ID, ROOM };

/* The sizes and codes of a source, and the failures after them. */
#define MIRRORED(...)                                                                          \
    const int64_t mirrored[] = {__VA_ARGS__, NO_MEMORY, ROWS_RISE, PAGE_ID, SLAB_ID,           \
                                SCRATCH_ID,  POSITION,  ROW_ID,    ROOM};                      \
    const int64_t mirrored_count = sizeof mirrored / sizeof *mirrored;

#endif
