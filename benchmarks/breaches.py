"""A vLLM metrics page of made traffic, with what can go wrong planted in it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

BOUNDS = (0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
ENGINE = 'engine="0",model_name="made"'


@dataclass
class Traffic:
    """`live` so many seconds, then `page`. What stands in the fields holds from then on."""

    rate: float = 4.0
    """Requests a second."""
    slow: float = 0.0005
    """Share of them that misses 500 ms to the first token."""
    failing: float = 0.0
    """Share of them that fails."""
    waiting: int = 2
    kv_usage: float = 0.4
    preemptions_a_s: float = 0.01
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    started: float = 1_798_070_000.0
    preemptions: float = 0.0
    tokens: float = 0.0
    ended: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0, "error": 0})
    first: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))

    def live(self, seconds: float) -> None:
        for _ in range(self._arrived(seconds)):
            failed = self.rng.random() < self.failing
            self.ended["error" if failed else "stop"] += 1
            if not failed:
                late = self.rng.random() < self.slow
                self.first[BOUNDS.index(2.5) if late else BOUNDS.index(0.25)] += 1
                self.tokens += self.rng.randint(50, 250)
        self.preemptions += self.preemptions_a_s * seconds

    def _arrived(self, seconds: float) -> int:
        """Poisson, by its gaps."""
        count, at = 0, self.rng.expovariate(self.rate)
        while at < seconds:
            count, at = count + 1, at + self.rng.expovariate(self.rate)
        return count

    def page(self) -> bytes:
        lines = [
            f"process_start_time_seconds {self.started}",
            f"vllm:num_requests_running{{{ENGINE}}} 8",
            f"vllm:num_requests_waiting{{{ENGINE}}} {self.waiting}",
            f"vllm:kv_cache_usage_perc{{{ENGINE}}} {self.kv_usage}",
            f"vllm:num_preemptions_total{{{ENGINE}}} {int(self.preemptions)}",
            f"vllm:generation_tokens_total{{{ENGINE}}} {self.tokens}",
        ]
        lines += [
            f'vllm:request_success_total{{{ENGINE},finished_reason="{reason}"}} {count}'
            for reason, count in self.ended.items()
        ]
        return ("\n".join([*lines, *self._histogram()]) + "\n").encode()

    def _histogram(self) -> list[str]:
        name, total, rows = "vllm:time_to_first_token_seconds", 0, []
        for bound, count in zip((*BOUNDS, "+Inf"), self.first, strict=True):
            total += count
            rows.append(f'{name}_bucket{{{ENGINE},le="{bound}"}} {total}')
        return [*rows, f"{name}_sum{{{ENGINE}}} {total * 0.2}", f"{name}_count{{{ENGINE}}} {total}"]
