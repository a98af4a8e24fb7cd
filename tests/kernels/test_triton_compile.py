"""Every kernel compiles for a real GPU, which need not be there: down to machine code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from kernels.errors import KernelError
from repository import ROOT

pytest.importorskip("triton")

MOST_SPILLED = 64
"""Bytes a thread may keep outside its registers: a few words, never a tile."""
MOST_SHARED = 99 << 10
"""Shared memory that a program has on every GPU since Ampere."""


CASES = {
    "channel on Hopper": ("AttentionCase('int8_channel', zero_point=True)", 90),
    "four bits on Hopper": ("AttentionCase('k4v4', head_dim=64, group=3)", 90),
    "token on Ampere": ("AttentionCase('int8_token', page=32, head_dim=64, group=3)", 80),
    "static on Ampere": ("AttentionCase('int8_static', group=8)", 80),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Rows of each case's report, made without the interpreter that this process is in."""
    cases = ", ".join(f"{name!r}: ({case}, {gpu})" for name, (case, gpu) in CASES.items())
    script = (
        "import json\n"
        "from kernels.triton.report import AttentionCase, rows\n"
        f"cases = {{{cases}}}\n"
        "print(json.dumps({name: list(rows([case], gpu)) for name, (case, gpu) in cases.items()}))"
    )
    cache = str(tmp_path_factory.mktemp("triton"))
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_kernels_compile_and_fit(case: str, compiled: dict[str, list[dict[str, Any]]]) -> None:
    table = compiled[case]
    names = {row["kernel"] for row in table}
    assert names >= {"write_tiles", "attend_tiles", "combine", "rotate_queries", "rms_norm"}
    assert {row["step"] for row in table if row["kernel"] == "attend_tiles"} == {
        "decode",
        "prefill",
    }
    for row in table:
        assert row["spilled"] <= MOST_SPILLED, row
        assert row["shared"] <= MOST_SHARED, row
        assert row["tensor_cores"] == (row["kernel"] == "attend_tiles"), row


def test_nothing_is_compiled_under_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    from kernels.triton.report import AttentionCase, rows

    with pytest.raises(KernelError, match="TRITON_INTERPRET is set"):
        next(rows([AttentionCase()], 90))
