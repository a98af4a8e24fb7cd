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

enum { EACH = BLOCK / LANES };

/* Everywhere the largest, and the sum, of all lanes. Numbers are whole and small: the sum is exact. */
INLINE vi largest_of(vi x)
{
    UNROLL for (int apart = LANES / 2; apart; apart /= 2)
        x = imax(x, __builtin_shuffle(x, lane_numbers() ^ apart));
    return x;
}

INLINE vf sum_of(vf x)
{
    UNROLL for (int apart = LANES / 2; apart; apart /= 2)
        x += __builtin_shuffle(x, lane_numbers() ^ apart);
    return x;
}

/* In the order in which they are broadcast: of 16 bits, columns 0 2 1 3 of four. */
INLINE void store_numbers(vf n, int bits, uint8_t *to)
{
    if (bits == 8) {
        store_int8((int8_t *)to, n);
        return;
    }
    typedef int16_t pairs __attribute__((vector_size(2 * LANES)));
    const vi lane = lane_numbers(), from = (lane & ~3) | (lane & 1) << 1 | (lane & 2) >> 1;
    pairs p = __builtin_convertvector(__builtin_shuffle(__builtin_convertvector(n, vi), from), pairs);
    memcpy(to, &p, sizeof p);
}

/* 32 values, but for those of the columns in the bits of `kept`, -> whole numbers of −most…most;
 * their scale is returned, their sum in *total. Where one of them is no number, or infinite, the
 * scale is so too and the numbers are 0. */
INLINE float quantise(const float *x, uint32_t kept, int bits, uint8_t *q, float *total)
{
    const float most = bits == 8 ? 127.0f : 32767.0f;
    vf v[EACH], sum = {0};
    vi top = {0};
    UNROLL for (int i = 0; i < EACH; i++) {
        vi stays = (splat_i((int32_t)kept) >> (lane_numbers() + LANES * i) & 1) - 1;
        v[i] = (vf)((vi)load(x + LANES * i) & stays);
        top = imax(top, (vi)v[i] & 0x7fffffff); /* as integers: NaN is the largest of all */
    }
    top = largest_of(top);
    float largest = ((vf)top)[0];
    int usable = top[0] < 0x7f800000 && largest >= LEAST;
    vf up = splat(usable ? most / largest : 0.0f);
    UNROLL for (int i = 0; i < EACH; i++) {
        vf n = (vf)((vi)nearest(v[i] * up) & splat_i(-usable));
        store_numbers(n, bits, q + LANES * i * bits / 8);
        sum += n;
    }
    *total = sum_of(sum)[0];
    return largest / most;
}

INLINE void quantise_blocks(const Weight *w, int bits, const float *x, quantised to, ptrdiff_t row)
{
    const int zero = zero_of((int)w->encoding, bits);
    ptrdiff_t blocks = w->cols / BLOCK, next = 0;
    float *kept = to.kept + row * w->kept;
    for (ptrdiff_t b = 0, at = row * blocks; b < blocks; b++, at++, x += BLOCK) {
        ptrdiff_t first = next;
        uint32_t columns = 0;
        float sum;
        for (; next < w->kept && w->columns[next] < (b + 1) * BLOCK; next++) {
            kept[next] = x[w->columns[next] % BLOCK];
            columns |= 1u << w->columns[next] % BLOCK;
        }
        to.scale[at] = quantise(x, columns, bits, to.q + at * BLOCK * bits / 8, &sum);
        to.shift[at] = -zero * (int32_t)sum;
        to.total[at] = sum * to.scale[at];
        for (; first < next; first++) to.total[at] += kept[first];
    }
}

void quantise_row(const Weight *w, const float *x, quantised to, ptrdiff_t row)
{
    if (w->bits == 8) quantise_blocks(w, 8, x, to, row);
    else quantise_blocks(w, 16, x, to, row);
}
