/* RMSNorm, SiLU gating, the largest of a row. A row's result depends on that row alone. */
#include <math.h>

#include "simd.h"
#include "team.h"

/* Values below which waking a thread team costs more than it saves. */
#define NORM_ALONE 131072
#define SILU_ALONE 32768

typedef struct {
    const float *x, *weight;
    float eps, *y;
    int64_t *places, n;
} Rows;

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
            sum[j] = mul_add(v, v, sum[j]);
        }
    for (; i < n; i += LANES) {
        vf v = load_part(x + i, n - i < LANES ? n - i : LANES);
        sum[0] = mul_add(v, v, sum[0]);
    }
    return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static void norm_row(const void *job, int64_t r) {
    const Rows *rows = job;
    const float *in = rows->x + r * rows->n;
    float *out = rows->y + r * rows->n;
    float factor = 1.0f / sqrtf(sum_of_squares(in, rows->n) / (float)rows->n + rows->eps);
    for (int64_t i = 0; i < rows->n; i++) out[i] = in[i] * factor * rows->weight[i];
}

/* y[r] = x[r] * weight / sqrt(mean(x[r]^2) + eps); x, y [rows, n] */
void rms_norm(const float *x, const float *weight, float eps, float *y, int64_t rows, int64_t n,
              const Team *team) {
    const Rows job = {x, weight, eps, y, NULL, n};
    (rows * n > NORM_ALONE ? team->run : do_alone)(team, norm_row, &job, rows);
}

INLINE vf silu(vf x) {
    const float log2e = 1.44269504f;
    return x / (1.0f + power_of_two(vmin(x * -log2e, splat(126.0f))));
}

static void silu_row(const void *job, int64_t r) {
    const Rows *rows = job;
    const int64_t n = rows->n;
    const float *gate = rows->x + r * 2 * n, *up = gate + n;
    float *out = rows->y + r * n;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store(out + i, silu(load(gate + i)) * load(up + i));
    if (i < n) {
        vf last = silu(load_part(gate + i, n - i)) * load_part(up + i, n - i);
        memcpy(out + i, &last, (size_t)(n - i) * sizeof *out);
    }
}

/* y = silu(gate) * up; gate_up [rows, 2n], y [rows, n] */
void silu_mul(const float *gate_up, float *y, int64_t rows, int64_t n, const Team *team) {
    const Rows job = {gate_up, NULL, 0.0f, y, NULL, n};
    (rows * n > SILU_ALONE ? team->run : do_alone)(team, silu_row, &job, rows);
}

#define STRETCH (32 * LANES) /* values whose largest is known before the next ones are read */

/* The largest of n values; any NaN is larger. */
static float largest(const float *x, int64_t n) {
    vf top[4];
    vi odd = {0};
    for (int j = 0; j < 4; j++) top[j] = splat(x[0]);
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int j = 0; j < 4; j++) {
            vf v = load(x + i + j * LANES);
            odd |= v != v;
            top[j] = vmax(v, top[j]);
        }
    float highest = max_lanes(vmax(vmax(top[0], top[1]), vmax(top[2], top[3])));
    int is_odd = any(odd);
    for (; i < n; i++) {
        is_odd |= x[i] != x[i];
        highest = larger(x[i], highest);
    }
    return is_odd ? NAN : highest;
}

static void argmax_row(const void *job, int64_t r) {
    const Rows *rows = job;
    const float *row = rows->x + r * rows->n;
    int64_t from = 0, at;
    float best = -INFINITY;
    for (int64_t i = 0; i < rows->n && best == best; i += STRETCH) {
        float one = largest(row + i, rows->n - i < STRETCH ? rows->n - i : STRETCH);
        if (!(one <= best)) best = one, from = i;
    }
    for (at = from; !(best == best ? row[at] == best : row[at] != row[at]); at++) {}
    rows->y[r] = best;
    rows->places[r] = at;
}

/* Of each row of x [rows, n] the largest value, and where it is first. */
void argmax(const float *x, float *values, int64_t *places, int64_t rows, int64_t n,
            const Team *team) {
    const Rows job = {x, NULL, 0.0f, values, places, n};
    team->run(team, argmax_row, &job, rows);
}
