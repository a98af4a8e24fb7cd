/* Sums of integers over a block of 32 columns, in whatever instructions there are: they are exact,
 * so all of them have the same bits. */
#ifndef EVEWATCH_DOT_H
#define EVEWATCH_DOT_H

#include "panels.h"

/* How four weights meet four numbers of x in each 32-bit lane. Of 8 bits:
 *   DPBUSD  one instruction, unsigned · signed: q8_0 is shifted by 128
 *   MADDUBS pairs of unsigned · signed bytes in 16 bits: eight of nibbles fit (8·2·15·127); q8_0
 *           is widened instead
 *   SDOT    one instruction of signed bytes
 *   none    byte by byte, in plain C
 * Of 16 bits, columns 0 and 2, then 1 and 3:
 *   DPWSSD  one instruction each, MADD with an addition, or plain C */
#if LANES == 16 && defined(__AVX512VNNI__)
#define DPBUSD(s, u, x) _mm512_dpbusd_epi32((__m512i)(s), (__m512i)(u), (__m512i)(x))
#define DPWSSD(s, w, x) _mm512_dpwssd_epi32((__m512i)(s), (__m512i)(w), (__m512i)(x))
#elif LANES == 8 && defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define DPBUSD(s, u, x) _mm256_dpbusd_epi32((__m256i)(s), (__m256i)(u), (__m256i)(x))
#define DPWSSD(s, w, x) _mm256_dpwssd_epi32((__m256i)(s), (__m256i)(w), (__m256i)(x))
#elif LANES == 8 && defined(__AVXVNNI__)
#define DPBUSD(s, u, x) _mm256_dpbusd_avx_epi32((__m256i)(s), (__m256i)(u), (__m256i)(x))
#define DPWSSD(s, w, x) _mm256_dpwssd_avx_epi32((__m256i)(s), (__m256i)(w), (__m256i)(x))
#elif LANES == 16 && defined(__AVX512BW__)
#define MADDUBS(u, x) _mm512_maddubs_epi16((__m512i)(u), (__m512i)(x))
#define MADD(a, b) _mm512_madd_epi16((__m512i)(a), (__m512i)(b))
#elif LANES == 8 && defined(__AVX2__)
#define MADDUBS(u, x) _mm256_maddubs_epi16((__m256i)(u), (__m256i)(x))
#define MADD(a, b) _mm256_madd_epi16((__m256i)(a), (__m256i)(b))
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#define SDOT(s, w, x) vdotq_s32((int32x4_t)(s), (int8x16_t)(w), (int8x16_t)(x))
#endif

typedef int16_t v16 __attribute__((vector_size(4 * LANES)));

/* What is taken off the bits of a weight. Where it is 128, `word_of` has added it. */
INLINE int zero_of(int enc, int bits)
{
#ifdef DPBUSD
    if (enc == Q8_0 && bits == 8) return 128;
#endif
    return enc == Q4_0 ? 8 : 0;
}

INLINE vi splat_i(int32_t x) { return x - (vi){0}; }

/* Word `word` of a side of 16 columns, of 8 bits: a byte for each, of the nibbles or of q8_0. */
INLINE vi word_of(int enc, vi bits, int side)
{
    if (enc != Q8_0) return bits >> 4 * side & 0x0f0f0f0f;
#ifdef DPBUSD
    return bits ^ (int32_t)0x80808080; /* + 128 in each byte */
#else
    return bits;
#endif
}

/* Of 16 bits: its columns 0 and 2, or with `odd` 1 and 3. */
INLINE vi pair_of(int enc, vi bits, int side, int odd)
{
    if (enc != Q8_0) return bits >> (8 * odd + 4 * side) & 0x000f000f;
    return (vi)(odd ? (v16)bits >> 8 : (v16)bits << 8 >> 8);
}

#if defined(DPBUSD)
INLINE vi first_sum(vi shift) { return shift; }
INLINE vi dot(int enc, vi sum, vi w, vi x) { return (vi)DPBUSD(sum, w, x); }
INLINE vi dot_pair(vi sum, vi w, vi x) { return (vi)DPWSSD(sum, w, x); }
INLINE vi last_sum(int enc, int bits, vi sum, vi shift) { return sum; }
#elif defined(MADDUBS)
INLINE vi first_sum(vi shift) { return (vi){0}; }
/* gcc would add the sums up in another order, and run out of registers. */
#define IN_ORDER(sum) __asm__("" : "+v"(sum))
INLINE vi dot(int enc, vi sum, vi w, vi x)
{
    if (enc != Q8_0) sum = (vi)((v16)sum + (v16)MADDUBS(w, x));
    else sum += (vi)MADD((v16)w << 8 >> 8, (v16)x << 8 >> 8) + (vi)MADD((v16)w >> 8, (v16)x >> 8);
    IN_ORDER(sum);
    return sum;
}
INLINE vi dot_pair(vi sum, vi w, vi x)
{
    sum += (vi)MADD(w, x);
    IN_ORDER(sum);
    return sum;
}
INLINE vi last_sum(int enc, int bits, vi sum, vi shift)
{
    return (enc == Q8_0 || bits == 16 ? sum : (vi)MADD(sum, (v16){0} + 1)) + shift;
}
#else
INLINE vi first_sum(vi shift) { return shift; }
INLINE vi dot(int enc, vi sum, vi w, vi x)
{
#ifdef SDOT
    return (vi)SDOT(sum, w, x);
#else
    UNROLL for (int b = 24; b >= 0; b -= 8) sum += (w << b >> 24) * (x << b >> 24);
    return sum;
#endif
}
INLINE vi dot_pair(vi sum, vi w, vi x)
{
    return sum + (w << 16 >> 16) * (x << 16 >> 16) + (w >> 16) * (x >> 16);
}
INLINE vi last_sum(int enc, int bits, vi sum, vi shift) { return sum; }
#endif

#endif
