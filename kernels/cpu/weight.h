/* A packed matrix, as every entry point takes it; `_Weight` of gemm.py. */
#ifndef EVEWATCH_WEIGHT_H
#define EVEWATCH_WEIGHT_H

#include <stdint.h>

typedef struct {
    int64_t encoding, rows, cols;
    const uint8_t *data; /* panels: see panels.h */
    int64_t bits;        /* of a number of x in products: 8 or 16, or 0: they are of floats */
    int64_t kept;           /* columns that stay in float all the same */
    const int32_t *columns; /* [kept], ascending */
} Weight;

#endif
