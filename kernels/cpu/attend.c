/* attend: causal attention of a step's queries over their pages.

   A task is one tile of query rows (all of one page, so they see the same full pages) for
   one KV head; for a few, if it is a single row, whose time goes into waiting for pages: the
   heads of a page are neighbours in memory. Its query vectors, `rows x GROUP` for each head,
   share every load of K and V; the softmax runs online, page by page. Whatever the tile, one
   query vector goes through the same operations in the same order: its result depends on
   nothing else in the batch, nor on the number of threads. */
#include <math.h>

#include "kv.h"

#define COLS (PAGE / LANES)
/* Query vectors per pass over K and V, as many as keep their sums in 12 registers, or in 24 of
   AVX-512's 32. A score is two sums, over even and odd channels, so that the few vectors of a
   decode row do not wait for their own additions. */
#define SUMS (LANES == 16 ? 24 : 12)
#define SPLIT (LANES == 16 ? 2 : 1)
#define MIX_COLS (LANES == 16 ? 4 : 2)
#define MIX_VECTORS (SUMS / MIX_COLS)
#define SCORE_VECTORS (SUMS / SPLIT / COLS)
#define FIT (1536 / (DIM * GROUP))                       /* rows whose state fits in L1 */
#define TILE_ROWS (FIT < 1 ? 1 : FIT > PAGE ? PAGE : FIT)
#define HEADS 4 /* of a single row's task, at most */
#define SMALL 4 /* tasks of one size for each thread that leave no thread idle for long */
#define ALONE 256 /* visits of a vector to a page that are over before a thread team has woken */
#define VECTORS (TILE_ROWS * GROUP)

/* State of a task's query vectors of one head. */
typedef struct {
    float q[VECTORS][DIM];    /* in units of log2, static scales folded in */
    float fold[VECTORS][DIM]; /* q times the page's channel scales */
    float out[VECTORS][DIM];
    float weight[VECTORS][PAGE]; /* scores of a page, then weights of its V rows */
    vf sum[VECTORS], zero_sum[VECTORS];
    float top[VECTORS];  /* running maximum */
    float base[VECTORS]; /* what the page's zeros add to every score; or sum of q */
    float outlier[VECTORS * DIM]; /* [VECTORS, lanes]: q of the outlier channels */
} State;

INLINE vf load_as(const void *x, int64_t i, int wide) {
    return wide ? load_half((const half *)x + i) : load_int8((const int8_t *)x + i);
}

/* weight[r][t] = q[r] . k[:, t] for n query vectors */
INLINE void score(const int n, const float *q, const void *k, float *weight, const int wide) {
    vf acc[SPLIT][SCORE_VECTORS][COLS];
    for (int i = 0; i < SPLIT; i++)
        for (int r = 0; r < n; r++)
            for (int j = 0; j < COLS; j++) acc[i][r][j] = splat(0.0f);
    for (int c = 0; c < DIM; c += SPLIT)
        UNROLL for (int i = 0; i < SPLIT; i++) {
            vf x[COLS];
            for (int j = 0; j < COLS; j++) x[j] = load_as(k, (c + i) * PAGE + j * LANES, wide);
            for (int r = 0; r < n; r++) {
                vf y = splat(q[r * DIM + c + i]);
                for (int j = 0; j < COLS; j++) acc[i][r][j] = mul_add(y, x[j], acc[i][r][j]);
            }
        }
    for (int r = 0; r < n; r++)
        for (int j = 0; j < COLS; j++) {
            vf sum = acc[0][r][j];
            if (SPLIT == 2) sum += acc[SPLIT - 1][r][j];
            store(weight + r * PAGE + j * LANES, sum);
        }
}

/* out[r] += weight[r][:limit] . v[:limit], `cols` vectors of it */
INLINE void mix_cols(const int n, const int cols, const float *weight, const void *v, int at,
                     int limit, float *out, const int wide) {
    vf acc[MIX_VECTORS][MIX_COLS];
    for (int r = 0; r < n; r++)
        for (int j = 0; j < cols; j++) acc[r][j] = load(out + r * DIM + j * LANES);
    for (int t = 0; t < limit; t++) {
        vf x[MIX_COLS];
        for (int j = 0; j < cols; j++) x[j] = load_as(v, t * DIM + at + j * LANES, wide);
        for (int r = 0; r < n; r++) {
            vf y = splat(weight[r * PAGE + t]);
            for (int j = 0; j < cols; j++) acc[r][j] = mul_add(y, x[j], acc[r][j]);
        }
    }
    for (int r = 0; r < n; r++)
        for (int j = 0; j < cols; j++) store(out + r * DIM + j * LANES, acc[r][j]);
}

INLINE void mix(const int n, const float *weight, const void *v, int limit, float *out,
                const int wide) {
    int at = 0;
    for (; at + MIX_COLS * LANES <= DIM; at += MIX_COLS * LANES)
        mix_cols(n, MIX_COLS, weight, v, at, limit, out + at, wide);
    for (; at < DIM; at += LANES) mix_cols(n, 1, weight, v, at, limit, out + at, wide);
}

/* Runs `call(n)` on groups of at most `most` vectors, n a constant each time. There are
   always whole multiples of GROUP vectors, so few of the widths are ever compiled. */
#define WIDTH(most) (GROUP <= (most) ? (most) / GROUP * GROUP : (most))
#define REST(n, most, call)                                                     \
    if ((n) < WIDTH(most) && (n) % (GROUP <= (most) ? GROUP : 1) == 0 && left == (n)) \
        call((n) < WIDTH(most) ? (n) : 1)
#define IN_GROUPS(count, most, call)                                       \
    do {                                                                   \
        int m = 0;                                                         \
        for (; m + WIDTH(most) <= (count); m += WIDTH(most)) call(WIDTH(most)); \
        int left = (count) - m;                                            \
        REST(1, most, call);                                               \
        REST(2, most, call);                                               \
        REST(3, most, call);                                               \
        REST(4, most, call);                                               \
        REST(5, most, call);                                               \
        REST(6, most, call);                                               \
        REST(7, most, call);                                               \
        REST(8, most, call);                                               \
        REST(9, most, call);                                               \
        REST(10, most, call);                                              \
        REST(11, most, call);                                              \
    } while (0)

INLINE void score_all(const float *q, const void *k, float *weight, int count, const int wide) {
#define CALL(n) score((n), q + m * DIM, k, weight + m * PAGE, wide)
    IN_GROUPS(count, SCORE_VECTORS, CALL);
#undef CALL
}

INLINE void mix_all(const float *weight, const void *v, int limit, float *out, int count,
                    const int wide) {
#define CALL(n) mix((n), weight + m * PAGE, v, limit, out + m * DIM, wide)
    IN_GROUPS(count, MIX_VECTORS, CALL);
#undef CALL
}

static __attribute__((noinline)) void score_int8(const float *q, const int8_t *k, float *weight,
                                                 int count) {
    score_all(q, k, weight, count, 0);
}
static __attribute__((noinline)) void score_half(const float *q, const half *k, float *weight,
                                                 int count) {
    score_all(q, k, weight, count, 1);
}
static __attribute__((noinline)) void mix_int8(const float *weight, const int8_t *v, int limit,
                                               float *out, int count) {
    mix_all(weight, v, limit, out, count, 0);
}
static __attribute__((noinline)) void mix_half(const float *weight, const half *v, int limit,
                                               float *out, int count) {
    mix_all(weight, v, limit, out, count, 1);
}

/* One query vector's scores of one page become weights of its V rows; its running maximum,
   sum and output follow. Slots from `limit` on do not count. */
INLINE void soften(State *s, int m, vf *score, const half *v_scale, const half *v_zero,
                   int limit) {
    const vi lane = lane_numbers();
    vf top = splat(s->top[m]);
    vi above = {0};
    for (int j = 0; j < COLS; j++) {
        if (limit < PAGE) score[j] = pick(lane + j * LANES < limit, score[j], splat(-INFINITY));
        above |= score[j] > splat(s->top[m]);
        top = vmax(score[j], top);
    }
    float highest = s->top[m];
    if (any(above)) { /* seldom, once the first pages have been seen */
        highest = max_lanes(top);
        float shrink = power_of_two(splat(s->top[m] - highest))[0];
        for (int i = 0; i < DIM; i += LANES)
            store(s->out[m] + i, load(s->out[m] + i) * shrink);
        s->sum[m] *= shrink;
        s->zero_sum[m] *= shrink;
        s->top[m] = highest;
    }
    for (int j = 0; j < COLS; j++) {
        vf p = power_of_two(score[j] - highest);
        vi counts = lane + j * LANES < limit;
        if (limit < PAGE) p = pick(counts, p, splat(0.0f));
        s->sum[m] += p;
        if (v_zero)
            s->zero_sum[m] += pick(counts, p * load_half(v_zero + j * LANES), splat(0.0f));
        store(s->weight[m] + j * LANES, v_scale ? p * load_half(v_scale + j * LANES) : p);
    }
}

/* Scores of a page so far, with what the outlier plane adds. */
INLINE void add_outliers(const State *s, const Cache *cache, int64_t head, int m,
                         const half *plane, vf *score) {
    for (int64_t lane = 0; lane < cache->lanes; lane++) {
        if (cache->outliers[head * cache->lanes + lane] < 0) continue;
        vf q = splat(s->outlier[m * cache->lanes + lane]);
        for (int j = 0; j < COLS; j++)
            score[j] = mul_add(q, load_half(plane + lane * PAGE + j * LANES), score[j]);
    }
}

/* q times the scales of the page's channels, and q . zeros where there are any */
INLINE void fold_scales(State *s, int first, int count, const half *scale, const half *zero) {
    for (int i = 0; i < DIM; i += LANES) {
        vf factor = load_half(scale + i);
        for (int m = first; m < first + count; m++)
            store(s->fold[m] + i, load(s->q[m] + i) * factor);
    }
    for (int m = first; zero && m < first + count; m++) {
        vf dot = {0};
        for (int i = 0; i < DIM; i += LANES) dot = mul_add(load(s->q[m] + i), load_half(zero + i), dot);
        s->base[m] = sum_lanes(dot);
    }
}

typedef struct {
    const uint8_t *block; /* a head block that is needed soon */
    int64_t bytes;
} Ahead;

#define PARTS 4
/* Pages lie anywhere, which no hardware prefetcher foresees. A whole block at once would fill
   the core's miss buffers and stall it, so it is fetched in parts between the stages of a page;
   not into the nearest cache, which has the fewest of those buffers. */
INLINE void fetch(Ahead ahead, int part) {
    for (int64_t i = ahead.bytes * part / PARTS / 64 * 64; i < ahead.bytes * (part + 1) / PARTS; i += 64)
        __builtin_prefetch(ahead.block + i, 0, 2);
}

/* An hp block: vectors first … first+count-1 over its first `limit` slots. */
INLINE void visit_half(State *s, int first, int count, const half *k, const half *v, int limit,
                       Ahead ahead) {
    fetch(ahead, 0);
    score_half(s->q[first], k, s->weight[first], count);
    fetch(ahead, 1);
    for (int m = first; m < first + count; m++) {
        vf score[COLS];
        for (int j = 0; j < COLS; j++) score[j] = load(s->weight[m] + j * LANES);
        soften(s, m, score, NULL, NULL, limit);
    }
    fetch(ahead, 2);
    fetch(ahead, 3);
    mix_half(s->weight[first], v, limit, s->out[first], count);
}

INLINE const half *optional(const uint8_t *block, int64_t offset) {
    return offset < 0 ? NULL : (const half *)(block + offset);
}

/* An int8 page, the same way. */
INLINE void visit_int8(State *s, const Cache *cache, int64_t head, int first, int count,
                       const uint8_t *block, int limit, Ahead ahead,
                       const enum Format format) {
    const half *k_scale = optional(block, cache->k_scale), *k_zero = optional(block, cache->k_zero);
    const half *v_scale = optional(block, cache->v_scale), *v_zero = optional(block, cache->v_zero);
    const half *plane = optional(block, cache->k_out);
    fetch(ahead, 0);
    if (format == CHANNEL) fold_scales(s, first, count, k_scale, k_zero);
    score_int8(format == CHANNEL ? s->fold[first] : s->q[first],
               (const int8_t *)(block + cache->k), s->weight[first], count);
    fetch(ahead, 1);
    for (int m = first; m < first + count; m++) {
        vf score[COLS];
        for (int j = 0; j < COLS; j++) {
            score[j] = load(s->weight[m] + j * LANES);
            if (format == CHANNEL && k_zero) score[j] += s->base[m];
            if (format == TOKEN) score[j] *= load_half(k_scale + j * LANES);
            if (format == TOKEN && k_zero) score[j] += s->base[m] * load_half(k_zero + j * LANES);
        }
        if (plane) add_outliers(s, cache, head, m, plane, score);
        soften(s, m, score, format == STATIC ? NULL : v_scale, format == STATIC ? NULL : v_zero,
               limit);
    }
    fetch(ahead, 2);
    fetch(ahead, 3);
    mix_int8(s->weight[first], (const int8_t *)(block + cache->v), limit, s->out[first], count);
}

INLINE void visit(State *s, const Cache *cache, int64_t head, int first, int count,
                  const uint8_t *block, int limit, Ahead ahead, const enum Format format) {
    if (format == HALF)
        visit_half(s, first, count, (const half *)(block + cache->k),
                   (const half *)(block + cache->v), limit, ahead);
    else
        visit_int8(s, cache, head, first, count, block, limit, ahead, format);
}

typedef struct {
    const float *q;
    float *out;
    float scale; /* of the logits, times log2(e) */
    int64_t query_heads;
} Queries;

INLINE int64_t vector_at(const Queries *queries, Tile tile, int64_t head, int m) {
    int64_t row = tile.batch_row + m / GROUP;
    return (row * queries->query_heads + head * GROUP + m % GROUP) * DIM;
}

/* Gathers one query vector and takes its outlier channels apart. */
static void begin(State *s, const Cache *cache, int64_t head, int m, const float *q, float scale) {
    const float *fixed = cache->format == STATIC ? cache->k_static + head * DIM : NULL;
    for (int c = 0; c < DIM; c++) {
        s->q[m][c] = q[c] * scale * (fixed ? fixed[c] : 1.0f);
        s->out[m][c] = 0.0f;
    }
    for (int64_t lane = 0; cache->k_out >= 0 && lane < cache->lanes; lane++) {
        int32_t channel = cache->outliers[head * cache->lanes + lane];
        if (channel < 0) continue;
        s->outlier[m * cache->lanes + lane] = s->q[m][channel];
        /* An open page still needs them; elsewhere the plane alone counts. */
        if (cache->format == TOKEN) s->q[m][channel] = 0.0f;
    }
    vf total = {0};
    for (int i = 0; i < DIM; i += LANES) total += load(s->q[m] + i);
    s->base[m] = sum_lanes(total);
    s->sum[m] = s->zero_sum[m] = splat(0.0f);
    s->top[m] = -INFINITY;
}

static void finish(const State *s, const Cache *cache, int64_t head, int m, float *out) {
    const float *fixed = cache->format == STATIC ? cache->v_static + head * DIM : NULL;
    float share = 1.0f / sum_lanes(s->sum[m]), shift = sum_lanes(s->zero_sum[m]);
    for (int c = 0; c < DIM; c++)
        out[c] = (s->out[m][c] + shift) * share * (fixed ? fixed[c] : 1.0f);
}

typedef struct {
    Tile tile;
    int32_t head, heads;
} Task;

/* Every row up to itself, of the page that the tile's rows are in. */
INLINE void visit_own(State *s, const Cache *cache, int64_t head, Tile tile, const uint8_t *own,
                      const enum Format format) {
    const Ahead nothing = {NULL, 0};
    for (int r = 0; r < tile.rows; r++) {
        int limit = tile.slot + r + 1;
        if (format == CHANNEL)
            visit_half(s, r * GROUP, GROUP, (const half *)own, (const half *)own + BLOCK, limit,
                       nothing);
        else
            visit(s, cache, head, r * GROUP, GROUP, own, limit, nothing, format);
    }
}

INLINE void run_task(const Cache *cache, const Step *step, const Queries *queries,
                     const Task *task, const enum Format format) {
    State states[HEADS];
    const Tile tile = task->tile;
    const int count = tile.rows * GROUP;
    const int64_t own_bytes =
        format == CHANNEL ? 2 * BLOCK * (int64_t)sizeof(half) : cache->head_bytes;
    const uint8_t *own = format == CHANNEL
                             ? (const uint8_t *)open_block(cache, step, tile, task->head)
                             : head_block(cache, step, tile.sequence, tile.page, task->head);
    for (int32_t h = 0; h < task->heads; h++)
        for (int m = 0; m < count; m++)
            begin(states + h, cache, task->head + h, m,
                  queries->q + vector_at(queries, tile, task->head + h, m), queries->scale);
    for (int64_t page = 0; page < tile.page; page++) {
        const uint8_t *block = head_block(cache, step, tile.sequence, page, task->head);
        const int is_last = page + 1 == tile.page;
        const uint8_t *next =
            is_last ? own : head_block(cache, step, tile.sequence, page + 1, task->head);
        const int64_t bytes = is_last ? own_bytes : cache->head_bytes;
        for (int32_t h = 0; h < task->heads; h++)
            visit(states + h, cache, task->head + h, 0, count, block + h * cache->head_bytes, PAGE,
                  (Ahead){next + h * bytes, bytes}, format);
    }
    for (int32_t h = 0; h < task->heads; h++) {
        visit_own(states + h, cache, task->head + h, tile, own + h * own_bytes, format);
        for (int m = 0; m < count; m++)
            finish(states + h, cache, task->head + h, m,
                   queries->out + vector_at(queries, tile, task->head + h, m));
    }
}

/* One function per format: inside, the format is a constant. */
#define TASK(name, format)                                                         \
    static void name(const Cache *cache, const Step *step, const Queries *queries, \
                     const Task *task) {                                           \
        run_task(cache, step, queries, task, format);                              \
    }
TASK(task_half, HALF)
TASK(task_channel, CHANNEL)
TASK(task_token, TOKEN)
TASK(task_static, STATIC)

/* Visits of one query row to the pages of one head. */
INLINE int64_t cost(Tile tile) { return (int64_t)(tile.page + 1) * tile.rows; }

static int costlier(const void *a, const void *b) {
    const Task *one = a, *other = b;
    int64_t x = cost(one->tile) * one->heads, y = cost(other->tile) * other->heads;
    return (x < y) - (x > y);
}

/* The tasks of a step, the long ones first: they must not come last. NULL without memory. */
static Task *tasks_of(const Cache *cache, const Step *step, int threads, int64_t *count,
                      int64_t *visits) {
    int64_t tiles_count;
    Tile *tiles = tiles_of(step, TILE_ROWS, &tiles_count);
    if (!tiles) return NULL;
    Task *tasks = malloc((size_t)(tiles_count * cache->kv_heads + 1) * sizeof *tasks);
    *count = *visits = 0;
    for (int64_t i = 0; i < tiles_count; i++) *visits += cost(tiles[i]);
    for (int64_t i = 0; tasks && i < tiles_count; i++) {
        const int is_small = cost(tiles[i]) * SMALL * threads <= *visits;
        const int32_t all = (int32_t)cache->kv_heads;
        const int32_t most = tiles[i].rows == 1 && is_small ? HEADS : 1;
        for (int32_t head = 0; head < all; head += most)
            tasks[(*count)++] = (Task){tiles[i], head, all - head < most ? all - head : most};
    }
    free(tiles);
    if (tasks) qsort(tasks, (size_t)*count, sizeof *tasks, costlier);
    *visits *= cache->kv_heads * GROUP;
    return tasks;
}

/* q, out [T, query_heads, DIM]. 0, or a Failure. */
int attend(const Cache *cache, const Step *step, const float *q, float *out, float scale,
           int64_t query_heads, int threads) {
    static void (*const run[])(const Cache *, const Step *, const Queries *, const Task *) = {
        task_half, task_channel, task_token, task_static};
    const Queries queries = {q, out, scale * 1.44269504f, query_heads};
    int64_t count, visits;
    int failed = misfit(cache, step);
    if (failed) return failed;
    Task *tasks = tasks_of(cache, step, threads, &count, &visits);
    if (!tasks) return NO_MEMORY;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (visits > ALONE)
    for (int64_t i = 0; i < count; i++) run[cache->format](cache, step, &queries, tasks + i);
    free(tasks);
    return 0;
}
