/* Matrices in panels of 16 rows, and how the outputs of a product are shared out and written.
 *
 * A panel is a run of blocks along K:
 *
 *   f32         1 column:   f32 w[16]
 *   f16, bf16   2 columns:  u16 w[16][2]
 *   q8_0       32 columns:  f16 d[16]       | i8 q[8][16][4]   w = q·d
 *   q4_0       32 columns:  f16 d[16]       | u8 q[4][16][4]   w = (q − 8)·d
 *   q4_1       32 columns:  f16 d[16] m[16] | u8 q[4][16][4]   w = q·d + m
 *
 * Byte [g][row][b] of q is byte 4g + b of the file's block: for q8_0 that column; for
 * nibbles, column 4g + b low and that + 16 high. So 16 outputs accumulate side by side in
 * vector registers, scales are vectors too, and a shift in a 32-bit lane widens a value.
 */
#ifndef EVEWATCH_PANELS_H
#define EVEWATCH_PANELS_H

#include <stddef.h>

#if !defined(__AVX2__)
#define LANES 4
#endif
#include "native.h"
#include "simd.h"
#include "weight.h"

/* A vector that straddles two cache lines costs two loads. */
#define ALIGNED __attribute__((aligned(64)))

#define PANEL 16
#define VECS (PANEL / LANES)
#define BLOCK 32

enum { F32, F16, BF16, Q8_0, Q4_0, Q4_1 };
enum { Q8_0_BYTES = 34, Q4_0_BYTES = 18, Q4_1_BYTES = 20 }; /* of a block of one row */

typedef struct {
    vf v[VECS]; /* one value for each row of a panel */
} lanes;

/* --- packed blocks ---------------------------------------------------------------- */

INLINE int block_cols(int enc) { return enc == F32 ? 1 : enc <= BF16 ? 2 : BLOCK; }

INLINE size_t block_bytes(int enc)
{
    switch (enc) {
    case F32:
    case F16:
    case BF16: return 4 * PANEL;
    case Q8_0: return Q8_0_BYTES * PANEL;
    case Q4_0: return Q4_0_BYTES * PANEL;
    default: return Q4_1_BYTES * PANEL;
    }
}

INLINE size_t panel_bytes(int enc, ptrdiff_t k) { return k / block_cols(enc) * block_bytes(enc); }

INLINE vf to_float(vi x) { return __builtin_convertvector(x, vf); }

INLINE vi load_i32(const uint8_t *p)
{
    vi x;
    memcpy(&x, p, sizeof x);
    return x;
}

typedef struct {
    lanes d, m; /* w = q·d + m, for encodings that have them */
} affine;

INLINE affine load_affine(int enc, const uint8_t *block)
{
    affine a = {0};
    UNROLL for (int v = 0; v < VECS; v++) {
        if (enc >= Q8_0) a.d.v[v] = load_half((const half *)block + LANES * v);
        if (enc == Q4_1) a.m.v[v] = load_half((const half *)block + PANEL + LANES * v);
    }
    return a;
}

/* A quantised block is walked in two halves of four words (vectors of 32-bit lanes) of four
 * columns: bytes, or their low or high nibbles. A float block is one word. */
INLINE int halves(int enc) { return enc <= BF16 ? 1 : 2; }

INLINE int words(int enc) { return enc <= BF16 ? 1 : 4; }

INLINE int word_cols(int enc) { return block_cols(enc) / (halves(enc) * words(enc)); }

INLINE size_t word_at(int enc, unsigned side, unsigned word)
{
    switch (enc) {
    case Q8_0: return 2 * PANEL + (4 * side + word) * 4 * PANEL;
    case Q4_0: return 2 * PANEL + word * 4 * PANEL;
    case Q4_1: return 4 * PANEL + word * 4 * PANEL;
    default: return 0;
    }
}

INLINE vf as_float(vi bits) { return (vf)bits; }

/* The nibble at `shift` of each lane, plus `lowest`. */
INLINE vf nibbles(vi bits, unsigned shift, float lowest)
{
#if LANES == 16 /* a table of all sixteen: the look-up minds no bits but the lowest four */
    vf table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return (vf)_mm512_permutexvar_ps((__m512i)(bits >> shift), (__m512)(table + lowest));
#else
    return to_float((bits >> shift & 15) + (int32_t)lowest);
#endif
}

/* The float16 in the upper half of each lane. Moving the exponent by a multiplication is
 * exact for subnormals too. */
INLINE vf half_to_float(vi high)
{
    vi small = (high >> 3) & (int32_t)0x8fffe000;
    vi special = ((small & 0x0f800000) == 0x0f800000) & 0x7f800000; /* inf, nan */
    return as_float((vi)(as_float(small) * 0x1p112f) | special);
}

/* Column b of a word of a quantised block, in units of d. */
INLINE vf code(int enc, vi bits, unsigned side, unsigned b)
{
    if (enc == Q8_0) return to_float(bits << (int)(24 - 8 * b) >> 24);
    return nibbles(bits, 8 * b + 4 * side, enc == Q4_0 ? -8 : 0);
}

/* Column b of a word. */
INLINE lanes weights(int enc, const uint8_t *block, const affine *a, unsigned side, unsigned word,
                     unsigned b)
{
    lanes w;
    UNROLL for (int v = 0; v < VECS; v++) {
        vi bits = load_i32(block + word_at(enc, side, word) + 4 * LANES * v);
        switch (enc) {
        case F32: w.v[v] = as_float(bits); break;
        case F16: w.v[v] = half_to_float(b ? bits : bits << 16); break;
        case BF16: w.v[v] = as_float(b ? bits & ~0xffff : bits << 16); break;
        case Q8_0:
        case Q4_0: w.v[v] = code(enc, bits, side, b) * a->d.v[v]; break;
        case Q4_1: w.v[v] = mul_add(code(enc, bits, side, b), a->d.v[v], a->m.v[v]); break;
        }
    }
    return w;
}

/* What this thread reads `ahead` bytes on is on its way while a block is computed. Past the end of w
 * nothing happens. */
INLINE void prefetch(int enc, const uint8_t *block, size_t ahead)
{
    UNROLL for (size_t at = 0; at < block_bytes(enc); at += 64)
        __builtin_prefetch(block + ahead + at, 0, 2);
}

/* --- the product -------------------------------------------------------------------- */

typedef struct {
    int enc;
    const float *x;
    const uint8_t *w;
    const float *bias;     /* [n] or null */
    const float *residual; /* [t, n] or null; may be y */
    float *y;
    ptrdiff_t n, k;
} product;

INLINE ptrdiff_t min(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }

INLINE ptrdiff_t ceil_div(ptrdiff_t a, ptrdiff_t b) { return (a + b - 1) / b; }

/* acc [panels][rows][16] -> the rows from `row` of the panels from p. */
static inline void write_out(product g, const float *acc, ptrdiff_t row, ptrdiff_t rows,
                             ptrdiff_t p, int panels)
{
    for (int i = 0; i < panels; i++) {
        ptrdiff_t first = (p + i) * PANEL, cols = min(PANEL, g.n - first);
        for (ptrdiff_t r = 0; r < rows; r++, acc += PANEL) {
            ptrdiff_t at = (row + r) * g.n + first;
            if (cols == PANEL)
                UNROLL for (int v = 0; v < PANEL; v += LANES) {
                    vf sum = load(acc + v);
                    if (g.bias) sum += load(g.bias + first + v);
                    if (g.residual) sum += load(g.residual + at + v);
                    store(g.y + at + v, sum);
                }
            else
                for (ptrdiff_t c = 0; c < cols; c++) {
                    float sum = acc[c];
                    if (g.bias) sum += g.bias[first + c];
                    if (g.residual) sum += g.residual[at + c];
                    g.y[at + c] = sum;
                }
        }
    }
}

/* `write_out` comes soon: its lines of y are fetched while the sums are computed. */
INLINE void expect(product g, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t p, int panels)
{
    for (ptrdiff_t r = row; r < row + rows; r++)
        for (int i = 0; i < panels; i++)
            __builtin_prefetch(g.y + r * g.n + (p + i) * PANEL, 1, 3);
}

/* --- products of integers: integer_rows.c, integer.c -------------------------------------- */

/* The rows of x as integers; B = K / 32. */
typedef struct {
    uint8_t *q;                 /* [t, K] numbers of w->bits */
    float *scale, *total;       /* [t, B]; scale · Σ q, and what is kept */
    int32_t *shift;             /* [t, B] */
    float *kept;                /* [t, w->kept] */
} quantised;

/* Floats that t rows of x need. */
ptrdiff_t integer_room(const Weight *w, ptrdiff_t t);
quantised integer_carve(const Weight *w, float *room, ptrdiff_t t);
void quantise_row(const Weight *w, const float *x, quantised to, ptrdiff_t row);

/* `rows` rows from `row` by one or two panels from p. */
void integer_rows_by_panels(const Weight *w, product g, quantised x, ptrdiff_t row, ptrdiff_t rows,
                            ptrdiff_t p, int panels);

#endif
