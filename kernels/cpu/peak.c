/* The machine's ceilings, for kernels/bench.py: how fast it multiplies, how fast it reads. */
#include "simd.h"

#define CHAINS 12 /* enough to hide the latency of a multiply-add, few enough for registers */

int multiply_adds(void) { return CHAINS * LANES; }

/* `rounds` times so many multiply-adds on each thread; the sum keeps them alive. */
float multiply_add(int64_t rounds, int threads) {
    float total = 0.0f;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        vf acc[CHAINS];
        volatile float seed = 0.999f;
        vf x = splat(seed), y = splat(1.0f - seed);
        for (int j = 0; j < CHAINS; j++) acc[j] = splat((float)j);
        for (int64_t i = 0; i < rounds; i++)
            for (int j = 0; j < CHAINS; j++) acc[j] = mul_add(acc[j], x, y);
        for (int j = 0; j < CHAINS; j++) total += sum_lanes(acc[j]);
    }
    return total;
}

/* Reads n floats once. */
float read_all(const float *x, int64_t n, int threads) {
    float total = 0.0f;
#pragma omp parallel for num_threads(threads) reduction(+ : total) schedule(static)
    for (int64_t block = 0; block < n / 1024; block++) {
        vf acc[4] = {{0}, {0}, {0}, {0}};
        for (int64_t i = 0; i < 1024; i += 4 * LANES)
            for (int j = 0; j < 4; j++) acc[j] += load(x + block * 1024 + i + j * LANES);
        total += sum_lanes((acc[0] + acc[1]) + (acc[2] + acc[3]));
    }
    return total;
}
