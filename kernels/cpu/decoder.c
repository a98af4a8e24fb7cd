/* A decoder from its first layer to its logits in one call: the other libraries' operations,
   one after another.

   One call a step leaves nothing between the operations: no interpreter, no allocation, and
   nobody who holds the interpreter's lock can make the threads wait. The operations come as
   addresses, because they are compiled apart (the cache's once for each page and head size). */
#include <string.h>
#include <time.h>

#include "native.h"
#include "team.h"
#include "weight.h"

typedef struct {
    const float *attn_norm, *qkv_bias, *q_norm, *k_norm, *out_bias, *mlp_norm; /* NULL: none */
    Weight qkv, out, gate_up, down;
    const void *cache; /* `Cache` of kv.h */
} Layer;

typedef struct {
    int (*linear)(const Weight *, const float *, const float *, const float *, float *, float *,
                  int64_t, int64_t, const Team *);
    int (*append_kv)(const void *, const void *, const float *, const float *, const float *,
                     int64_t, const float *, const float *, float, float *, int64_t, const Team *);
    int (*attend)(const void *, const void *, const float *, float *, float, int64_t, const Team *);
    void (*rms_norm)(const float *, const float *, float, float *, int64_t, int64_t, const Team *);
    void (*silu_mul)(const float *, float *, int64_t, int64_t, const Team *);
} Operations;

typedef struct {
    int64_t layers, hidden, query_heads, positions;
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

typedef struct {
    float *buffers; /* as many as decoder_buffers says */
    int64_t buffer_floats;
    float *scratch; /* of the products */
    int64_t scratch_floats;
} Room;

/* Float [rows, …] each; qkv is at least as wide as x. */
typedef struct {
    float *normed, *qkv, *q, *mixed, *gate_up, *gated;
} Buffers;

enum Part { LINEAR, APPEND, ATTEND, ROWWISE, HEAD, PARTS };

MIRRORED(sizeof(Weight), sizeof(Layer), sizeof(Operations), sizeof(Shape), sizeof(Logits),
         sizeof(Room), PARTS)

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

/* Floats of a row, rounded up to whole cache lines so that no buffer begins amid one. */
static int64_t lines(int64_t width) { return (width + 15) / 16 * 16; }

static int64_t qkv_width(const Shape *shape, const Layer *l) {
    return lines(l->qkv.rows > shape->hidden ? l->qkv.rows : shape->hidden);
}

/* Floats that the buffers of a step of so many rows need. */
int64_t decoder_buffers(const Shape *shape, const Layer *layers, int64_t rows) {
    return rows * (lines(shape->hidden) + qkv_width(shape, layers) + 2 * lines(layers->out.cols) +
                   lines(layers->gate_up.rows) + lines(layers->down.cols));
}

static Buffers carve(const Shape *shape, const Layer *l, float *at, int64_t rows) {
    Buffers b;
    b.normed = at, at += rows * lines(shape->hidden);
    b.qkv = at, at += rows * qkv_width(shape, l);
    b.q = at, at += rows * lines(l->out.cols);
    b.mixed = at, at += rows * lines(l->out.cols);
    b.gate_up = at, at += rows * lines(l->gate_up.rows);
    b.gated = at;
    return b;
}

static int product(const Operations *ops, const Weight *w, const float *x, const float *bias,
                   const float *residual, float *y, Room room, int64_t rows, const Team *team) {
    return ops->linear(w, x, bias, residual, y, room.scratch, room.scratch_floats, rows, team);
}

/* The logits of some rows of x. */
static int head(const Operations *ops, const Shape *shape, const float *x, Logits logits,
                Buffers b, Room room, const Team *team) {
    int64_t n = shape->hidden;
    for (int64_t i = 0; i < logits.count; i++)
        memcpy(b.qkv + i * n, x + logits.rows[i] * n, (size_t)n * sizeof *x);
    ops->rms_norm(b.qkv, shape->norm, shape->eps, b.normed, logits.count, n, team);
    return product(ops, &shape->head, b.normed, 0, 0, logits.out, room, logits.count, team);
}

/* x [rows, hidden], overwritten. `spent` [PARTS] grows by the nanoseconds of each. 0, or a
   Failure. */
int decoder_layers(const Operations *ops, const Shape *shape, const Layer *layers,
                   const void *step, float *x, int64_t rows, Logits logits, Room room,
                   int64_t *spent, const Team *team) {
    int64_t n = shape->hidden, last = now();
    int failed;
    if (room.buffer_floats < decoder_buffers(shape, layers, rows)) return ROOM;
    if (logits.count > rows) return ROW_ID; /* the buffers end there */
    for (int64_t i = 0; i < logits.count; i++)
        if (logits.rows[i] < 0 || logits.rows[i] >= rows) return ROW_ID;
    Buffers b = carve(shape, layers, room.buffers, rows);
    for (int64_t i = 0; i < shape->layers; i++) {
        const Layer *l = layers + i;
        ops->rms_norm(x, l->attn_norm, shape->eps, b.normed, rows, n, team);
        charge(spent, ROWWISE, &last);
        if ((failed = product(ops, &l->qkv, b.normed, l->qkv_bias, 0, b.qkv, room, rows, team)))
            return failed;
        charge(spent, LINEAR, &last);
        if ((failed = ops->append_kv(l->cache, step, b.qkv, shape->cos, shape->sin,
                                     shape->positions, l->q_norm, l->k_norm, shape->eps, b.q,
                                     shape->query_heads, team)))
            return failed;
        charge(spent, APPEND, &last);
        if ((failed = ops->attend(l->cache, step, b.q, b.mixed, shape->scale, shape->query_heads,
                                  team)))
            return failed;
        charge(spent, ATTEND, &last);
        if ((failed = product(ops, &l->out, b.mixed, l->out_bias, x, x, room, rows, team)))
            return failed;
        charge(spent, LINEAR, &last);
        ops->rms_norm(x, l->mlp_norm, shape->eps, b.normed, rows, n, team);
        charge(spent, ROWWISE, &last);
        if ((failed = product(ops, &l->gate_up, b.normed, 0, 0, b.gate_up, room, rows, team)))
            return failed;
        charge(spent, LINEAR, &last);
        ops->silu_mul(b.gate_up, b.gated, rows, l->down.cols, team);
        charge(spent, ROWWISE, &last);
        if ((failed = product(ops, &l->down, b.gated, 0, x, x, room, rows, team))) return failed;
        charge(spent, LINEAR, &last);
    }
    failed = head(ops, shape, x, logits, b, room, team);
    charge(spent, HEAD, &last);
    return failed;
}
