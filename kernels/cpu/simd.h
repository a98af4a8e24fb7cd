/* LANES floats at a time in the compiler's vector types, so that one text serves AVX2, AVX-512
   and NEON: sixteen with AVX-512 unless NARROW is set, else eight, or what the includer says.
   Only what GCC takes apart lane by lane has a form of its own for x86.

   The compiler fuses nothing by itself (-ffp-contract=off): where a product and a sum are one
   rounding, the text says mul_add(). So a result's bits do not change with how a loop is unrolled. */
#ifndef EVEWATCH_SIMD_H
#define EVEWATCH_SIMD_H

#include <stdint.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#if defined(LANES)
#elif defined(__AVX512F__) && !defined(NARROW)
#define LANES 16
#else
#define LANES 8
#endif
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef _Float16 half;
typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef float vf_any __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float f8 __attribute__((vector_size(32)));

INLINE vf load(const float *x) { return *(const vf_any *)x; }
INLINE void store(float *x, vf v) { *(vf_any *)x = v; }
INLINE vf splat(float x) { return x - (vf){0}; }
INLINE vf pick(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }
INLINE vi lane_numbers(void) {
    vi n;
    for (int i = 0; i < LANES; i++) n[i] = i;
    return n;
}

/* mul_add: a * b + c, rounded once. vmax, vmin: b where one of the two is NaN. imax: of integers. */
#if LANES == 16
INLINE vf mul_add(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE vf vmax(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf vmin(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vi imax(vi a, vi b) { return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b); }
INLINE int any(vi mask) { return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0; }
#elif LANES == 8 && defined(__AVX2__) && defined(__FMA__)
INLINE vf mul_add(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE vf vmax(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf vmin(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vi imax(vi a, vi b) { return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b); }
INLINE int any(vi mask) { return _mm256_movemask_ps((__m256)mask) != 0; }
#else
INLINE vf mul_add(vf a, vf b, vf c) {
#ifdef __FP_FAST_FMAF
    for (int i = 0; i < LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#else
    return a * b + c;
#endif
}
INLINE vf vmax(vf a, vf b) { return pick(a > b, a, b); }
INLINE vf vmin(vf a, vf b) { return pick(a < b, a, b); }
INLINE vi imax(vi a, vi b) { return (vi)pick(a > b, (vf)a, (vf)b); }
INLINE int any(vi mask) {
    int found = 0;
    for (int i = 0; i < LANES; i++) found |= mask[i];
    return found != 0;
}
#endif

/* store_int8 takes whole numbers of -128…127. load_code: the low or the high half of each byte. */
#if LANES == 16
INLINE vi load_bytes(const uint8_t *x) {
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)x));
}
INLINE vf whole(vi x) { return (vf)_mm512_cvtepi32_ps((__m512i)x); }
INLINE vf load_int8(const int8_t *x) {
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)x)));
}
INLINE vf load_half(const half *x) {
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x));
}
INLINE void store_half(half *x, vf v) {
    _mm256_storeu_si256((__m256i *)x, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}
INLINE void store_int8(int8_t *x, vf v) {
    _mm_storeu_si128((__m128i *)x, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32((__m512)v)));
}
#elif LANES == 8 && defined(__AVX2__) && defined(__F16C__)
INLINE vi load_bytes(const uint8_t *x) {
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)x));
}
INLINE vf whole(vi x) { return (vf)_mm256_cvtepi32_ps((__m256i)x); }
INLINE vf load_int8(const int8_t *x) {
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)x)));
}
INLINE vf load_half(const half *x) {
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x));
}
INLINE void store_half(half *x, vf v) {
    _mm_storeu_si128((__m128i *)x, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}
INLINE void store_int8(int8_t *x, vf v) {
    __m256i whole = _mm256_cvtps_epi32((__m256)v);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64((__m128i *)x, _mm_packs_epi16(words, words));
}
#else
typedef int8_t vb __attribute__((vector_size(LANES)));
typedef int16_t vs __attribute__((vector_size(2 * LANES)));
typedef half vh __attribute__((vector_size(2 * LANES)));
typedef uint8_t vub __attribute__((vector_size(LANES)));
INLINE vi load_bytes(const uint8_t *x) {
    vub v;
    memcpy(&v, x, sizeof v);
    return __builtin_convertvector(v, vi);
}
INLINE vf whole(vi x) { return __builtin_convertvector(x, vf); }
INLINE vf load_int8(const int8_t *x) {
    vb v;
    memcpy(&v, x, sizeof v);
    return __builtin_convertvector(__builtin_convertvector(__builtin_convertvector(v, vs), vi), vf);
}
INLINE vf load_half(const half *x) {
    vh v;
    memcpy(&v, x, sizeof v);
    return __builtin_convertvector(v, vf);
}
INLINE void store_half(half *x, vf v) {
    vh r = __builtin_convertvector(v, vh);
    memcpy(x, &r, sizeof r);
}
INLINE void store_int8(int8_t *x, vf v) {
    vb r = __builtin_convertvector(__builtin_convertvector(v, vi), vb);
    memcpy(x, &r, sizeof r);
}
#endif

INLINE vf load_code(const uint8_t *x, const int high) {
    vi bytes = load_bytes(x);
    return whole(high ? bytes >> 4 : bytes & 15);
}

/* Nearest whole number, ties to even, for |x| < 2^22. */
INLINE vf nearest(vf x) {
    const float shift = 0x1.8p23f;
    return (x + shift) - shift;
}

/* b where one of the two is NaN */
INLINE float larger(float a, float b) { return a > b ? a : b; }
INLINE float smaller(float a, float b) { return a < b ? a : b; }

#if LANES >= 8

/* Sums and maxima across lanes, always in the same order. */
#if LANES == 16
INLINE f8 lower(vf x) { return (f8)_mm512_castps512_ps256((__m512)x); }
INLINE f8 upper(vf x) {
    return (f8)_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd((__m512)x), 1));
}
INLINE f8 sum_eight(vf x) { return lower(x) + upper(x); }
INLINE f8 max_eight(vf x) {
    return (f8)_mm256_max_ps((__m256)lower(x), (__m256)upper(x));
}
#else
INLINE f8 sum_eight(vf x) { return x; }
INLINE f8 max_eight(vf x) { return x; }
#endif
INLINE float sum_lanes(vf v) {
    f8 x = sum_eight(v);
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}
INLINE float max_lanes(vf v) {
    f8 x = max_eight(v);
    return larger(larger(larger(x[0], x[4]), larger(x[2], x[6])),
                  larger(larger(x[1], x[5]), larger(x[3], x[7])));
}

/* 2^x, relative error below 2e-7; x under -126 counts as -126, NaN stays NaN. The polynomial
   is the Taylor series of 2^f to degree 6, enough for |f| <= 1/2. */
INLINE vf power_of_two(vf x) {
    x = vmax(splat(-126.0f), x);
    vf whole = nearest(x), f = x - whole;
    vf y = splat(1.5403530e-4f);
    y = mul_add(y, f, splat(1.3333558e-3f));
    y = mul_add(y, f, splat(9.6181291e-3f));
    y = mul_add(y, f, splat(5.5504109e-2f));
    y = mul_add(y, f, splat(2.4022651e-1f));
    y = mul_add(y, f, splat(6.9314718e-1f));
    y = mul_add(y, f, splat(1.0f));
    return (vf)((vi)y + (__builtin_convertvector(whole, vi) << 23));
}
#endif /* LANES >= 8 */

#endif
