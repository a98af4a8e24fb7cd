/* RMSNorm and SiLU gating. A row's result depends on that row alone. */
#include <math.h>

#include "simd.h"

/* Values below which waking a thread team costs more than it saves. */
#define NORM_ALONE 131072
#define SILU_ALONE 32768

INLINE vf load_part(const float *x, int64_t n) {
    vf v = {0};
    memcpy(&v, x, (size_t)n * sizeof *x);
    return v;
}

static float sum_of_squares(const float *x, int64_t n) {
    vf sum[4] = {{0}, {0}, {0}, {0}};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int j = 0; j < 4; j++) {
            vf v = load(x + i + j * LANES);
            sum[j] += v * v;
        }
    for (; i < n; i += LANES) {
        vf v = load_part(x + i, n - i < LANES ? n - i : LANES);
        sum[0] += v * v;
    }
    return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* y[r] = x[r] * weight / sqrt(mean(x[r]^2) + eps); x, y [rows, n] */
void rms_norm(const float *x, const float *weight, float eps, float *y, int64_t rows, int64_t n,
              int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (rows * n > NORM_ALONE)
    for (int64_t r = 0; r < rows; r++) {
        const float *in = x + r * n;
        float *out = y + r * n;
        float factor = 1.0f / sqrtf(sum_of_squares(in, n) / (float)n + eps);
        for (int64_t i = 0; i < n; i++) out[i] = in[i] * factor * weight[i];
    }
}

INLINE vf silu(vf x) {
    const float log2e = 1.44269504f;
    return x / (1.0f + power_of_two(vmin(x * -log2e, splat(126.0f))));
}

/* y = silu(gate) * up; gate_up [rows, 2n], y [rows, n] */
void silu_mul(const float *gate_up, float *y, int64_t rows, int64_t n, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (rows * n > SILU_ALONE)
    for (int64_t r = 0; r < rows; r++) {
        const float *gate = gate_up + r * 2 * n, *up = gate + n;
        float *out = y + r * n;
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES)
            store(out + i, silu(load(gate + i)) * load(up + i));
        if (i < n) {
            vf last = silu(load_part(gate + i, n - i)) * load_part(up + i, n - i);
            memcpy(out + i, &last, (size_t)(n - i) * sizeof *out);
        }
    }
}
