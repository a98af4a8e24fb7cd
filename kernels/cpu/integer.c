/* Products of integers: x in int8 or int16 with a scale for each row and block of 32 columns, W in
 * the bytes of its file. kernels/integer.py defines every bit.
 *
 *   y = Σ blocks  d · (scale · Σ q·u + Σ kept x·u)  [+ m · (scale · Σ q + Σ kept x)]
 *
 * q is −127…127 or −32767…32767, u the weight in units of d. The sum over a block's columns is exact
 * in 32 bits, in whatever order and instructions; what is rounded is one chain over the blocks, in
 * order of k, whatever the number of rows, tiles or threads.
 *
 * Columns that stand out of their block would take its resolution: they are zero in q, and kept
 * in float.
 */

#include "dot.h"

/* TILE rows × PAIR panels: their sums, as floats and as integers, fit the register file. */
#if LANES == 16
#define TILE 6
#define PAIR 2
#else
#define TILE 3
#define PAIR 1
#endif

typedef struct {
    const uint8_t *w; /* a block of the first panel */
    size_t panel_bytes;
    quantised x; /* from the first row on */
    ptrdiff_t blocks, keeps;
    const int32_t *columns; /* [keeps] */
    float *acc; /* [panels][rows][16] */
} tile;

INLINE vi broadcast(const uint8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return splat_i(four);
}

typedef struct {
    vi v[PAIR][TILE][VECS][4];
} sums;

/* Sums of integers that a tile keeps for each output, so that none waits for the one before. */
INLINE int ways_of(int outputs)
{
#ifdef MADDUBS
    return 1; /* a sum of 16 bits waits for an addition only */
#else
    return outputs >= 8 ? 1 : outputs >= 4 ? 2 : 4;
#endif
}

typedef struct {
    vf v[PAIR][TILE][VECS];
} floats;

/* A column of block b that x keeps in float, `j` its number among them. */
INLINE void add_kept(int enc, int rows, int panels, const tile *t, ptrdiff_t j, floats *part)
{
    const unsigned column = (unsigned)t->columns[j] % BLOCK, side = column / 16;
    const uint8_t *at = t->w + word_at(enc, side, column % 16 / 4);
    UNROLL for (int p = 0; p < panels; p++)
        UNROLL for (int v = 0; v < VECS; v++) {
            vi raw = load_i32(at + p * t->panel_bytes + 4 * LANES * v);
            vf w = code(enc, raw, side, column % 4);
            UNROLL for (int r = 0; r < rows; r++) {
                vf *to = &part->v[p][r][v];
                *to = mul_add(w, splat(t->x.kept[r * t->keeps + j]), *to);
            }
        }
}

/* Four columns of every panel by those of every row, of 8 bits, or two of 16. */
INLINE void add_word(int enc, int bits, int odd, int rows, int panels, const tile *t, ptrdiff_t b,
                     int side, int word, sums *sum)
{
    const int way = (bits == 8 ? word : 2 * word + odd) % ways_of(rows * panels * VECS);
    const uint8_t *q = t->x.q + b * BLOCK * bits / 8 + (16 * side + 4 * word) * bits / 8 + 4 * odd;
    vi w[PAIR][VECS];
    UNROLL for (int p = 0; p < panels; p++)
        UNROLL for (int v = 0; v < VECS; v++) {
            const uint8_t *at = t->w + p * t->panel_bytes + word_at(enc, side, word);
            vi raw = load_i32(at + 4 * LANES * v);
            w[p][v] = bits == 8 ? word_of(enc, raw, side) : pair_of(enc, raw, side, odd);
        }
    UNROLL for (int r = 0; r < rows; r++) {
        vi x = broadcast(q + r * t->blocks * BLOCK * bits / 8);
        UNROLL for (int p = 0; p < panels; p++)
            UNROLL for (int v = 0; v < VECS; v++) {
                vi *to = &sum->v[p][r][v][way];
                *to = bits == 8 ? dot(enc, *to, w[p][v], x) : dot_pair(*to, w[p][v], x);
            }
    }
}

/* Block b by itself: its sums in units of d. */
INLINE floats multiply_block(int enc, int bits, int rows, int panels, const tile *t, ptrdiff_t b)
{
    const int ways = ways_of(rows * panels * VECS), has_zero = zero_of(enc, bits) != 0;
    const vi none = {0};
    sums sum;
    floats part;
    UNROLL for (int r = 0; r < rows; r++) {
        vi shift = has_zero ? splat_i(t->x.shift[r * t->blocks + b]) : none;
        UNROLL for (int p = 0; p < panels; p++)
            UNROLL for (int v = 0; v < VECS; v++)
                UNROLL for (int i = 0; i < ways; i++)
                    sum.v[p][r][v][i] = i ? none : first_sum(shift);
    }
    UNROLL for (int word = 0; word < 4; word++)
        UNROLL for (int side = 0; side < 2; side++) {
            add_word(enc, bits, 0, rows, panels, t, b, side, word, &sum);
            if (bits == 16) add_word(enc, bits, 1, rows, panels, t, b, side, word, &sum);
        }
    UNROLL for (int r = 0; r < rows; r++) {
        vf scale = splat(t->x.scale[r * t->blocks + b]);
        vi shift = has_zero ? splat_i(t->x.shift[r * t->blocks + b]) : none;
        UNROLL for (int p = 0; p < panels; p++)
            UNROLL for (int v = 0; v < VECS; v++) {
                vi whole = sum.v[p][r][v][0];
                UNROLL for (int i = 1; i < ways; i++) whole += sum.v[p][r][v][i];
                part.v[p][r][v] = to_float(last_sum(enc, bits, whole, shift)) * scale;
            }
    }
    return part;
}

/* rows × panels·16 outputs, all in registers. */
INLINE void multiply(int enc, int bits, int rows, int panels, tile t)
{
    floats acc = {0};
    for (ptrdiff_t b = 0, j = 0; b < t.blocks; b++, t.w += block_bytes(enc)) {
        UNROLL for (int p = 0; p < panels; p++)
            prefetch(enc, t.w + p * t.panel_bytes, 2 * t.panel_bytes);
        floats part = multiply_block(enc, bits, rows, panels, &t, b);
        for (; j < t.keeps && t.columns[j] < (b + 1) * BLOCK; j++)
            add_kept(enc, rows, panels, &t, j, &part);
        UNROLL for (int p = 0; p < panels; p++) {
            affine a = load_affine(enc, t.w + p * t.panel_bytes);
            UNROLL for (int r = 0; r < rows; r++) {
                vf total = splat(t.x.total[r * t.blocks + b]);
                UNROLL for (int v = 0; v < VECS; v++) {
                    vf y = mul_add(a.d.v[v], part.v[p][r][v], acc.v[p][r][v]);
                    acc.v[p][r][v] = enc == Q4_1 ? mul_add(a.m.v[v], total, y) : y;
                }
            }
        }
    }
    UNROLL for (int p = 0; p < panels; p++)
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int v = 0; v < VECS; v++)
                store(t.acc + (p * rows + r) * PANEL + v * LANES, acc.v[p][r][v]);
}

INLINE void multiply_rows(int enc, int bits, int rows, int panels, tile t)
{
#define CASE(R)                                                   \
    case R:                                                       \
        if (panels == 2) multiply(enc, bits, R, PAIR, t);         \
        else multiply(enc, bits, R, 1, t);                        \
        break;
    switch (rows) {
        CASE(1) CASE(2) CASE(3)
#if TILE >= 6
        CASE(4) CASE(5) CASE(6)
#endif
    }
#undef CASE
}

#define EACH(X) X(Q8_0, 8) X(Q8_0, 16) X(Q4_0, 8) X(Q4_0, 16) X(Q4_1, 8) X(Q4_1, 16)

#define DEFINE(E, B)                                              \
    static void multiply_##E##_##B(int rows, int panels, tile t)  \
    {                                                             \
        multiply_rows(E, B, rows, panels, t);                     \
    }
EACH(DEFINE)

#define ENTRY(E, B) [E][B / 8 - 1] = multiply_##E##_##B,
static void (*const MULTIPLY[][2])(int rows, int panels, tile t) = {EACH(ENTRY)};

static quantised from_row(const Weight *w, quantised x, ptrdiff_t row)
{
    ptrdiff_t blocks = row * (w->cols / BLOCK);
    return (quantised){x.q + blocks * BLOCK * w->bits / 8, x.scale + blocks, x.total + blocks,
                       x.shift + blocks, x.kept + row * w->kept};
}

void integer_rows_by_panels(const Weight *w, product g, quantised x, ptrdiff_t row, ptrdiff_t rows,
                            ptrdiff_t p, int panels)
{
    ALIGNED float acc[PAIR * TILE * PANEL];
    ptrdiff_t tiles = ceil_div(rows, TILE);
    tile t = {.panel_bytes = panel_bytes(g.enc, g.k), .blocks = g.k / BLOCK};
    t.acc = acc, t.keeps = w->kept, t.columns = w->columns;
    for (int now; panels > 0; p += now, panels -= now) {
        now = (int)min(panels, rows > 1 ? PAIR : 1); /* one row waits for memory: in one stream */
        t.w = g.w + p * t.panel_bytes;
        for (ptrdiff_t i = 0; i < tiles; i++) {
            ptrdiff_t r = row + i * rows / tiles, height = row + (i + 1) * rows / tiles - r;
            t.x = from_row(w, x, r);
            expect(g, r, height, p, now);
            MULTIPLY[g.enc][w->bits / 8 - 1]((int)height, now, t);
            write_out(g, acc, r, height, p, now);
        }
    }
}
