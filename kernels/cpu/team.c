/* The threads that compute, and how they share out the items of one job after another.

   Each has a stretch of neighbouring items to itself, the same share of every job: what it wrote
   in one it finds in its own cache in the next, and to take an item costs nothing that another
   core has. Who is done with his own takes of the others'. A job is over when its items are, not
   when every thread has come: whoever is late, because another program has its core, finds nothing
   left and holds up nobody. A thread that waits spins for some 50 microseconds, then sleeps: so its
   core is free for whom it waits for. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native.h"
#include "team.h"

#define SPINS 2000
#define SEATS 128 /* more threads share their stretches */
#define LINE __attribute__((aligned(128)))

MIRRORED(sizeof(Team))

/* The job that is open. Whoever has taken an item may read it until the item is done. */
static struct {
    Work *work;
    const void *job;
    uint32_t items, seats;
} open;
/* Of each stretch the items that nobody has taken. */
static struct {
    LINE uint32_t left;
} stretches[SEATS];
static LINE uint32_t given; /* jobs so far; idle threads wait on it */
static LINE uint32_t done; /* items that are computed; who gave the job waits on it */
static LINE uint32_t asleep, owner_asleep;
static uint32_t workers;
static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER;

static inline uint32_t read_now(const uint32_t *x) { return __atomic_load_n(x, __ATOMIC_SEQ_CST); }

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void sleep_while(const uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(const uint32_t *word, uint32_t sleepers) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, sleepers, NULL, NULL, 0);
}

/* The first item of a stretch of the job that is open. */
static uint32_t first_of(uint32_t seat) {
    return (uint32_t)((uint64_t)open.items * seat / open.seats);
}

/* Takes one item of a stretch and computes it. 0 if there is none. */
static int take(uint32_t seat) {
    uint32_t *left = &stretches[seat].left, rest = read_now(left);
    while (rest && !__atomic_compare_exchange_n(left, &rest, rest - 1, 1, __ATOMIC_SEQ_CST,
                                                __ATOMIC_SEQ_CST)) {}
    if (rest) open.work(open.job, first_of(seat + 1) - rest);
    return rest != 0;
}

/* Takes items until there are none: its own, then those of the next. */
static void serve(uint32_t seat) {
    uint32_t count = 0, seats = __atomic_load_n(&open.seats, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < seats; i++)
        while (take((seat + i) % seats)) count++;
    if (!count) return; /* the job may be over, and another one open */
    const uint32_t items = open.items;
    if (__atomic_add_fetch(&done, count, __ATOMIC_SEQ_CST) == items && read_now(&owner_asleep))
        wake(&done, 1);
}

static void *live(void *seat) {
    for (uint32_t seen = 0;;) {
        for (int i = 0; i < SPINS && read_now(&given) == seen; i++) relax();
        __atomic_add_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
        while (read_now(&given) == seen) sleep_while(&given, seen);
        __atomic_sub_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
        seen = read_now(&given);
        serve((uint32_t)(uintptr_t)seat);
    }
    return NULL;
}

/* At least `wanted` workers, or as many as the system allows. None of them takes a signal. */
static void hire(uint32_t wanted) {
    sigset_t all, before;
    if (workers >= wanted) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (pthread_t thread; workers < wanted; workers++) {
        if (pthread_create(&thread, NULL, live, (void *)(uintptr_t)(workers + 1))) break;
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void wait_for_others(uint32_t items) {
    uint32_t now = read_now(&done);
    for (int i = 0; i < SPINS && now != items; i++, now = read_now(&done)) relax();
    if (now == items) return;
    __atomic_store_n(&owner_asleep, 1, __ATOMIC_SEQ_CST);
    while ((now = read_now(&done)) != items) sleep_while(&done, now);
    __atomic_store_n(&owner_asleep, 0, __ATOMIC_SEQ_CST);
}

/* `run` of a Team. Of two threads with a job each, the second does its own alone. */
void team_run(const Team *team, Work *work, const void *job, int64_t items) {
    if (team->threads < 2 || items < 2 || items > UINT32_MAX || pthread_mutex_trylock(&owner)) {
        do_alone(team, work, job, items);
        return;
    }
    hire((uint32_t)team->threads - 1);
    const uint32_t seats = team->threads < SEATS ? (uint32_t)team->threads : SEATS;
    open.work = work, open.job = job, open.items = (uint32_t)items;
    __atomic_store_n(&open.seats, seats, __ATOMIC_RELAXED);
    done = 0;
    for (uint32_t i = 0; i < seats; i++)
        __atomic_store_n(&stretches[i].left, first_of(i + 1) - first_of(i), __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&given, 1, __ATOMIC_SEQ_CST);
    uint32_t sleepers = read_now(&asleep);
    if (sleepers) wake(&given, sleepers < items ? sleepers : (uint32_t)items - 1);
    serve(0);
    wait_for_others((uint32_t)items);
    pthread_mutex_unlock(&owner);
}

/* A child has this thread only. */
static void forget_workers(void) {
    workers = asleep = owner_asleep = 0;
    memset(stretches, 0, sizeof stretches);
    pthread_mutex_init(&owner, NULL);
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_workers);
}
