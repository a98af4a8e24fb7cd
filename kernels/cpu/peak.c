/* The machine's ceilings, for kernels/bench.py: how fast it multiplies, how fast it reads. */
#include "simd.h"
#include "team.h"

#define CHAINS 12 /* enough to hide the latency of a multiply-add, few enough for registers */
#define STRETCH 65536 /* floats that a thread reads at a time */

typedef struct {
    const float *x;
    int64_t n; /* of rounds, or of x */
    float *totals; /* an item's: they keep its work alive */
} Job;

int multiply_adds(void) { return CHAINS * LANES; }

static void multiply_add_on(const void *what, int64_t item) {
    const Job *job = what;
    vf acc[CHAINS];
    volatile float seed = 0.999f;
    vf x = splat(seed), y = splat(1.0f - seed), sum = {0};
    for (int j = 0; j < CHAINS; j++) acc[j] = splat((float)j);
    for (int64_t i = 0; i < job->n; i++)
        for (int j = 0; j < CHAINS; j++) acc[j] = mul_add(acc[j], x, y);
    for (int j = 0; j < CHAINS; j++) sum += acc[j];
    job->totals[item] = sum_lanes(sum);
}

/* `rounds` times so many multiply-adds on each thread. */
float multiply_add(int64_t rounds, const Team *team) {
    float totals[team->threads], total = 0.0f;
    const Job job = {NULL, rounds, totals};
    team->run(team, multiply_add_on, &job, team->threads);
    for (int64_t i = 0; i < team->threads; i++) total += totals[i];
    return total;
}

static void read_stretch(const void *what, int64_t item) {
    const Job *job = what;
    const int64_t start = item * STRETCH;
    const int64_t end = start + STRETCH < job->n ? start + STRETCH : job->n / 1024 * 1024;
    vf acc[4] = {{0}, {0}, {0}, {0}};
    for (int64_t i = start; i < end; i += 4 * LANES)
        for (int j = 0; j < 4; j++) acc[j] += load(job->x + i + j * LANES);
    job->totals[item] = sum_lanes((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

/* Reads n floats once. */
float read_all(const float *x, int64_t n, const Team *team) {
    const int64_t count = (n + STRETCH - 1) / STRETCH;
    float totals[count], total = 0.0f;
    const Job job = {x, n, totals};
    team->run(team, read_stretch, &job, count);
    for (int64_t i = 0; i < count; i++) total += totals[i];
    return total;
}
