/* append_kv: split the new rows, normalise, rotate, write them where they wait, and seal
   the pages that they complete. */
#include <math.h>

#include "kv.h"
#include "team.h"

#define ALONE 4 /* rows that are written before a thread team has woken */
#define MIN_SCALE 0x1p-24f /* smallest positive half */
#define TOP 15             /* the largest code of four bits */

MIRRORED(sizeof(Cache), sizeof(Step), HALF, CHANNEL, TOKEN, STATIC, V_GROUP, PARTS)

/* Smallest half that is not below x >= 0. */
INLINE half round_up(float x) {
    half near = (half)x;
    if ((float)near < x) {
        uint16_t bits;
        memcpy(&bits, &near, sizeof bits);
        bits++;
        memcpy(&near, &bits, sizeof bits);
    }
    return near;
}

/* NaN for NaN: what cannot be stored must not become a number. */
INLINE half scale_for(float step) { return round_up(larger(MIN_SCALE, step)); }

typedef struct {
    float lowest, highest; /* both NaN where one value is */
} Extent;

INLINE Extent extent(const float *x, int n) {
    vf low = load(x), high = low;
    vi odd = low != low;
    for (int i = LANES; i < n; i += LANES) {
        vf v = load(x + i);
        low = vmin(low, v);
        high = vmax(high, v);
        odd |= v != v;
    }
    return any(odd) ? (Extent){NAN, NAN} : (Extent){-max_lanes(-low), max_lanes(high)};
}

/* n values as whole numbers of lowest...highest; NaN, for which there is none, becomes 0. */
INLINE void store_whole(vf y, float lowest, float highest, int8_t *q) {
    y = vmax(splat(lowest), vmin(splat(highest), nearest(y)));
    store_int8(q, pick(y == y, y, splat(0.0f)));
}

/* n values under one hp scale (and zero, where there is one) of their own. One NaN among them
   makes the scale NaN, and so whatever is read of them. */
INLINE void quantise(const float *x, int n, int8_t *q, half *scale, half *zero) {
    const Extent e = extent(x, n);
    float centre = 0.0f;
    if (zero) {
        *zero = (half)((e.highest + e.lowest) / 2.0f);
        centre = (float)*zero;
    }
    *scale = scale_for(larger(e.highest - centre, centre - e.lowest) / 127.0f);
    vf s = splat((float)*scale);
    for (int i = 0; i < n; i += LANES)
        store_whole((load(x + i) - centre) / s, -127.0f, 127.0f, q + i);
}

/* What is missing between a code and the value that it stands for, in PARTS of a step. */
INLINE int8_t more_bits(float steps, int8_t code) {
    float parts = rintf((steps - code) * PARTS) + PARTS / 2;
    return (int8_t)(parts == parts ? smaller(larger(parts, 0.0f), TOP) : 0.0f);
}

/* n hp values in four bits, the first of them in eight: code 0 is the lowest. NaN as above. */
INLINE void quantise_four(const float *x, int n, int8_t *codes, half *scale, half *zero,
                          int8_t *first) {
    const Extent e = extent(x, n);
    *zero = (half)e.lowest;
    *scale = scale_for((e.highest - e.lowest) / TOP);
    vf s = splat((float)*scale);
    for (int i = 0; i < n; i += LANES)
        store_whole((load(x + i) - e.lowest) / s, 0.0f, TOP, codes + i);
    *first = more_bits((x[0] - e.lowest) / (float)*scale, codes[0]);
}

/* n values in four bits, in eight with `first`, over a range that includes 0; `shift` says
   between which codes 0 is. */
INLINE void quantise_group(const float *x, int n, int8_t *codes, half *scale, uint8_t *shift,
                           int8_t *first) {
    const Extent e = extent(x, n);
    const float lowest = smaller(0.0f, e.lowest), highest = larger(0.0f, e.highest);
    *scale = scale_for((highest - lowest) / (TOP - 1.0f / PARTS));
    float s = (float)*scale, parts = ceilf(lowest * -PARTS / s), at;
    *shift = (uint8_t)(parts == parts ? parts : 0.0f);
    at = *shift / (float)PARTS;
    for (int i = 0; i < n; i += LANES)
        store_whole(load(x + i) / splat(s) + at, 0.0f, TOP, codes + i);
    for (int i = 0; first && i < n; i++) first[i] = more_bits(x[i] / s + at, codes[i]);
}

/* n values under fixed scales; returns how many were clipped. NaN, for which such a format has
   no room, becomes 0 and counts as clipped. */
INLINE int64_t quantise_static(const float *x, const float *scale, int n, float *q) {
    int64_t clipped = 0;
    for (int i = 0; i < n; i++) {
        float y = rintf(x[i] / scale[i]);
        clipped += !(y <= 127.0f && y >= -127.0f);
        q[i] = y == y ? smaller(larger(y, -127.0f), 127.0f) : 0.0f;
    }
    return clipped;
}

static void rotate(const float *x, const float *cos, const float *sin, float *y) {
    for (int i = 0; i < DIM / 2; i++) {
        float a = x[i], b = x[i + DIM / 2];
        y[i] = a * cos[i] - b * sin[i];
        y[i + DIM / 2] = b * cos[i] + a * sin[i];
    }
}

/* Norm (weight may be NULL), then rotation. */
static void prepare(const float *x, const float *weight, float eps, const float *cos,
                    const float *sin, float *y) {
    float normed[DIM];
    if (weight) {
        vf sum = {0};
        for (int i = 0; i < DIM; i += LANES) sum = mul_add(load(x + i), load(x + i), sum);
        float factor = 1.0f / sqrtf(sum_lanes(sum) / DIM + eps);
        for (int i = 0; i < DIM; i++) normed[i] = x[i] * factor * weight[i];
        x = normed;
    }
    rotate(x, cos, sin, y);
}

static void write_half(half *k_block, half *v_block, int slot, const float *k, const float *v) {
    half narrow[DIM];
    for (int i = 0; i < DIM; i += LANES) {
        store_half(narrow + i, load(k + i));
        store_half(v_block + slot * DIM + i, load(v + i));
    }
    for (int c = 0; c < DIM; c++) k_block[c * PAGE + slot] = narrow[c];
}

INLINE half *optional(uint8_t *block, int64_t offset) {
    return offset < 0 ? NULL : (half *)(block + offset);
}

/* Moves row `slot` of the outlier channels to their hp plane and clears them in k. */
static void split_outliers(const Cache *cache, int64_t head, uint8_t *block, int slot, float *k) {
    half *plane = optional(block, cache->k_out);
    for (int64_t lane = 0; plane && lane < cache->lanes; lane++) {
        int32_t channel = cache->outliers[head * cache->lanes + lane];
        plane[lane * PAGE + slot] = channel < 0 ? (half)0.0f : (half)k[channel];
        if (channel >= 0) k[channel] = 0.0f;
    }
}

static void write_token(const Cache *cache, uint8_t *block, int64_t head, int slot, float *k,
                        const float *v) {
    int8_t narrow[DIM], *k_int8 = (int8_t *)(block + cache->k);
    half *k_zero = optional(block, cache->k_zero), *v_zero = optional(block, cache->v_zero);
    split_outliers(cache, head, block, slot, k);
    quantise(k, DIM, narrow, (half *)(block + cache->k_scale) + slot, k_zero ? k_zero + slot : NULL);
    for (int c = 0; c < DIM; c++) k_int8[c * PAGE + slot] = narrow[c];
    quantise(v, DIM, (int8_t *)(block + cache->v) + slot * DIM,
             (half *)(block + cache->v_scale) + slot, v_zero ? v_zero + slot : NULL);
}

static int64_t write_static(const Cache *cache, uint8_t *block, int64_t head, int slot,
                            const float *k, const float *v) {
    float q[DIM];
    int8_t *k_int8 = (int8_t *)(block + cache->k), *v_int8 = (int8_t *)(block + cache->v);
    int64_t clipped = quantise_static(k, cache->k_static + head * DIM, DIM, q);
    for (int c = 0; c < DIM; c++) k_int8[c * PAGE + slot] = (int8_t)q[c];
    clipped += quantise_static(v, cache->v_static + head * DIM, DIM, q);
    for (int c = 0; c < DIM; c++) v_int8[slot * DIM + c] = (int8_t)q[c];
    return clipped;
}

/* Two rows of codes in one of bytes, the even row low. */
INLINE void pack_rows(const int8_t *even, const int8_t *odd, int n, uint8_t *packed) {
    for (int i = 0; i < n; i++) packed[i] = (uint8_t)(even[i] | odd[i] << 4);
}

/* The further bits of a page's first token, in rows of half a group. */
INLINE void pack_first(const int8_t *first, uint8_t *packed) {
    const int n = V_GROUP / 2;
    for (int g = 0; g < GROUPS; g++)
        pack_rows(first + 2 * g * n, first + (2 * g + 1) * n, n, packed + g * n);
}

/* K of a page, channel by channel, and V, token by token. */
static void seal_k(const Cache *cache, const float *k, uint8_t *block) {
    half *scale = (half *)(block + cache->k_scale), *zero = optional(block, cache->k_zero);
    uint8_t *at = block + cache->k;
    int8_t codes[2][PAGE], first[GROUPS * V_GROUP] = {0};
    for (int c = 0; c < DIM; c++)
        if (cache->k_bits == 8) {
            quantise(k + c * PAGE, PAGE, (int8_t *)at + c * PAGE, scale + c, zero ? zero + c : NULL);
        } else {
            quantise_four(k + c * PAGE, PAGE, codes[c % 2], scale + c, zero + c, first + c);
            if (c % 2) pack_rows(codes[0], codes[1], PAGE, at + c / 2 * PAGE);
        }
    if (cache->k_first >= 0) pack_first(first, block + cache->k_first);
}

static void seal_v(const Cache *cache, const half *v_block, uint8_t *block) {
    half *scale = (half *)(block + cache->v_scale), *zero = optional(block, cache->v_zero);
    uint8_t *at = block + cache->v, *shift = block + cache->v_shift;
    int8_t codes[2][DIM], first[GROUPS * V_GROUP] = {0};
    float v[DIM];
    for (int t = 0; t < PAGE; t++) {
        for (int i = 0; i < DIM; i += LANES) store(v + i, load_half(v_block + t * DIM + i));
        if (cache->v_bits == 8) {
            quantise(v, DIM, (int8_t *)at + t * DIM, scale + t, zero ? zero + t : NULL);
            continue;
        }
        for (int g = 0, i = 0; g < GROUPS; g++, i += V_GROUP)
            quantise_group(v + i, DIM - i < V_GROUP ? DIM - i : V_GROUP, codes[t % 2] + i,
                           scale + g * PAGE + t, shift + g * PAGE + t, t ? NULL : first + i);
        if (t % 2) pack_rows(codes[0], codes[1], DIM, at + t / 2 * DIM);
    }
    if (cache->v_first >= 0) pack_first(first, block + cache->v_first);
}

/* A full hp block becomes a self-contained page. */
static void seal(const Cache *cache, int64_t head, const half *k_block, const half *v_block,
                 uint8_t *block) {
    float k[BLOCK];
    for (int i = 0; i < BLOCK; i += LANES) store(k + i, load_half(k_block + i));
    half *plane = optional(block, cache->k_out);
    for (int64_t lane = 0; plane && lane < cache->lanes; lane++) {
        int32_t channel = cache->outliers[head * cache->lanes + lane];
        memset(plane + lane * PAGE, 0, PAGE * sizeof(half));
        if (channel < 0) continue;
        memcpy(plane + lane * PAGE, k_block + channel * PAGE, PAGE * sizeof(half));
        memset(k + channel * PAGE, 0, PAGE * sizeof(float));
    }
    seal_k(cache, k, block);
    seal_v(cache, v_block, block);
}

typedef struct {
    const float *qkv, *cos, *sin, *q_norm, *k_norm;
    float *q;
    float eps;
    int64_t query_heads;
} Rows;

INLINE const float *row_of(const Rows *rows, const Cache *cache, int64_t row) {
    return rows->qkv + row * (rows->query_heads + 2 * cache->kv_heads) * DIM;
}

/* One tile of one KV head: K and V written, and sealed if the page is full now. */
static int64_t write_tile(const Cache *cache, const Step *step, const Rows *rows, Tile tile,
                          int64_t head) {
    const int open = cache->format == CHANNEL;
    uint8_t *block = open ? NULL : head_block(cache, step, tile.sequence, tile.page, head);
    half *k_block = open ? open_block(cache, step, tile, head) : (half *)(block + cache->k);
    half *v_block = k_block + BLOCK; /* an fp16 page has the layout of an open block */
    int64_t clipped = 0;
    for (int r = 0; r < tile.rows; r++) {
        int64_t row = tile.batch_row + r, at = (int64_t)step->positions[row] * (DIM / 2);
        const float *x = row_of(rows, cache, row) + (rows->query_heads + head) * DIM;
        const float *v = x + cache->kv_heads * DIM;
        float k[DIM];
        prepare(x, rows->k_norm, rows->eps, rows->cos + at, rows->sin + at, k);
        if (cache->format == TOKEN)
            write_token(cache, block, head, tile.slot + r, k, v);
        else if (cache->format == STATIC)
            clipped += write_static(cache, block, head, tile.slot + r, k, v);
        else
            write_half(k_block, v_block, tile.slot + r, k, v);
    }
    if (open && tile.slot + tile.rows == PAGE)
        seal(cache, head, k_block, v_block,
             head_block(cache, step, tile.sequence, tile.page, head));
    return clipped;
}

/* A chunk that runs past the open page moves the slab's rows to scratch, before its last
   page starts the slab anew. */
static void carry(const Cache *cache, const Step *step, Tile tile) {
    if (cache->format != CHANNEL || tile.pages_before || tile.is_last || !tile.slot) return;
    Tile slab = tile;
    slab.is_last = 1;
    memcpy(open_block(cache, step, tile, 0), open_block(cache, step, slab, 0),
           (size_t)cache->kv_heads * 2 * BLOCK * sizeof(half));
}

static void rotate_queries(const Step *step, const Rows *rows, const Cache *cache, int64_t row) {
    int64_t at = (int64_t)step->positions[row] * (DIM / 2);
    for (int64_t head = 0; head < rows->query_heads; head++)
        prepare(row_of(rows, cache, row) + head * DIM, rows->q_norm, rows->eps, rows->cos + at,
                rows->sin + at, rows->q + (row * rows->query_heads + head) * DIM);
}

typedef struct {
    const Cache *cache;
    const Step *step;
    Rows rows;
    const Tile *tiles;
    int64_t *clipped;
} Job;

/* The queries of a tile's rows, and one after another its KV heads. */
static void append_one(const void *what, int64_t i) {
    const Job *job = what;
    const Tile tile = job->tiles[i];
    int64_t clipped = 0;
    for (int32_t r = 0; r < tile.rows; r++)
        rotate_queries(job->step, &job->rows, job->cache, tile.batch_row + r);
    for (int64_t head = 0; head < job->cache->kv_heads; head++)
        clipped += write_tile(job->cache, job->step, &job->rows, tile, head);
    if (clipped) __atomic_fetch_add(job->clipped, clipped, __ATOMIC_RELAXED);
}

/* cos, sin [table, DIM / 2]. 0, or a Failure. */
int append_kv(const Cache *cache, const Step *step, const float *qkv, const float *cos,
              const float *sin, int64_t table, const float *q_norm, const float *k_norm, float eps,
              float *q, int64_t query_heads, const Team *team) {
    int64_t count, clipped = 0, batch = step->rows;
    int failed = misfit(cache, step);
    if (failed) return failed;
    for (int64_t r = 0; r < batch; r++)
        if (step->positions[r] >= table) return POSITION;
    Tile *tiles = tiles_of(step, PAGE, &count);
    if (!tiles) return NO_MEMORY;
    for (int64_t i = 0; i < count; i++) carry(cache, step, tiles[i]);
    const Rows rows = {qkv, cos, sin, q_norm, k_norm, q, eps, query_heads};
    const Job job = {cache, step, rows, tiles, &clipped};
    (batch > ALONE ? team->run : do_alone)(team, append_one, &job, count);
    if (cache->saturated && cache->format == STATIC) {
        cache->saturated[0] += 2 * batch * cache->kv_heads * DIM;
        cache->saturated[1] += clipped;
    }
    free(tiles);
    return 0;
}
