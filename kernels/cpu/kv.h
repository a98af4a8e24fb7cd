/* What the cache kernels share: the two argument structs (mirrored in kv.py) and the
   split of a step into tiles. PAGE (tokens per page), DIM (head size) and GROUP (query
   heads per KV head) are set on the command line. */
#ifndef EVEWATCH_KV_H
#define EVEWATCH_KV_H

#include <stdlib.h>

#if PAGE % 16 || DIM % 16
#define NARROW
#endif
#include "simd.h"

#if PAGE % LANES || DIM % LANES
#error "PAGE and DIM must be multiples of 8"
#endif
#define BLOCK (DIM * PAGE)

enum Format { HALF, CHANNEL, TOKEN, STATIC };

typedef struct {
    uint8_t *pages;   /* [N, kv_heads, head_bytes] */
    half *slabs;      /* [S, kv_heads, 2, BLOCK] */
    half *scratch;    /* [R, kv_heads, 2, BLOCK] */
    const int32_t *outliers; /* [kv_heads, lanes], -1: unused */
    const float *k_static, *v_static; /* [kv_heads, DIM] */
    int64_t *saturated; /* written, clipped */
    int64_t format, kv_heads, head_bytes, lanes;
    /* byte offsets inside a head block, -1: absent */
    int64_t k, v, k_scale, k_zero, v_scale, v_zero, k_out;
} Cache;

typedef struct {
    const int32_t *row_start, *context, *table, *slab, *scratch, *positions;
    int64_t sequences, width;
} Step;

/* Rows of one sequence that lie in one page. */
typedef struct {
    int32_t sequence, page, slot, rows; /* slot: place of the first row in the page */
    int32_t batch_row;
    int32_t pages_before; /* of this step, in this sequence */
    int32_t is_last;      /* the last page that the step touches: the slab's */
} Tile;

/* All tiles of a step, of at most `max_rows` rows; NULL without memory. */
INLINE Tile *tiles_of(const Step *step, int32_t max_rows, int64_t *count) {
    int64_t rows = step->row_start[step->sequences];
    Tile *tiles = malloc((size_t)(rows + 1) * sizeof *tiles), *next = tiles;
    if (!tiles) return NULL;
    for (int32_t b = 0; b < step->sequences; b++) {
        int32_t row = step->row_start[b], stop = step->row_start[b + 1];
        int32_t position = step->context[b], first_page = position / PAGE;
        int32_t last_page = (position + stop - row - 1) / PAGE;
        while (row < stop) {
            int32_t page = position / PAGE, slot = position % PAGE;
            int32_t n = PAGE - slot < stop - row ? PAGE - slot : stop - row;
            if (n > max_rows) n = max_rows;
            *next++ = (Tile){b, page, slot, n, row, page - first_page, page == last_page};
            row += n, position += n;
        }
    }
    *count = next - tiles;
    return tiles;
}

/* Where a tile's page waits in hp: K [DIM, PAGE]; V [PAGE, DIM] follows BLOCK later. */
INLINE half *open_block(const Cache *cache, const Step *step, Tile tile, int64_t head) {
    half *base = tile.is_last ? cache->slabs : cache->scratch;
    int64_t index = tile.is_last ? step->slab[tile.sequence]
                                 : step->scratch[tile.sequence] + tile.pages_before;
    return base + (index * cache->kv_heads + head) * 2 * BLOCK;
}

INLINE uint8_t *head_block(const Cache *cache, const Step *step, int32_t sequence, int64_t page,
                           int64_t head) {
    int64_t id = step->table[sequence * step->width + page];
    return cache->pages + (id * cache->kv_heads + head) * cache->head_bytes;
}

#endif
