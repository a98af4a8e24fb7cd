"""EveWatch beside OpenVINO GenAI, in turns: `python -m benchmarks.peers --help`.

    python -m benchmarks.peers --workload small.json --workload seed.json \\
        --openvino-python OV/bin/python --openvino float=OV/f32 --openvino int4=OV/int4 \\
        --turns 5 --out docs/performance.md

Each contender runs each workload once a turn, in a process of its own; every second turn goes
backwards. A turn's ratio is EveWatch's output tokens a second over those of the best of the others
in that turn; the table has medians with the least and the greatest. The environment of OpenVINO and
the model in its form are the user's own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from playbooks.environment.facts import cpu

ROOT = Path(__file__).parents[1]
BATCH = Path(__file__).with_name("openvino_batch.py")
RUN_S = 3600
"""Longest of one run."""
BEGIN, END = "<!-- peers: made by benchmarks/peers.py -->", "<!-- end of peers -->"


@dataclass
class Contender:
    """Who runs workloads, and how fast it was."""

    name: str
    ours: bool
    command: Callable[[str], Sequence[str]]
    rate_of: Callable[[str], float]
    """Output tokens a second, from standard output."""
    rates: dict[str, list[float]] = field(default_factory=dict)
    """By workload, one a turn."""

    def run(self, workload: str) -> float:
        """Raises SystemExit with the last that it said on standard error."""
        command = list(self.command(workload))
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S, check=False
        )
        try:
            if done.returncode:
                raise ValueError(done.stderr.strip().rpartition("\n")[2])
            rate = self.rate_of(done.stdout)
        except (ValueError, KeyError, IndexError) as error:
            raise SystemExit(f"peers: {self.name} on {workload}: {error}") from error
        self.rates.setdefault(workload, []).append(rate)
        return rate


def evewatch(compute: str) -> Contender:
    """With products of that kind, in this environment."""

    def command(workload: str) -> list[str]:
        flags = ["--workload", workload, "--set", f"compute={compute}", "--json", "--quiet"]
        return [sys.executable, str(ROOT / "main.py"), "bench", *flags]

    return Contender(
        f"EveWatch, {compute}", True, command,
        lambda text: float(json.loads(text)["throughput"]["output_tok_s"]),
    )  # fmt: skip


def openvino(python: str, label: str, folder: str) -> Contender:
    """With a model in OpenVINO's form, in an environment that has openvino-genai."""

    def rate_of(text: str) -> float:
        found = json.loads(text.strip().splitlines()[-1])
        return float(found["tokens"] / found["seconds"])

    return Contender(
        f"OpenVINO GenAI, {label}", False,
        lambda workload: [python, str(BATCH), folder, workload], rate_of,
    )  # fmt: skip


def take_turns(contenders: Sequence[Contender], workloads: Sequence[str], turns: int) -> None:
    for turn in range(turns):
        for workload in workloads:
            for one in contenders if turn % 2 == 0 else reversed(contenders):
                rate = one.run(workload)
                print(f"{turn + 1:>3}  {Path(workload).name:16}{one.name:28}{rate:8.1f} tok/s",
                      file=sys.stderr, flush=True)  # fmt: skip


def ratios(one: Contender, contenders: Sequence[Contender], workload: str) -> list[float]:
    """Of each turn: its rate over the best of those that are not ours."""
    others = [each.rates[workload] for each in contenders if not each.ours]
    best = [max(turn) for turn in zip(*others, strict=True)]
    return [mine / theirs for mine, theirs in zip(one.rates[workload], best, strict=True)]


def table(contenders: Sequence[Contender], workloads: Sequence[str]) -> str:
    """In Markdown."""
    names = [Path(workload).name for workload in workloads]
    turns = len(contenders[0].rates[workloads[0]])
    machine = cpu()
    lines = [
        f"{machine.model}, {machine.cores} cores, {time.strftime('%Y-%m-%d')}; medians of {turns} "
        "turns (least–greatest); output tokens a second, and times the best of the others in the "
        "same turn.",
        "",
        "| | " + " | ".join(f"{name} tok/s | × best" for name in names) + " |",
        "|---|" + "---:|---:|" * len(names),
    ]
    for one in contenders:
        cells = []
        for workload in workloads:
            cells.append(spread(one.rates[workload], ".0f"))
            cells.append(spread(ratios(one, contenders, workload), ".2f") if one.ours else "–")
        lines.append(f"| {one.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def spread(values: Sequence[float], form: str) -> str:
    middle = format(statistics.median(values), form)
    return f"{middle} ({min(values):{form}}–{max(values):{form}})"


def write(path: Path, text: str) -> None:
    """Between the marks of a page. Raises SystemExit where it has none."""
    head, tail = around(path)
    path.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", "utf-8")


def around(path: Path) -> tuple[str, str]:
    """What stands before and after the marks of a page."""
    page = path.read_text("utf-8") if path.exists() else ""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"peers: {path} has no line {BEGIN} with {END} after it")
    return head, tail


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--workload", action="append", required=True,
                        help="as of `evewatch bench --workload`; may be repeated")  # fmt: skip
    parser.add_argument("--openvino-python", required=True, help="with openvino-genai")
    parser.add_argument("--openvino", action="append", required=True, metavar="LABEL=FOLDER",
                        help="a model in OpenVINO's form; may be repeated")  # fmt: skip
    parser.add_argument("--compute", nargs="+", default=["f32", "mixed"])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a page with marks, like docs/performance.md")
    args = parser.parse_args()
    workloads = [str(Path(name).resolve()) for name in args.workload]
    models = [text.partition("=") for text in args.openvino]
    for path in (*workloads, *(folder for _, _, folder in models), args.openvino_python):
        if not Path(path).exists():
            parser.error(f"{path!r} does not exist")
    if args.turns < 1:
        parser.error(f"--turns: expected 1 at least, got {args.turns}")
    if args.out is not None:
        around(args.out)  # now, not after an hour of measuring
    contenders = [evewatch(compute) for compute in args.compute]
    contenders += [openvino(args.openvino_python, label, str(Path(folder).resolve()))
                   for label, _, folder in models]  # fmt: skip
    take_turns(contenders, workloads, args.turns)
    text = table(contenders, workloads)
    print(text)
    if args.out is not None:
        write(args.out, text)


if __name__ == "__main__":
    main()
