/* The rows of x as integers, for products of integers. */

#include "dot.h"

static const float LEAST = 0x1p-100f; /* 32767 over anything larger is finite */

ptrdiff_t integer_room(const Weight *w, ptrdiff_t t)
{
    return t * (w->cols * w->bits / 32 + 3 * (w->cols / BLOCK) + w->kept);
}

quantised integer_carve(const Weight *w, float *room, ptrdiff_t t)
{
    ptrdiff_t blocks = t * (w->cols / BLOCK);
    quantised x = {.q = (uint8_t *)room};
    x.scale = room + t * (w->cols * w->bits / 32);
    x.total = x.scale + blocks;
    x.shift = (int32_t *)(x.total + blocks);
    x.kept = x.total + 2 * blocks;
    return x;
}

INLINE int32_t bits_of(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* 32 values -> whole numbers of −most…most; their scale is returned, their sum in *total. Where one
 * of them is no number, or infinite, the scale is so too and the numbers are 0. */
INLINE float quantise(const float *x, float most, int32_t *q, int32_t *total)
{
    int32_t top = 0, sum = 0;
    for (int i = 0; i < BLOCK; i++) { /* as integers, so that NaN is the largest of all */
        int32_t size = bits_of(x[i]) & 0x7fffffff;
        top = size > top ? size : top;
    }
    float largest;
    memcpy(&largest, &top, sizeof largest);
    int usable = top < 0x7f800000 && largest >= LEAST;
    float up = usable ? most / largest : 0.0f;
    for (int i = 0; i < BLOCK; i++) { /* this addition rounds to whole numbers, ties to even */
        int32_t n = bits_of(x[i] * up + 0x1.8p23f) - bits_of(0x1.8p23f);
        q[i] = usable ? n : 0;
        sum += q[i];
    }
    *total = sum;
    return largest / most;
}

/* A block's numbers in the order in which they are broadcast: of 16 bits, columns 0 2 1 3 of four. */
INLINE void narrow(const int32_t *q, int bits, uint8_t *out)
{
    int8_t bytes[BLOCK];
    int16_t pairs[BLOCK];
    for (int i = 0; i < BLOCK; i++) bytes[i] = (int8_t)q[i];
    for (int i = 0; i < BLOCK; i++) pairs[i] = (int16_t)q[(i & ~3) | (i & 1) << 1 | (i & 2) >> 1];
    if (bits == 8) memcpy(out, bytes, sizeof bytes);
    else memcpy(out, pairs, sizeof pairs);
}

void quantise_row(const Weight *w, const float *x, quantised to, ptrdiff_t row)
{
    const int bits = (int)w->bits, zero = zero_of((int)w->encoding, bits);
    ptrdiff_t blocks = w->cols / BLOCK, next = 0;
    float *kept = to.kept + row * w->kept;
    for (ptrdiff_t b = 0, at = row * blocks; b < blocks; b++, at++, x += BLOCK) {
        ALIGNED float part[BLOCK];
        int32_t q[BLOCK], sum;
        ptrdiff_t first = next;
        memcpy(part, x, sizeof part);
        for (; next < w->kept && w->columns[next] < (b + 1) * BLOCK; next++) {
            kept[next] = x[w->columns[next] % BLOCK];
            part[w->columns[next] % BLOCK] = 0.0f;
        }
        to.scale[at] = quantise(part, bits == 8 ? 127.0f : 32767.0f, q, &sum);
        narrow(q, bits, to.q + at * BLOCK * bits / 8);
        to.shift[at] = -zero * sum;
        to.total[at] = (float)sum * to.scale[at];
        for (; first < next; first++) to.total[at] += kept[first];
    }
}
