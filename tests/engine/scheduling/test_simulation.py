"""A hundred thousand requests in simulated time, with the books checked after every step."""

import random
from collections import deque

from engine.config import EngineConfig
from engine.request import FinishReason, Priority, Request, SamplingParams, Status
from engine.scheduling.assemble import make_scheduler
from engine.stream import Stream

REQUESTS = 100_000
STEP_NS = 20_000_000


def test_a_hundred_thousand_requests_end_and_leave_nothing():
    rng = random.Random(0)
    config = EngineConfig(max_batch=32, token_budget=256, page_tokens=16)
    scheduler = make_scheduler(config, pages=48, slabs=32, max_model_len=400)
    open_requests, params = deque(), [SamplingParams(max_tokens=n) for n in range(1, 12)]
    now, submitted, ended, waits = 0, 0, 0, []
    while submitted < REQUESTS or scheduler.has_work:
        now += STEP_NS
        for _ in range(rng.choice((0, 1, 2, 4, 8)) if submitted < REQUESTS else 0):
            submitted += 1
            request = Request(f"r{submitted}", rng.choice(params), Stream(""), number=submitted)
            request.set_prompt([submitted % 7] * rng.choice((3, 3, 9, 20, 60)))
            request.priority = rng.choice(list(Priority))
            request.stamps.queued = now
            if rng.random() < 0.05:
                request.deadline = now + rng.randrange(10 * STEP_NS)
            scheduler.add(request)
            open_requests.append(request)
        if rng.random() < 0.3 and open_requests:
            scheduler.finish(
                rng.choice((open_requests[0], open_requests[-1])), FinishReason.CANCELLED
            )
        plan = scheduler.plan(now)
        assert plan.tokens <= config.token_budget
        scheduler.publish(scheduler.accept(plan.items))
        for item in plan.items:
            request = item.request
            if item.samples:
                request.append(9)
                if len(request.output_ids) == request.params.max_tokens:
                    scheduler.finish(request, FinishReason.LENGTH)
                    waits.append(request.stamps.first_scheduled - request.stamps.queued)
        scheduler.check_integrity()
        while open_requests and open_requests[0].status is Status.FINISHED:
            open_requests.popleft()
            ended += 1
    assert submitted >= REQUESTS
    assert ended == submitted
    assert scheduler.pool.used == 0
    assert scheduler.shadow.free == scheduler.shadow.total
    assert scheduler.preemption_tax <= 0.25
    assert min(waits) == 0
    assert len(scheduler._deadlines) < 1000
