"""Python, the C library, torch and Triton, and pairs that are known to break."""

from __future__ import annotations

from collections.abc import Iterator

from playbooks.environment.check import FAIL, PASS, SKIP, WARN, Check
from playbooks.environment.facts import EnvironmentFacts
from playbooks.environment.table import CompatibilityTable
from playbooks.environment.versions import at_least, begins


def judge_python(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    rule, source = table.python, table.python.source
    if not at_least(facts.python, rule.least):
        why = f"EveWatch needs {rule.least} or newer"
        yield Check("python", FAIL, facts.python, why, "install a newer Python", source)
    elif not any(begins(facts.python, known) for known in rule.known):
        why = f"nobody has tried it; known: {', '.join(rule.known)}"
        yield Check("python", WARN, facts.python, why, "run the tests on it first", source)
    else:
        yield Check("python", PASS, facts.python, "known to work", source=source)


def judge_libc(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    rule, torch = table.libc, facts.torch.version
    name, _, version = (facts.libc or "").partition(" ")
    if facts.system != "Linux" or name != "glibc" or not torch:
        yield Check("libc", SKIP, facts.libc or "–", "not glibc on Linux: torch has other builds")
    elif at_least(torch, rule.torch) and not at_least(version, rule.least):
        why = f"torch {torch} is built for glibc {rule.least} or newer"
        yield Check("libc", FAIL, facts.libc or "", why, "use a newer system", rule.source)
    else:
        why = f"torch {torch} is content with it"
        yield Check("libc", PASS, facts.libc or "", why, source=rule.source)


def judge_torch(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    torch = facts.torch
    if torch.error is not None:
        what = torch.version or "not installed"
        yield Check("torch", FAIL, what, torch.error, "install torch again, into a fresh folder")
        return
    version = torch.version or "–"
    build = f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}" if torch.hip else "CPU"
    if facts.gpus and not (torch.cuda or torch.hip):
        why = f"a GPU is here ({facts.gpus[0].name}), and this is a CPU build"
        yield Check("torch", WARN, version, why, "install a CUDA build of torch to use it")
    elif facts.gpus and torch.cuda and torch.cuda_available is False:
        why = f"built for CUDA {torch.cuda}, and it sees no device although the driver has one"
        remedy = "look at the driver, and at CUDA_VISIBLE_DEVICES"
        yield Check("torch", FAIL, version, why, remedy)
    else:
        yield Check("torch", PASS, version, f"{build} build, imports")


def judge_triton(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    needs_it = facts.torch.cuda is not None and bool(facts.gpus)
    if facts.triton_error is not None:
        yield Check(
            "triton",
            FAIL if needs_it else WARN,
            facts.triton or "–",
            f"cannot be imported: {facts.triton_error}",
            "repair it: without it the GPU runs the slow reference kernels "
            "(--set require_triton=true makes that an error)",
            "vllm#39664",
        )
    elif facts.triton is None:
        why = "not installed; " + ("the GPU runs the slow kernels" if needs_it else "not needed")
        remedy = "pip install 'evewatch[cuda]'" if needs_it else ""
        yield Check("triton", WARN if needs_it else SKIP, "–", why, remedy)
    else:
        yield from _triton_pair(facts, facts.triton, table)


def _triton_pair(
    facts: EnvironmentFacts, triton: str, table: CompatibilityTable
) -> Iterator[Check]:
    torch, source = facts.torch.version, table.triton.source
    if torch is None:
        yield Check("triton", WARN, triton, "no torch to hold it against", source=source)
        return
    pin = facts.torch.wants_triton
    wanted = pin or table.triton_of(torch)
    source = "this torch's own metadata" if pin else source
    if wanted is None:
        why = f"the pair torch {torch}, triton {triton} is not in the table"
        yield Check("triton", WARN, triton, why, "run `make test` on it first", source)
    elif begins(triton, wanted):
        yield Check("triton", PASS, triton, f"torch {torch} asks for {wanted}", source=source)
    else:
        why = f"torch {torch} asks for triton {wanted}"
        yield Check("triton", FAIL, triton, why, table.triton.remedy, source)


def judge_breaks(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    versions = {
        "python": facts.python,
        "torch": facts.torch.version,
        "triton": facts.triton,
        "driver": facts.driver,
        "cuda": facts.torch.cuda,
        **{name: facts.packages.get(name) for name in ("numpy", "vllm", "flash-attn")},
    }
    for rule in table.breaks:
        value = ", ".join(f"{name} {versions[name]}" for name in rule.when)
        if rule.holds(versions):
            yield Check(rule.id, FAIL, value, rule.why, rule.remedy, rule.source)
