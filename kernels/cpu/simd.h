/* Eight floats at a time in the compiler's vector types, so that one text serves AVX2,
   AVX-512 and NEON. Only the widening loads and narrowing stores have a form of their own for
   x86, where GCC takes the portable one apart lane by lane. */
#ifndef EVEWATCH_SIMD_H
#define EVEWATCH_SIMD_H

#include <stdint.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#define LANES 8
#define INLINE static inline __attribute__((always_inline))

typedef _Float16 half;
typedef float f8 __attribute__((vector_size(32)));
typedef int32_t i8 __attribute__((vector_size(32)));
typedef float f8_any __attribute__((vector_size(32), aligned(4), may_alias));

INLINE f8 load(const float *x) { return *(const f8_any *)x; }
INLINE void store(float *x, f8 v) { *(f8_any *)x = v; }
INLINE f8 splat(float x) { return (f8){x, x, x, x, x, x, x, x}; }
INLINE f8 pick(i8 mask, f8 yes, f8 no) { return (f8)((mask & (i8)yes) | (~mask & (i8)no)); }
#if defined(__AVX__)
INLINE f8 max8(f8 a, f8 b) { return (f8)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE f8 min8(f8 a, f8 b) { return (f8)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE int any8(i8 mask) { return _mm256_movemask_ps((__m256)mask) != 0; }
#else
INLINE f8 max8(f8 a, f8 b) { return pick(a > b, a, b); }
INLINE f8 min8(f8 a, f8 b) { return pick(a < b, a, b); }
INLINE int any8(i8 mask) {
    int any = 0;
    for (int i = 0; i < LANES; i++) any |= mask[i];
    return any != 0;
}
#endif
INLINE f8 abs8(f8 x) { return (f8)((i8)x & 0x7fffffff); }

#if defined(__AVX2__) && defined(__F16C__)
INLINE f8 load_int8(const int8_t *x) {
    return (f8)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)x)));
}
INLINE f8 load_half(const half *x) {
    return (f8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x));
}
INLINE void store_half(half *x, f8 v) {
    _mm_storeu_si128((__m128i *)x, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}
/* Whole numbers of -128…127. */
INLINE void store_int8(int8_t *x, f8 v) {
    __m256i whole = _mm256_cvtps_epi32((__m256)v);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64((__m128i *)x, _mm_packs_epi16(words, words));
}
#else
typedef int8_t b8 __attribute__((vector_size(8)));
typedef int16_t s8 __attribute__((vector_size(16)));
typedef half h8 __attribute__((vector_size(16)));
INLINE f8 load_int8(const int8_t *x) {
    b8 v;
    memcpy(&v, x, sizeof v);
    return __builtin_convertvector(
        __builtin_convertvector(__builtin_convertvector(v, s8), i8), f8);
}
INLINE f8 load_half(const half *x) {
    h8 v;
    memcpy(&v, x, sizeof v);
    return __builtin_convertvector(v, f8);
}
INLINE void store_half(half *x, f8 v) {
    h8 r = __builtin_convertvector(v, h8);
    memcpy(x, &r, sizeof r);
}
INLINE void store_int8(int8_t *x, f8 v) {
    b8 r = __builtin_convertvector(__builtin_convertvector(v, i8), b8);
    memcpy(x, &r, sizeof r);
}
#endif

/* Sums and maxima across lanes, always in the same order. */
INLINE float sum_lanes(f8 x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}
INLINE float larger(float a, float b) { return a > b ? a : b; }
INLINE float smaller(float a, float b) { return a < b ? a : b; }
INLINE float max_lanes(f8 x) {
    return larger(larger(larger(x[0], x[4]), larger(x[2], x[6])),
                  larger(larger(x[1], x[5]), larger(x[3], x[7])));
}

/* Nearest whole number, ties to even, for |x| < 2^22. */
INLINE f8 round8(f8 x) {
    const float shift = 0x1.8p23f;
    return (x + shift) - shift;
}

/* 2^x, relative error below 2e-7; x under -126 counts as -126. The polynomial is the
   Taylor series of 2^f to degree 6, enough for |f| <= 1/2. */
INLINE f8 exp2_8(f8 x) {
    x = max8(x, splat(-126.0f));
    f8 whole = round8(x), f = x - whole;
    f8 y = splat(1.5403530e-4f);
    y = y * f + 1.3333558e-3f;
    y = y * f + 9.6181291e-3f;
    y = y * f + 5.5504109e-2f;
    y = y * f + 2.4022651e-1f;
    y = y * f + 6.9314718e-1f;
    y = y * f + 1.0f;
    return (f8)((i8)y + (__builtin_convertvector(whole, i8) << 23));
}

#endif
