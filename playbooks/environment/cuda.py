"""Driver, GPU code, builds of one CUDA, and libraries that are loaded twice."""

from __future__ import annotations

from collections.abc import Iterator

from playbooks.environment.check import FAIL, PASS, SKIP, WARN, Check
from playbooks.environment.facts import EnvironmentFacts
from playbooks.environment.table import CompatibilityTable
from playbooks.environment.versions import at_least, local, parts


def judge_driver(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    cuda, source = facts.torch.cuda, table.driver.source
    if facts.nvml_error is not None:
        remedy = "reboot, or load the kernel module that belongs to the installed driver library"
        yield Check(
            "driver", FAIL, facts.driver or "–", f"NVML: {facts.nvml_error}", remedy, "vllm#29737"
        )
    elif facts.driver is None or cuda is None:
        why = "no NVIDIA driver" if facts.driver is None else "torch uses no CUDA"
        yield Check("driver", SKIP, facts.driver or "–", why)
    elif (least := table.least_driver(cuda)) is None:
        why = f"CUDA {cuda} is not in the table"
        yield Check("driver", WARN, facts.driver, why, source=source)
    elif not at_least(facts.driver, least):
        why = f"torch is built for CUDA {cuda}, which needs driver {least} or newer"
        yield Check("driver", FAIL, facts.driver, why, table.driver.remedy, source)
    elif facts.driver_cuda and parts(facts.driver_cuda) < parts(cuda)[:2]:
        why = (
            f"it knows CUDA {facts.driver_cuda} and torch is built for {cuda}: works by "
            "minor-version compatibility, without JIT of newer PTX"
        )
        yield Check("driver", WARN, facts.driver, why, table.driver.remedy, source)
    else:
        yield Check("driver", PASS, facts.driver, f"new enough for CUDA {cuda}", source=source)


def judge_gpu_code(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    """Has torch machine code, or PTX, for each GPU?"""
    torch = facts.torch
    if not facts.gpus or torch.cuda is None or not torch.archs:
        yield Check("gpu_code", SKIP, "–", "no CUDA device and build to compare")
        return
    for number, gpu in enumerate(facts.gpus):
        if gpu.capability is None:
            yield Check("gpu_code", WARN, f"GPU {number}", "its compute capability is not known")
        elif not runs_on(gpu.capability, torch.archs):
            below = table.least_capability(torch.cuda)
            too_old = below is not None and not at_least(gpu.capability, below)
            why = f"torch has no code for compute capability {gpu.capability} ({gpu.name}): "
            why += f"CUDA {torch.cuda} dropped it" if too_old else ", ".join(torch.archs)
            yield Check(
                "gpu_code",
                FAIL,
                gpu.capability,
                why,
                "install a torch that is built for this GPU",
                table.dropped.source if too_old else "vllm#16901",
            )
        else:
            yield Check("gpu_code", PASS, gpu.capability, f"torch has code for {gpu.name}")


def runs_on(capability: str, archs: tuple[str, ...]) -> bool:
    """sm_80 runs on 8.x, x ≥ 0; sm_90a on 9.0 alone; PTX (compute_90) on 9.0 and all newer."""
    major, minor = (*parts(capability), 0)[:2]
    for arch in archs:
        kind, _, name = arch.partition("_")
        digits = name.rstrip("abcdefghijklmnopqrstuvwxyz")
        if not digits.isdigit():
            continue
        code = (int(digits[:-1] or 0), int(digits[-1]))
        if digits != name:
            fits = code == (major, minor)  # made for this one architecture
        elif kind == "sm":
            fits = code[0] == major and code[1] <= minor
        else:
            fits = code <= (major, minor)
        if fits:
            return True
    return False


def judge_cuda_builds(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    """Wheels that were built for another CUDA than torch."""
    cuda = facts.torch.cuda
    if cuda is None:
        yield Check("cuda_builds", SKIP, "–", "torch uses no CUDA")
        return
    major = parts(cuda)[0]
    others = [
        f"{name} {version}"
        for name, version in facts.packages.items()
        if (tag := _cuda_tag(version)) is not None and tag != major
    ]
    twice = [
        name
        for name in facts.packages
        if name.startswith("nvidia-") and _suffix(name) not in (None, major)
    ]
    if others:
        yield Check(
            "cuda_builds",
            FAIL,
            ", ".join(others),
            f"torch is built for CUDA {cuda}",
            "install builds of one CUDA major version",
            "vllm-omni#5071",
        )
    elif twice:
        yield Check(
            "cuda_builds",
            WARN,
            ", ".join(twice),
            f"libraries of another CUDA than torch's {cuda} are installed beside its own",
            "uninstall them, or use a fresh environment",
            "rwth-i6/returnn#1802",
        )
    else:
        yield Check("cuda_builds", PASS, f"CUDA {cuda}", "all builds that say so are of one CUDA")


def _cuda_tag(version: str) -> int | None:
    """ "0.11.0+cu130" -> 13"""
    tag = local(version) or ""
    digits = tag.removeprefix("cu")
    return int(digits[:2]) if tag.startswith("cu") and digits[:2].isdigit() else None


def _suffix(name: str) -> int | None:
    """ "nvidia-nccl-cu12" -> 12"""
    tail = name.rpartition("-cu")[2]
    return int(tail) if "-cu" in name and tail.isdigit() else None


def judge_copies(facts: EnvironmentFacts, table: CompatibilityTable) -> Iterator[Check]:
    """One process must hold one copy of a library that keeps state."""
    versions = {"nccl": facts.torch.nccl, "cudnn": _cudnn(facts.torch.cudnn)}
    for name, source in (("nccl", "vllm#1726"), ("cudnn", ""), ("cudart", "")):
        files = facts.libraries.get(name, ())
        version = versions.get(name)
        if len(files) > 1:
            why = f"{len(files)} copies in one process: {', '.join(files)}"
            remedy = f"leave one: uninstall the other, or unset LD_LIBRARY_PATH ({files[0]} stays)"
            yield Check(name, FAIL if name == "nccl" else WARN, version or "–", why, remedy, source)
        elif files or version:
            yield Check(name, PASS, version or "–", files[0] if files else "built into torch")
        else:
            yield Check(name, SKIP, "–", "not loaded: no CUDA")
    openmp = [f for n in ("gomp", "iomp5", "omp") for f in facts.libraries.get(n, ())]
    if len(openmp) > 1:
        yield Check(
            "openmp",
            WARN,
            f"{len(openmp)} copies",
            ", ".join(openmp),
            "two pools of threads share the cores, and steps take longer; leave one",
        )
    else:
        yield Check(
            "openmp", PASS if openmp else SKIP, str(len(openmp)), ", ".join(openmp) or "none"
        )


def _cudnn(number: int | None) -> str | None:
    """91002 -> 9.10.2; 8907 -> 8.9.7"""
    if not number:
        return None
    major, rest = divmod(number, 10_000 if number >= 90_000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"
