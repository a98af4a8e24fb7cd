/* What the cache kernels share: the two argument structs (mirrored in kv.py), whether a step fits
   a cache, and its split into tiles. PAGE (tokens per page), DIM (head size) and GROUP (query
   heads per KV head) are set on the command line. */
#ifndef EVEWATCH_KV_H
#define EVEWATCH_KV_H

#include <stdlib.h>

#if PAGE % 16 || DIM % 16
#define NARROW
#endif
#include "native.h"
#include "simd.h"

#if PAGE % LANES || DIM % LANES
#error "PAGE and DIM must be multiples of 8"
#endif
#define BLOCK (DIM * PAGE)
#define V_GROUP 32 /* as in layout.py, the next too */
#define PARTS 16
#define GROUPS ((DIM + V_GROUP - 1) / V_GROUP)

enum Format { HALF, CHANNEL, TOKEN, STATIC }; /* layout.Code */

typedef struct {
    uint8_t *pages;   /* [N, kv_heads, head_bytes] */
    half *slabs;      /* [S, kv_heads, 2, BLOCK] */
    half *scratch;    /* [R, kv_heads, 2, BLOCK] */
    const int32_t *outliers; /* [kv_heads, lanes], -1: unused */
    const float *k_static, *v_static; /* [kv_heads, DIM] */
    int64_t *saturated; /* written, clipped */
    int64_t page_count, slab_count, scratch_count;
    int64_t format, k_bits, v_bits, kv_heads, head_bytes, lanes;
    /* byte offsets inside a head block, -1: absent */
    int64_t k, v, k_scale, k_zero, v_scale, v_zero, v_shift, k_first, v_first, k_out;
} Cache;

typedef struct {
    const int32_t *row_start, *context, *table, *slab, *scratch, *positions;
    int64_t rows, sequences, width;
} Step;

/* Whether all that a step names is there: 0, or a Failure. No row, page, slab or block of
   scratch is touched before. */
INLINE int misfit(const Cache *cache, const Step *step) {
    const int open = cache->format == CHANNEL;
    if (step->sequences < 0 || step->row_start[0] || step->row_start[step->sequences] != step->rows)
        return ROWS_RISE;
    for (int64_t b = 0; b < step->sequences; b++) {
        int64_t row = step->row_start[b], n = step->row_start[b + 1] - row, first = step->context[b];
        if (n < 1 || row + n > step->rows || first < 0) return ROWS_RISE;
        int64_t last_page = (first + n - 1) / PAGE, stored = open ? (first + n) / PAGE : last_page + 1;
        if (stored > step->width) return PAGE_ID;
        const int32_t *table = step->table + b * step->width;
        int odd = 0;
        for (int64_t page = 0; page < stored; page++)
            odd |= table[page] < 0 || table[page] >= cache->page_count;
        if (odd) return PAGE_ID;
        if (open && (step->slab[b] < 0 || step->slab[b] >= cache->slab_count)) return SLAB_ID;
        int64_t completed = last_page - first / PAGE;
        if (open && completed && (step->scratch[b] < 0 ||
                                  step->scratch[b] + completed > cache->scratch_count))
            return SCRATCH_ID;
        for (int64_t r = 0; r < n; r++)
            if (step->positions[row + r] != first + r) return POSITION;
    }
    return 0;
}

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
