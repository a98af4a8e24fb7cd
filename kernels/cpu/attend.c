/* attend: causal attention of a step's queries over their pages.

   A task is one tile of query rows (all of one page, so they see the same full pages) for
   one KV head; for a few, if it is a single row, whose time goes into waiting for pages: the
   heads of a page are neighbours in memory. Its query vectors, `rows x GROUP` for each head,
   share every load of K and V; the softmax runs online, page by page. Whatever the tile, one
   query vector goes through the same operations in the same order: its result depends on
   nothing else in the batch, nor on the number of threads. */
#include <math.h>

#include "kv.h"
#include "team.h"

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
#define WEIGHTS (GROUPS * PAGE) /* of a vector; without groups the first PAGE of them */

/* State of a task's query vectors of one head. */
typedef struct {
    float q[VECTORS][DIM];    /* in units of log2, static scales folded in */
    float fold[VECTORS][DIM]; /* q times the page's channel scales */
    float out[VECTORS][DIM];
    float weight[VECTORS][WEIGHTS]; /* scores of a page, then weights of its V rows, by group */
    vf sum[VECTORS], zero_sum[VECTORS][GROUPS];
    float top[VECTORS];  /* running maximum */
    float base[VECTORS]; /* what the page's zeros add to every score; or sum of q */
    float outlier[VECTORS * DIM]; /* [VECTORS, lanes]: q of the outlier channels */
} State;

/* LANES values of row `row + odd` (row: even) from column `at` on. Rows of four bits share bytes. */
INLINE vf load_row(const void *x, int row, const int odd, int width, int at, const int bits) {
    if (bits == 4) return load_code((const uint8_t *)x + row / 2 * width + at, odd);
    int64_t i = (row + odd) * width + at;
    return bits == 8 ? load_int8((const int8_t *)x + i) : load_half((const half *)x + i);
}

/* weight[r][t] = q[r] . k[:, t] for n query vectors */
INLINE void score(const int n, const float *q, const void *k, float *weight, const int bits) {
    vf acc[SPLIT][SCORE_VECTORS][COLS];
    for (int i = 0; i < SPLIT; i++)
        for (int r = 0; r < n; r++)
            for (int j = 0; j < COLS; j++) acc[i][r][j] = splat(0.0f);
    for (int c = 0; c < DIM; c += 2)
        UNROLL for (int i = 0; i < 2; i++) {
            vf x[COLS];
            for (int j = 0; j < COLS; j++) x[j] = load_row(k, c, i, PAGE, j * LANES, bits);
            for (int r = 0; r < n; r++) {
                vf y = splat(q[r * DIM + c + i]);
                for (int j = 0; j < COLS; j++)
                    acc[i % SPLIT][r][j] = mul_add(y, x[j], acc[i % SPLIT][r][j]);
            }
        }
    for (int r = 0; r < n; r++)
        for (int j = 0; j < COLS; j++) {
            vf sum = acc[0][r][j];
            if (SPLIT == 2) sum += acc[SPLIT - 1][r][j];
            store(weight + r * WEIGHTS + j * LANES, sum);
        }
}

/* out[r] += weight[r][:limit] . v[:limit], `cols` vectors of it from column `at` on. Four bits
   come two rows at a time, and `limit` is even there. */
INLINE void mix_cols(const int n, const int cols, const float *weight, const void *v, int at,
                     int limit, float *out, const int bits) {
    const int rows = bits == 4 ? 2 : 1;
    vf acc[MIX_VECTORS][MIX_COLS];
    for (int r = 0; r < n; r++)
        for (int j = 0; j < cols; j++) acc[r][j] = load(out + r * DIM + at + j * LANES);
    for (int t = 0; t < limit; t += rows)
        UNROLL for (int i = 0; i < rows; i++) {
            vf x[MIX_COLS];
            for (int j = 0; j < cols; j++) x[j] = load_row(v, t, i, DIM, at + j * LANES, bits);
            for (int r = 0; r < n; r++)
                for (int j = 0; j < cols; j++) {
                    int group = bits == 4 ? (at + j * LANES) / V_GROUP : 0;
                    vf y = splat(weight[r * WEIGHTS + group * PAGE + t + i]);
                    acc[r][j] = mul_add(y, x[j], acc[r][j]);
                }
        }
    for (int r = 0; r < n; r++)
        for (int j = 0; j < cols; j++) store(out + r * DIM + at + j * LANES, acc[r][j]);
}

INLINE void mix(const int n, const float *weight, const void *v, int limit, float *out,
                const int bits) {
    int at = 0;
    for (; at + MIX_COLS * LANES <= DIM; at += MIX_COLS * LANES)
        mix_cols(n, MIX_COLS, weight, v, at, limit, out, bits);
    for (; at < DIM; at += LANES) mix_cols(n, 1, weight, v, at, limit, out, bits);
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

INLINE void score_all(const float *q, const void *k, float *weight, int count, const int bits) {
#define CALL(n) score((n), q + m * DIM, k, weight + m * WEIGHTS, bits)
    IN_GROUPS(count, SCORE_VECTORS, CALL);
#undef CALL
}

INLINE void mix_all(const float *weight, const void *v, int limit, float *out, int count,
                    const int bits) {
#define CALL(n) mix((n), weight + m * WEIGHTS, v, limit, out + m * DIM, bits)
    IN_GROUPS(count, MIX_VECTORS, CALL);
#undef CALL
}

/* One function for each number of bits, which is a constant inside. */
#define OF_BITS(bits)                                                                        \
    static __attribute__((noinline)) void score_##bits(const float *q, const void *k,        \
                                                       float *weight, int count) {           \
        score_all(q, k, weight, count, bits);                                                \
    }                                                                                        \
    static __attribute__((noinline)) void mix_##bits(const float *weight, const void *v,     \
                                                     int limit, float *out, int count) {     \
        mix_all(weight, v, limit, out, count, bits);                                         \
    }
OF_BITS(4)
OF_BITS(8)
OF_BITS(16)

/* A page's scales and shifts of four bits, in float once for all query vectors. */
typedef struct {
    float scale[WEIGHTS], shift[WEIGHTS];
} Groups;

INLINE void load_groups(Groups *groups, const half *scale, const uint8_t *shift) {
    for (int i = 0; i < WEIGHTS; i += LANES) {
        store(groups->scale + i, load_half(scale + i));
        store(groups->shift + i, whole(load_bytes(shift + i)));
    }
}

/* What a page says of its V: scales and zeros of tokens, or groups. NULL: none. */
typedef struct {
    const half *scale, *zero;
    const Groups *groups;
} Values;

/* LANES weights of V rows from slot `at` on, and what their zeros or shifts add to the output. */
INLINE void weigh(State *s, int m, Values v, int at, vf p, vi counts) {
    if (!v.groups) {
        if (v.zero)
            s->zero_sum[m][0] += pick(counts, p * load_half(v.zero + at), splat(0.0f));
        store(s->weight[m] + at, v.scale ? p * load_half(v.scale + at) : p);
        return;
    }
    for (int g = 0; g < GROUPS; g++, at += PAGE) { /* such pages are full: all slots count */
        vf weight = p * load(v.groups->scale + at);
        s->zero_sum[m][g] = mul_add(weight, load(v.groups->shift + at), s->zero_sum[m][g]);
        store(s->weight[m] + at, weight);
    }
}

/* One query vector's scores of one page become weights of its V rows; its running maximum,
   sum and output follow. Slots from `limit` on do not count. */
INLINE void soften(State *s, int m, vf *score, Values v, int limit) {
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
        for (int g = 0; g < GROUPS; g++) s->zero_sum[m][g] *= shrink;
        s->top[m] = highest;
    }
    for (int j = 0; j < COLS; j++) {
        vf p = power_of_two(score[j] - highest);
        vi counts = lane + j * LANES < limit;
        if (limit < PAGE) p = pick(counts, p, splat(0.0f));
        s->sum[m] += p;
        weigh(s, m, v, j * LANES, p, counts);
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

/* LANES channels from c on of a first token's further bits, in units of its scales. */
INLINE vf load_first(const uint8_t *first, int c) {
    const int width = V_GROUP / 2;
    vf parts = load_row(first, c / V_GROUP * 2, c / width % 2, width, c % width, 4);
    return (parts - PARTS / 2.0f) * (1.0f / PARTS);
}

/* What they add to the first token's scores, and to the outputs by its weights. */
static void refine_scores(State *s, int first, int count, const uint8_t *bits) {
    for (int m = first; m < first + count; m++) {
        vf dot = {0};
        for (int i = 0; i < DIM; i += LANES)
            dot = mul_add(load(s->fold[m] + i), load_first(bits, i), dot);
        s->weight[m][0] += sum_lanes(dot);
    }
}

static void refine_outputs(State *s, int first, int count, const uint8_t *bits) {
    for (int m = first; m < first + count; m++)
        for (int i = 0; i < DIM; i += LANES) {
            vf weight = splat(s->weight[m][i / V_GROUP * PAGE]);
            store(s->out[m] + i, mul_add(weight, load_first(bits, i), load(s->out[m] + i)));
        }
}

typedef struct {
    const uint8_t *block; /* a head block that is needed soon */
    int64_t bytes;
} Ahead;

#define FETCHES 4 /* of a block */
/* Pages lie anywhere, which no hardware prefetcher foresees. A whole block at once would fill
   the core's miss buffers and stall it, so it is fetched in parts between the stages of a page;
   not into the nearest cache, which has the fewest of those buffers. */
INLINE void fetch(Ahead ahead, int part) {
    const int64_t stop = ahead.bytes * (part + 1) / FETCHES;
    for (int64_t i = ahead.bytes * part / FETCHES / 64 * 64; i < stop; i += 64)
        __builtin_prefetch(ahead.block + i, 0, 2);
}

/* An hp block: vectors first … first+count-1 over its first `limit` slots. */
INLINE void visit_half(State *s, int first, int count, const half *k, const half *v, int limit,
                       Ahead ahead) {
    fetch(ahead, 0);
    score_16(s->q[first], k, s->weight[first], count);
    fetch(ahead, 1);
    for (int m = first; m < first + count; m++) {
        vf score[COLS];
        for (int j = 0; j < COLS; j++) score[j] = load(s->weight[m] + j * LANES);
        soften(s, m, score, (Values){NULL, NULL, NULL}, limit);
    }
    fetch(ahead, 2);
    fetch(ahead, 3);
    mix_16(s->weight[first], v, limit, s->out[first], count);
}

INLINE const half *optional(const uint8_t *block, int64_t offset) {
    return offset < 0 ? NULL : (const half *)(block + offset);
}

/* What the kernels of one format have as constants. */
typedef struct {
    enum Format format;
    int k_bits, v_bits;
} Kind;

/* A quantised page, the same way; page: its place in the sequence. */
INLINE void visit_codes(State *s, const Cache *cache, int64_t head, int first, int count,
                        const uint8_t *block, int64_t page, int limit, Ahead ahead,
                        const Kind kind) {
    const enum Format format = kind.format;
    const half *k_scale = optional(block, cache->k_scale), *k_zero = optional(block, cache->k_zero);
    const half *plane = optional(block, cache->k_out);
    const float *q = format == CHANNEL ? s->fold[first] : s->q[first];
    const half *v_scale = optional(block, cache->v_scale), *v_zero = optional(block, cache->v_zero);
    const int fixed = format == STATIC, grouped = kind.v_bits == 4;
    Groups groups;
    const Values v = {fixed ? NULL : v_scale, fixed ? NULL : v_zero, grouped ? &groups : NULL};
    if (grouped) load_groups(&groups, v_scale, block + cache->v_shift);
    fetch(ahead, 0);
    if (format == CHANNEL) fold_scales(s, first, count, k_scale, k_zero);
    (kind.k_bits == 4 ? score_4 : score_8)(q, block + cache->k, s->weight[first], count);
    if (kind.k_bits == 4 && !page) refine_scores(s, first, count, block + cache->k_first);
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
        soften(s, m, score, v, limit);
    }
    fetch(ahead, 2);
    fetch(ahead, 3);
    (kind.v_bits == 4 ? mix_4 : mix_8)(s->weight[first], block + cache->v, limit, s->out[first],
                                       count);
    if (kind.v_bits == 4 && !page) refine_outputs(s, first, count, block + cache->v_first);
}

INLINE void visit(State *s, const Cache *cache, int64_t head, int first, int count,
                  const uint8_t *block, int64_t page, int limit, Ahead ahead, const Kind kind) {
    if (kind.format == HALF)
        visit_half(s, first, count, (const half *)(block + cache->k),
                   (const half *)(block + cache->v), limit, ahead);
    else
        visit_codes(s, cache, head, first, count, block, page, limit, ahead, kind);
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
    s->sum[m] = splat(0.0f);
    for (int g = 0; g < GROUPS; g++) s->zero_sum[m][g] = splat(0.0f);
    s->top[m] = -INFINITY;
}

static void finish(const State *s, const Cache *cache, int64_t head, int m, float *out) {
    const float *fixed = cache->format == STATIC ? cache->v_static + head * DIM : NULL;
    const int grouped = cache->v_bits == 4;
    float share = 1.0f / sum_lanes(s->sum[m]), shift[GROUPS];
    for (int g = 0; g < GROUPS; g++)
        shift[g] = grouped ? sum_lanes(s->zero_sum[m][g]) * (-1.0f / PARTS)
                           : sum_lanes(s->zero_sum[m][0]);
    for (int c = 0; c < DIM; c++)
        out[c] = (s->out[m][c] + shift[c / V_GROUP]) * share * (fixed ? fixed[c] : 1.0f);
}

typedef struct {
    Tile tile;
    int32_t head, heads;
} Task;

/* Every row up to itself, of the page that the tile's rows are in. */
INLINE void visit_own(State *s, const Cache *cache, int64_t head, Tile tile, const uint8_t *own,
                      const Kind kind) {
    const Ahead nothing = {NULL, 0};
    for (int r = 0; r < tile.rows; r++) {
        int limit = tile.slot + r + 1;
        if (kind.format == CHANNEL)
            visit_half(s, r * GROUP, GROUP, (const half *)own, (const half *)own + BLOCK, limit,
                       nothing);
        else
            visit(s, cache, head, r * GROUP, GROUP, own, tile.page, limit, nothing, kind);
    }
}

INLINE void run_task(const Cache *cache, const Step *step, const Queries *queries,
                     const Task *task, const Kind kind) {
    State states[HEADS];
    const Tile tile = task->tile;
    const int count = tile.rows * GROUP, open = kind.format == CHANNEL;
    const int64_t own_bytes = open ? 2 * BLOCK * (int64_t)sizeof(half) : cache->head_bytes;
    const uint8_t *own = open ? (const uint8_t *)open_block(cache, step, tile, task->head)
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
            visit(states + h, cache, task->head + h, 0, count, block + h * cache->head_bytes, page,
                  PAGE, (Ahead){next + h * bytes, bytes}, kind);
    }
    for (int32_t h = 0; h < task->heads; h++) {
        visit_own(states + h, cache, task->head + h, tile, own + h * own_bytes, kind);
        for (int m = 0; m < count; m++)
            finish(states + h, cache, task->head + h, m,
                   queries->out + vector_at(queries, tile, task->head + h, m));
    }
}

/* One function per format: inside, the format is a constant. */
#define TASK(name, ...)                                                            \
    static void name(const Cache *cache, const Step *step, const Queries *queries, \
                     const Task *task) {                                           \
        run_task(cache, step, queries, task, (Kind){__VA_ARGS__});                 \
    }
TASK(task_half, HALF, 16, 16)
TASK(task_channel, CHANNEL, 8, 8)
TASK(task_k8v4, CHANNEL, 8, 4)
TASK(task_k4v4, CHANNEL, 4, 4)
TASK(task_token, TOKEN, 8, 8)
TASK(task_static, STATIC, 8, 8)

typedef void Run(const Cache *, const Step *, const Queries *, const Task *);

static Run *runner_of(const Cache *cache) {
    switch (cache->format) {
    case HALF: return task_half;
    case TOKEN: return task_token;
    case STATIC: return task_static;
    default:
        return cache->v_bits == 8 ? task_channel : cache->k_bits == 8 ? task_k8v4 : task_k4v4;
    }
}

/* Visits of one query row to the pages of one head. */
INLINE int64_t cost(Tile tile) { return (int64_t)(tile.page + 1) * tile.rows; }

static int costlier(const void *a, const void *b) {
    const Task *one = a, *other = b;
    int64_t x = cost(one->tile) * one->heads, y = cost(other->tile) * other->heads;
    return (x < y) - (x > y);
}

/* The tasks of a step, each thread's share with the long ones first: they must not come last. A
 * sequence is in the share in which append.c had it. NULL without memory. */
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
    for (int seat = 0; tasks && seat < threads; seat++) {
        int64_t first = *count * seat / threads, end = *count * (seat + 1) / threads;
        qsort(tasks + first, (size_t)(end - first), sizeof *tasks, costlier);
    }
    *visits *= cache->kv_heads * GROUP;
    return tasks;
}

typedef struct {
    Run *run;
    const Cache *cache;
    const Step *step;
    Queries queries;
    const Task *tasks;
} Job;

static void attend_one(const void *what, int64_t i) {
    const Job *job = what;
    job->run(job->cache, job->step, &job->queries, job->tasks + i);
}

/* q, out [T, query_heads, DIM]. 0, or a Failure. */
int attend(const Cache *cache, const Step *step, const float *q, float *out, float scale,
           int64_t query_heads, const Team *team) {
    int64_t count, visits;
    int failed = misfit(cache, step);
    if (failed) return failed;
    Task *tasks = tasks_of(cache, step, (int)team->threads, &count, &visits);
    if (!tasks) return NO_MEMORY;
    const Queries queries = {q, out, scale * 1.44269504f, query_heads};
    const Job job = {runner_of(cache), cache, step, queries, tasks};
    (visits > ALONE ? team->run : do_alone)(team, attend_one, &job, count);
    free(tasks);
    return 0;
}
