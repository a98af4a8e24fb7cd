/* A decoder from its first layer to its logits in one call: the other libraries' operations,
   one after another.

   One call a step leaves nothing between the operations: no interpreter, no allocation, and
   nobody who holds the interpreter's lock can make the threads wait. The operations come as
   addresses, because they are compiled apart (the cache's once for each page and head size). */
#include <stdint.h>
#include <string.h>
#include <time.h>

typedef struct {
    int64_t encoding, rows, cols;
    const uint8_t *data;
} Weight;

typedef struct {
    const float *attn_norm, *qkv_bias, *q_norm, *k_norm, *out_bias, *mlp_norm; /* NULL: none */
    Weight qkv, out, gate_up, down;
    const void *cache; /* `Cache` of kv.h */
} Layer;

typedef struct {
    void (*linear)(int, const float *, const uint8_t *, const float *, const float *, float *,
                   float *, intptr_t, intptr_t, intptr_t, int);
    int (*append_kv)(const void *, const void *, const float *, const float *, const float *,
                     const float *, const float *, float, float *, int64_t, int);
    int (*attend)(const void *, const void *, const float *, float *, float, int64_t, int);
    void (*rms_norm)(const float *, const float *, float, float *, int64_t, int64_t, int);
    void (*silu_mul)(const float *, float *, int64_t, int64_t, int);
} Operations;

typedef struct {
    int64_t layers, hidden, query_heads;
    const float *cos, *sin;
    float eps, scale;
    const float *norm;
    Weight head;
} Shape;

typedef struct {
    int64_t count;
    const int64_t *rows; /* of x */
    float *out;          /* [count, head.rows] */
} Logits;

typedef struct { /* float [rows, …] each, but for the products' scratch; qkv is at least as
                    wide as x */
    float *normed, *qkv, *q, *mixed, *gate_up, *gated, *scratch;
} Buffers;

enum Part { LINEAR, APPEND, ATTEND, ROWWISE, HEAD };

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Charge the time since *last to a part. */
static void charge(int64_t *spent, enum Part part, int64_t *last) {
    int64_t t = now();
    spent[part] += t - *last;
    *last = t;
}

static void product(const Operations *ops, Weight w, const float *x, const float *bias,
                    const float *residual, float *y, float *scratch, int64_t rows, int threads) {
    ops->linear((int)w.encoding, x, w.data, bias, residual, y, scratch, rows, w.rows, w.cols,
                threads);
}

/* The logits of some rows of x. */
static void head(const Operations *ops, const Shape *shape, const float *x, Logits logits, Buffers b,
                 int threads) {
    int64_t n = shape->hidden;
    for (int64_t i = 0; i < logits.count; i++)
        memcpy(b.qkv + i * n, x + logits.rows[i] * n, (size_t)n * sizeof *x);
    ops->rms_norm(b.qkv, shape->norm, shape->eps, b.normed, logits.count, n, threads);
    product(ops, shape->head, b.normed, 0, 0, logits.out, b.scratch, logits.count, threads);
}

enum Failure { NO_MEMORY = 1, NOT_A_ROW = 2 };

/* x [rows, hidden], overwritten. `spent` [5] grows by the nanoseconds of each part. 0, or what
   failed. */
int decoder_layers(const Operations *ops, const Shape *shape, const Layer *layers,
                   const void *step, float *x, int64_t rows, Logits logits, Buffers b,
                   int64_t *spent, int threads) {
    int64_t n = shape->hidden, last = now();
    if (logits.count > rows) return NOT_A_ROW; /* the buffers end there */
    for (int64_t i = 0; i < logits.count; i++)
        if (logits.rows[i] < 0 || logits.rows[i] >= rows) return NOT_A_ROW;
    for (int64_t i = 0; i < shape->layers; i++) {
        const Layer *l = layers + i;
        ops->rms_norm(x, l->attn_norm, shape->eps, b.normed, rows, n, threads);
        charge(spent, ROWWISE, &last);
        product(ops, l->qkv, b.normed, l->qkv_bias, 0, b.qkv, b.scratch, rows, threads);
        charge(spent, LINEAR, &last);
        if (ops->append_kv(l->cache, step, b.qkv, shape->cos, shape->sin, l->q_norm, l->k_norm,
                           shape->eps, b.q, shape->query_heads, threads))
            return NO_MEMORY;
        charge(spent, APPEND, &last);
        if (ops->attend(l->cache, step, b.q, b.mixed, shape->scale, shape->query_heads, threads))
            return NO_MEMORY;
        charge(spent, ATTEND, &last);
        product(ops, l->out, b.mixed, l->out_bias, x, x, b.scratch, rows, threads);
        charge(spent, LINEAR, &last);
        ops->rms_norm(x, l->mlp_norm, shape->eps, b.normed, rows, n, threads);
        charge(spent, ROWWISE, &last);
        product(ops, l->gate_up, b.normed, 0, 0, b.gate_up, b.scratch, rows, threads);
        charge(spent, LINEAR, &last);
        ops->silu_mul(b.gate_up, b.gated, rows, l->down.cols, threads);
        charge(spent, ROWWISE, &last);
        product(ops, l->down, b.gated, 0, x, x, b.scratch, rows, threads);
        charge(spent, LINEAR, &last);
    }
    head(ops, shape, x, logits, b, threads);
    charge(spent, HEAD, &last);
    return 0;
}
