/* How the items of a job are shared out among threads: team.c. */
#ifndef EVEWATCH_TEAM_H
#define EVEWATCH_TEAM_H

#include <stdint.h>

typedef void Work(const void *job, int64_t item);

/* As every entry point takes it; `Team` of native.py. */
typedef struct Team {
    /* work(job, i) for every i from 0 to items - 1, each once, by `threads` threads, or fewer while
       others have their cores; each thread begins with the same share of all items. What they
       wrote is there when it returns. */
    void (*run)(const struct Team *team, Work *work, const void *job, int64_t items);
    int64_t threads;
} Team;

/* The same without others: what is over before one has woken. */
static inline void do_alone(const Team *team, Work *work, const void *job, int64_t items) {
    for (int64_t i = 0; i < items; i++) work(job, i);
}

#endif
