"""Makes the example reports of the documentation: playbooks on the real model, run to their end.

    python docs/make_examples.py [--out docs/examples] [--only NAME] [--with STEP.KEY=VALUE …]

Each playbook runs on the embedded engine and against `evewatch serve` by its URL, and its report is
kept as Markdown. Under an hour on two quiet cores. `--with` shortens steps for a trial; without
`--out` of its own such a trial would replace the examples.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).parents[1]
START_S = 120.0
"""For a server to load its model."""
ANSWERS = "answers-before.json"
"""Of the server in fp16, for what quant_change holds against them."""
HOST = "http://127.0.0.1"
SHOWN_PORT = 8000
"""Of the first server in an example, the next one's is one more: real ones are any free port."""
HISTORY = "counts.csv"
"""Three weeks of traffic, made: what the day before a holiday is forecast from."""
BUSIEST = 1.5
"""Requests/s of its busiest hour."""
FORECAST = ("--with", f"forecast.history={HISTORY}", "--with", "forecast.lengths=chat*0.05")

FAST = ("--with", "canary.time_scale=0.05", "--with", "canary.min_samples=60")
"""A canary that stays undecided takes its two hours otherwise."""


@dataclass(frozen=True)
class Example:
    """One playbook: what it is told beside its file, on the embedded engine and at a URL."""

    inside: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    serve: tuple[str, ...] = ()
    """Settings of the server."""
    other: tuple[str, ...] | None = None
    """Settings of a second server, whose address is CANDIDATE in `outside`."""
    before: tuple[str, ...] | None = None
    """Settings of a server whose answers are recorded first."""
    fitted: bool = False
    """The server's steps are measured first, for its forecast."""


EXAMPLES = {
    "pre_holiday": Example(FORECAST, FORECAST, fitted=True),
    "batch_tuning": Example(),
    "quant_change": Example(
        ("--kv-format", "int8_channel"),
        ("--with", f"quality.against={ANSWERS}"),
        serve=("--kv-format", "int8_channel"),
        before=("--kv-format", "fp16"),
    ),
    "canary": Example(
        FAST,
        ("--with", "canary.candidate_url=CANDIDATE", *FAST),
        other=("--set", "token_budget=384"),
    ),
}


class Maker:
    """Everything happens in one temporary folder: no setting and no path of the user's gets in."""

    def __init__(self, home: Path, out: Path, steps: Sequence[str]) -> None:
        self._home, self._out = home, out
        self._with = [part for text in steps for part in ("--with", text)]
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("EVEWATCH_")}
        self._environment["EVEWATCH_HOME"] = str(home)
        (home / HISTORY).write_text(made_history(), "utf-8")

    def embedded(self, name: str, example: Example) -> None:
        self._check(f"{name}_embedded", name, list(example.inside), {})

    def url(self, name: str, example: Example) -> None:
        with ExitStack() as stack:
            if example.before is not None:
                with self._served(example.before) as before:
                    self._run("quality", "--target", before, "--record", ANSWERS, "--quiet")
            url = stack.enter_context(self._served(example.serve))
            if example.fitted:
                self._run("forecast", "fit", "--target", url, "--quiet")
            shown = {url: f"{HOST}:{SHOWN_PORT}"}
            told = list(example.outside)
            if example.other is not None:
                candidate = stack.enter_context(self._served(example.other))
                shown[candidate] = f"{HOST}:{SHOWN_PORT + 1}"
                told = [text.replace("CANDIDATE", candidate) for text in told]
            self._check(f"{name}_url", name, ["--target", url, *told], shown)

    def _check(self, file: str, name: str, told: list[str], shown: dict[str, str]) -> None:
        folder, start = self._home / file, time.monotonic()
        code = self._run("check", name, *told, *self._of(name), "--usual", "none", "--no-log",
                         "--folder", str(folder))  # fmt: skip
        command = shlex.join(["evewatch", "check", name, *told, *self._of(name)])
        text = f"`{command}`\n\n" + (folder / "report.md").read_text("utf-8")
        for real, one in shown.items():
            text = text.replace(real, one)
        if str(self._home) in text or re.search(r"/(?:home|root|tmp|Users)/", text):
            raise SystemExit(f"{file}: the report names a path of this machine")
        path = self._out / f"{file}.md"
        path.write_text(text, "utf-8")
        print(f"{path}: exit code {code}, {time.monotonic() - start:.0f} s", flush=True)

    def _of(self, name: str) -> list[str]:
        """Those of --with whose step this playbook has."""
        listed = subprocess.run(
            [sys.executable, str(ROOT / "main.py"), "playbook", "show", name, "--json"],
            capture_output=True, text=True, check=True, env=self._environment, cwd=self._home,
        ).stdout  # fmt: skip
        pairs = zip(self._with[::2], self._with[1::2], strict=True)
        kept = [pair for pair in pairs if f'"id": "{pair[1].partition(".")[0]}"' in listed]
        return [part for pair in kept for part in pair]

    def _run(self, *words: str) -> int:
        return subprocess.run(self._command(*words), env=self._environment, cwd=self._home,
                              stdout=subprocess.DEVNULL, check=False).returncode  # fmt: skip

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, str(ROOT / "main.py"), *words]

    @contextmanager
    def _served(self, settings: Sequence[str]) -> Iterator[str]:
        """`evewatch serve` on a free port, until the block is left."""
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        command = self._command("serve", "--port", str(port), "--drain", "1s", "--quiet", *settings)
        with subprocess.Popen(command, env=self._environment, cwd=self._home) as server:
            try:
                _wait_for(f"{HOST}:{port}/health", server)
                yield f"{HOST}:{port}"
            finally:
                server.terminate()


def made_history() -> str:
    """Counts of every hour: quiet nights, an evening peak, weekends at two thirds."""
    start, lines = datetime(2026, 11, 2, tzinfo=UTC), ["time,requests"]
    for hour in range(21 * 24):
        at = start + timedelta(hours=hour)
        day = math.exp(1.5 * (math.cos((at.hour - 20) * math.pi / 12) - 1))
        week = 1.0 if at.weekday() < 5 else 2 / 3
        swing = 1 + 0.06 * math.sin(hour * 2.4)  # some hours are above, some below
        lines.append(f"{at.isoformat()},{round(3600 * BUSIEST * day * week * swing)}")
    return "\n".join(lines) + "\n"


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise SystemExit(f"{url} does not answer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "examples")
    files = [f"{name}_{where}" for name in EXAMPLES for where in ("embedded", "url")]
    parser.add_argument("--only", choices=files, help="this one alone")
    parser.add_argument("--with", dest="steps", action="append", default=[],
                        metavar="STEP.KEY=VALUE", help="a parameter of a step")  # fmt: skip
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        maker = Maker(Path(home), options.out.resolve(), options.steps)
        for file in [options.only] if options.only else files:
            name, _, where = file.rpartition("_")
            getattr(maker, where)(name, EXAMPLES[name])


if __name__ == "__main__":
    main()
