/* y[T, N] = x[T, K] · W[N, K]ᵀ in float, with W in the bytes of its file, in the panels of panels.h.
 *
 * Batch invariance: an output is one chain of multiply-adds over k in ascending order,
 * whatever the number of rows, their tiling, the chunks of K or the threads. The weights
 * themselves are exact: q·d is exact in float32, adding m rounds once.
 *
 * Few rows multiply straight from the packed blocks. Many rows first unpack a chunk of a
 * panel to float32, which is how an f32 matrix is packed, and reuse it for all of them; each
 * thread gathers its rows first, CHUNK columns of one after those of another, so that a tile
 * reads them in one stream from addresses that the compiler knows.
 */

#include "panels.h"
#include "team.h"

/* TILE rows × 16 columns of accumulators, the weights and one broadcast fit the register file;
 * so do PAIR rows × 32 columns. A row's value that serves two panels is loaded once for both:
 * loads, not arithmetic, limit a single one. */
#if defined(__AVX512F__)
#define TILE 12
#define PAIR TILE
#elif defined(__AVX2__)
#define TILE 6
#elif defined(__aarch64__)
#define TILE 6
#else
#define TILE 3
#endif

/* Values loaded before stay in registers: left alone, gcc reads them again for every row, where
 * rows are many. Where they are few, this only hinders it. */
#define LOADED __asm__ volatile("" ::: "memory")

#ifndef PAIR
#define PAIR (TILE / 2)
#endif

/* Rows that are so few that two panels leave the machine waiting for its own additions take WIDE. */
#define WIDE 4
#define WIDE_ROWS (LANES == 16 ? 3 : 1)

MIRRORED(F32, F16, BF16, Q8_0, Q4_0, Q4_1, PANEL, BLOCK, Q8_0_BYTES, Q4_0_BYTES, Q4_1_BYTES,
         sizeof(Weight))

enum {
    CHUNK = 192, /* columns of two panels unpacked at a time: 24 KiB, most of a small L1 */
    ALONE = 8,   /* tokens that are embedded before a thread team has woken */
    ROWS = 132,  /* rows that share an unpacked chunk: a multiple of every TILE, and half of a
                    step of 256, which two threads then halve instead of exchanging it */
    FEW = 4096,  /* values of x that one thread turns into integers for all */
    STRIP = 4,   /* rows, otherwise, of a thread at a time */
};

/* --- tiles ------------------------------------------------------------------------- */

typedef struct {
    const float *x;   /* first row and column */
    ptrdiff_t stride; /* floats from row to row; gathered ones are CHUNK apart instead */
    const uint8_t *w; /* first block of the first panel */
    size_t panel_bytes;
    ptrdiff_t cols;
    float *acc; /* [panels][rows][16] */
} tile;

/* acc += x · wᵀ over t.cols columns: rows × panels·16 outputs, all in registers. */
INLINE void multiply(int enc, int gathered, int rows, int panels, tile t)
{
    const ptrdiff_t stride = gathered ? CHUNK : t.stride;
    vf acc[WIDE][TILE][VECS];
    UNROLL for (int p = 0; p < panels; p++)
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int v = 0; v < VECS; v++)
                acc[p][r][v] = load(t.acc + (p * rows + r) * PANEL + v * LANES);
    for (ptrdiff_t k = 0; k < t.cols; k += block_cols(enc), t.w += block_bytes(enc)) {
        affine a[WIDE];
        if (!gathered)
            UNROLL for (int p = 0; p < panels; p++)
                prefetch(enc, t.w + p * t.panel_bytes, panels * t.panel_bytes);
        UNROLL for (int p = 0; p < panels; p++) a[p] = load_affine(enc, t.w + p * t.panel_bytes);
        UNROLL for (int side = 0; side < halves(enc); side++)
            for (int word = 0; word < words(enc); word++)
                UNROLL for (int b = 0; b < word_cols(enc); b++, t.x++) {
                    lanes w[WIDE];
                    UNROLL for (int p = 0; p < panels; p++)
                        w[p] = weights(enc, t.w + p * t.panel_bytes, &a[p], side, word, b);
                    if (gathered || rows > PAIR - 2) LOADED;
                    UNROLL for (int r = 0; r < rows; r++) {
                        vf x = splat(t.x[r * stride]);
                        UNROLL for (int p = 0; p < panels; p++)
                            UNROLL for (int v = 0; v < VECS; v++) acc[p][r][v] = mul_add(w[p].v[v], x, acc[p][r][v]);
                    }
                }
    }
    UNROLL for (int p = 0; p < panels; p++)
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int v = 0; v < VECS; v++)
                store(t.acc + (p * rows + r) * PANEL + v * LANES, acc[p][r][v]);
}

/* As many panels at once as hide the latency of an addition. More than PAIR rows are always gathered. */
INLINE void multiply_rows(int enc, int gathered, int rows, int panels, tile t)
{
    int now;
#define CASE(R)                                                                                \
    case R:                                                                                    \
        for (; panels && (R <= PAIR || gathered);                                              \
             panels -= now, t.w += now * t.panel_bytes, t.acc += now * R * PANEL)              \
            if (R <= WIDE_ROWS && !gathered && panels >= WIDE)                                 \
                multiply(enc, gathered, R, now = WIDE, t);                                     \
            else if (R <= PAIR && panels >= 2) multiply(enc, gathered, R, now = 2, t);         \
            else multiply(enc, gathered, R, now = 1, t);                                       \
        break;
    switch (rows) {
        CASE(1) CASE(2) CASE(3)
#if TILE >= 6
        CASE(4) CASE(5) CASE(6)
#endif
#if TILE >= 12
        CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
    }
#undef CASE
}

/* `cols` columns of a panel as float32 [cols][16]. `panel_bytes` is 0 if no other follows. */
INLINE void unpack(int enc, const uint8_t *w, size_t panel_bytes, ptrdiff_t cols, float *out)
{
    for (ptrdiff_t k = 0; k < cols; k += block_cols(enc), w += block_bytes(enc)) {
        affine a = load_affine(enc, w);
        prefetch(enc, w, 2 * panel_bytes);
        UNROLL for (int side = 0; side < halves(enc); side++)
            for (int word = 0; word < words(enc); word++)
                UNROLL for (int b = 0; b < word_cols(enc); b++, out += PANEL) {
                    lanes x = weights(enc, w, &a, side, word, b);
                    UNROLL for (int v = 0; v < VECS; v++) store(out + LANES * v, x.v[v]);
                }
    }
}

#define ENCODINGS(X) X(F32) X(F16) X(BF16) X(Q8_0) X(Q4_0) X(Q4_1)

#define DEFINE(E)                                                                           \
    static void multiply_##E(int rows, int panels, tile t)                                  \
    {                                                                                       \
        multiply_rows(E, 0, rows, panels, t);                                               \
    }                                                                                       \
    static void unpack_##E(const uint8_t *w, size_t panel_bytes, ptrdiff_t cols, float *out) \
    {                                                                                       \
        unpack(E, w, panel_bytes, cols, out);                                               \
    }
ENCODINGS(DEFINE)

#define ENTRY(E) [E] = {multiply_##E, unpack_##E},
static const struct {
    void (*multiply)(int rows, int panels, tile t);
    void (*unpack)(const uint8_t *w, size_t panel_bytes, ptrdiff_t cols, float *out);
} OF[] = {ENCODINGS(ENTRY)};

/* Inlined where it is called, gcc spills its sums: half as fast. */
static __attribute__((noinline)) void multiply_gathered(int rows, int panels, tile t)
{
    multiply_rows(F32, 1, rows, panels, t);
}

/* --- the product -------------------------------------------------------------------- */

/* Size of the nearly equal parts of n: a multiple of `unit`, at most `most`. */
INLINE ptrdiff_t part(ptrdiff_t n, ptrdiff_t most, ptrdiff_t unit)
{
    ptrdiff_t parts = ceil_div(n, most);
    return parts ? ceil_div(ceil_div(n, parts), unit) * unit : unit;
}

/* First row of tile i: full tiles and a rest that takes two panels at once, else all equal. */
INLINE ptrdiff_t tile_row(ptrdiff_t rows, ptrdiff_t i)
{
    if (PAIR < TILE && rows % TILE <= PAIR) return min(i * TILE, rows);
    return i * rows / ceil_div(rows, TILE);
}

INLINE ptrdiff_t chunk(ptrdiff_t k) { return part(k, CHUNK, BLOCK); }

/* Columns of x in chunks, [chunk][rows][CHUNK]. */
static void gather(product g, ptrdiff_t row, ptrdiff_t rows, float *gathered)
{
    ptrdiff_t step = chunk(g.k);
    for (ptrdiff_t k = 0; k < g.k; k += step)
        for (ptrdiff_t r = row; r < row + rows; r++, gathered += CHUNK)
            memcpy(gathered, g.x + r * g.k + k, min(step, g.k - k) * sizeof *gathered);
}

/* `rows` rows from `row`, at most ROWS, by one or two panels from p, or up to WIDE. `gathered` is those rows;
 * null, if they are PAIR or fewer. */
static void rows_by_panels(product g, const float *gathered, ptrdiff_t row, ptrdiff_t rows,
                           ptrdiff_t p, int panels)
{
    ALIGNED float acc[2 * ROWS * PANEL], unpacked[2 * CHUNK * PANEL];
    memset(acc, 0, panels * rows * PANEL * sizeof *acc);
    ptrdiff_t tiles = ceil_div(rows, TILE), step = chunk(g.k);
    size_t bytes = panel_bytes(g.enc, g.k);
    for (ptrdiff_t k = 0; k < g.k; k += step) {
        const uint8_t *w = g.w + p * bytes + panel_bytes(g.enc, k);
        tile t = {.stride = g.k, .w = w, .panel_bytes = bytes, .cols = min(step, g.k - k)};
        if (gathered && g.enc != F32) {
            t.w = (const uint8_t *)unpacked;
            t.panel_bytes = panel_bytes(F32, t.cols);
            for (int i = 0; i < panels; i++)
                OF[g.enc].unpack(w + i * bytes, bytes, t.cols, unpacked + i * t.cols * PANEL);
        }
        for (ptrdiff_t i = 0; i < tiles; i++) {
            ptrdiff_t r = tile_row(rows, i), height = tile_row(rows, i + 1) - r;
            int is_last = k + step >= g.k;
            t.acc = acc + r * panels * PANEL;
            if (is_last) expect(g, row + r, height, p, panels);
            if (gathered) {
                t.x = gathered + (k / step * rows + r) * CHUNK;
                multiply_gathered(height, panels, t);
            } else {
                t.x = g.x + (row + r) * g.k + k;
                OF[g.enc].multiply(height, panels, t);
            }
            if (is_last) write_out(g, t.acc, row + r, height, p, panels);
        }
    }
}

/* Floats that a thread gathers. */
INLINE ptrdiff_t gathered_floats(ptrdiff_t t, ptrdiff_t k)
{
    return t <= PAIR ? 0 : min(t, ROWS) * ceil_div(k, chunk(k)) * CHUNK;
}

/* One thread's part of a product, in order, so that what it reads next is known. Who is done
 * with his helps the others. */
typedef struct {
    ALIGNED ptrdiff_t next;
    ptrdiff_t end;
} stretch;

/* --- entry points: contiguous arrays, `enc` as in the enum ----------------------------- */

/* Floats of scratch that a product of t rows needs: never less for more rows or columns. */
ptrdiff_t evewatch_linear_scratch(const Weight *w, ptrdiff_t t, int threads)
{
    if (w->bits) return integer_room(w, t);
    return threads * gathered_floats(t, w->cols);
}

typedef struct {
    const Weight *w;
    product g;
    quantised q;
    ptrdiff_t t, step, wide, groups; /* so many rows and panels at a time; groups of panels */
    float *scratch;
    int seats;
    stretch *stretches; /* of each seat */
} job;

static void quantise_some(const void *what, int64_t item)
{
    const job *j = what;
    ptrdiff_t end = min((item + 1) * STRIP, j->t);
    for (ptrdiff_t row = item * STRIP; row < end; row++)
        quantise_row(j->w, j->g.x + row * j->g.k, j->q, row);
}

/* Its own stretch, then what is left of the others'. */
static void take_seat(const void *what, int64_t seat)
{
    const job *j = what;
    ptrdiff_t panels = ceil_div(j->g.n, PANEL), gathered_row = -1, at;
    float *gathered = j->t > PAIR ? j->scratch + seat * gathered_floats(j->t, j->g.k) : NULL;
    for (int i = 0; i < j->seats; i++) {
        stretch *s = j->stretches + (seat + i) % j->seats;
        while ((at = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED)) < s->end) {
            ptrdiff_t row = at / j->groups * j->step, rows = min(j->step, j->t - row);
            ptrdiff_t p = at % j->groups * j->wide;
            int count = (int)min(j->wide, panels - p);
            if (j->w->bits) {
                integer_rows_by_panels(j->w, j->g, j->q, row, rows, p, count);
                continue;
            }
            if (gathered && gathered_row != row)
                gather(j->g, gathered_row = row, rows, gathered);
            rows_by_panels(j->g, gathered, row, rows, p, count);
        }
    }
}

/* y [t, rows] = x [t, cols] · wᵀ + bias + residual. 0, or ROOM if `scratch` has fewer floats than
 * the product needs. */
int evewatch_linear(const Weight *w, const float *x, const float *bias, const float *residual,
                    float *y, float *scratch, ptrdiff_t scratch_floats, ptrdiff_t t,
                    const Team *team)
{
    int seats = (int)team->threads;
    stretch stretches[seats];
    job j = {w, {(int)w->encoding, x, w->data, bias, residual, y, w->rows, w->cols}};
    j.t = t, j.step = part(t, ROWS, TILE), j.wide = t > WIDE_ROWS || w->bits ? 2 : WIDE;
    j.groups = ceil_div(ceil_div(w->rows, PANEL), j.wide);
    j.scratch = scratch, j.seats = seats, j.stretches = stretches;
    if (scratch_floats < evewatch_linear_scratch(w, t, seats)) return ROOM;
    if (w->bits) {
        j.q = integer_carve(w, scratch, t);
        int is_small = t * w->cols <= FEW; /* sooner done than others are waited for */
        (is_small ? do_alone : team->run)(team, quantise_some, &j, ceil_div(t, STRIP));
    }
    ptrdiff_t all = ceil_div(t, j.step) * j.groups;
    for (int i = 0; i < seats; i++)
        stretches[i] = (stretch){all * i / seats, all * (i + 1) / seats};
    team->run(team, take_seat, &j, seats);
    return 0;
}

typedef struct {
    int enc;
    const uint8_t *w;
    const int64_t *tokens;
    float *y;
    ptrdiff_t k;
} lookup;

/* Row tokens[i] of a packed [n, k] matrix -> row i of y [t, k]. Unpacks a whole panel and keeps one
 * row of 16: a step embeds few tokens. */
static void embed_one(const void *what, int64_t i)
{
    const lookup *j = what;
    ALIGNED float unpacked[BLOCK * PANEL];
    const uint8_t *panel = j->w + j->tokens[i] / PANEL * panel_bytes(j->enc, j->k);
    for (ptrdiff_t at = 0; at < j->k; at += BLOCK) {
        ptrdiff_t cols = min(BLOCK, j->k - at);
        OF[j->enc].unpack(panel + panel_bytes(j->enc, at), 0, cols, unpacked);
        for (ptrdiff_t c = 0; c < cols; c++)
            j->y[i * j->k + at + c] = unpacked[c * PANEL + j->tokens[i] % PANEL];
    }
}

/* 0, or ROW_ID. */
int evewatch_embed(int enc, const uint8_t *w, const int64_t *tokens, float *y, ptrdiff_t t,
                   ptrdiff_t n, ptrdiff_t k, const Team *team)
{
    for (ptrdiff_t i = 0; i < t; i++)
        if (tokens[i] < 0 || tokens[i] >= n) return ROW_ID;
    lookup j = {enc, w, tokens, y, k};
    (t > ALONE ? team->run : do_alone)(team, embed_one, &j, t);
    return 0;
}

typedef struct {
    int enc;
    const uint8_t *rows;
    uint8_t *w;
    ptrdiff_t n, k;
} packing;

static void pack_panel(const void *what, int64_t p)
{
    const packing *j = what;
    ptrdiff_t blocks = j->k / block_cols(j->enc), bytes = block_bytes(j->enc) / PANEL;
    ptrdiff_t halves = j->enc == Q4_1 ? 2 : j->enc >= Q8_0; /* before the words of a block */
    for (ptrdiff_t b = 0; b < blocks; b++)
        for (ptrdiff_t r = 0; r < min(PANEL, j->n - p * PANEL); r++) {
            const uint8_t *from = j->rows + ((p * PANEL + r) * blocks + b) * bytes;
            uint8_t *to = j->w + (p * blocks + b) * bytes * PANEL;
            for (ptrdiff_t h = 0; h < halves; h++)
                memcpy(to + (h * PANEL + r) * 2, from + h * 2, 2);
            for (ptrdiff_t at = halves * 2; at < bytes; at += 4)
                memcpy(to + at * PANEL + r * 4, from + at, 4);
        }
}

/* The n rows of a file -> panels; w is zero before. */
void evewatch_pack(int enc, const uint8_t *rows, uint8_t *w, ptrdiff_t n, ptrdiff_t k,
                   const Team *team)
{
    packing j = {enc, rows, w, n, k};
    team->run(team, pack_panel, &j, ceil_div(n, PANEL));
}
