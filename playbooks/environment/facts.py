"""The facts: what is installed, loaded and plugged in. Gathered here, judged elsewhere.

Nothing here decides anything, and nothing raises: what cannot be read is None, with the reason
where there is one. Tests make up EnvironmentFacts of machines that are not at hand.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.observing import cgroup
from engine.paths import user_folder

PACKAGES = (
    "evewatch", "torch", "triton", "numpy", "scipy", "safetensors", "tokenizers", "vllm", "sglang",
    "lmdeploy", "tensorrt-llm", "flash-attn", "flashinfer-python", "xformers", "ray",
)  # fmt: skip
LIBRARIES = ("nccl", "cudart", "cudnn", "cublas", "cuda", "gomp", "iomp5", "omp")
"""Shared libraries of which a process should hold one copy; libcuda is the driver's own."""
FLAGS = (
    "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8",
    "amx_bf16", "asimd", "asimddp", "i8mm", "sve",
)  # fmt: skip


@dataclass(frozen=True)
class TorchFacts:
    version: str | None = None
    cuda: str | None = None
    """CUDA that it was built for; None: a CPU build."""
    hip: str | None = None
    cuda_available: bool | None = None
    cudnn: int | None = None
    """As cuDNN numbers itself: 91002 is 9.10.2."""
    nccl: str | None = None
    archs: tuple[str, ...] = ()
    """sm_80 …: GPUs that it has machine code for; compute_90: PTX."""
    wants_triton: str | None = None
    """The version that its own metadata pins."""
    error: str | None = None
    """Why it cannot be imported."""


@dataclass(frozen=True)
class GpuFacts:
    name: str | None = None
    capability: str | None = None
    """ "9.0" """
    memory_total: int | None = None
    memory_used: int | None = None
    clock_mhz: int | None = None
    clock_max_mhz: int | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True)
class CpuFacts:
    model: str | None = None
    cores: int | None = None
    """That this process may use."""
    flags: tuple[str, ...] = ()
    mhz: float | None = None
    mhz_max: float | None = None
    governor: str | None = None
    quota: cgroup.CpuQuota | None = None
    """Of the container."""


@dataclass(frozen=True)
class MemoryFacts:
    total: int | None = None
    available: int | None = None
    swap_used: int | None = None
    limit: int | None = None
    """Of the container (cgroup)."""
    disk_free: int | None = None
    """Where EveWatch keeps its own files."""
    open_files: int | None = None
    """Most that this process may have open."""


@dataclass(frozen=True)
class EnvironmentFacts:
    python: str = ""
    system: str = ""
    machine: str = ""
    libc: str | None = None
    """ "glibc 2.36" """
    packages: dict[str, str] = field(default_factory=dict)
    torch: TorchFacts = TorchFacts()
    triton: str | None = None
    triton_error: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    """Newest CUDA that the driver knows."""
    nvml_error: str | None = None
    gpus: tuple[GpuFacts, ...] = ()
    libraries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Files mapped into the process, by library."""
    compiler: str | None = None
    compiler_error: str | None = None
    cpu: CpuFacts = CpuFacts()
    memory: MemoryFacts = MemoryFacts()


def gather() -> EnvironmentFacts:
    """Of this process and machine. Imports torch and Triton, so that their libraries are loaded."""
    torch = torch_facts()
    triton, triton_error = triton_version()
    driver, driver_cuda, nvml_error, cards = nvidia()
    compiler, compiler_error = c_compiler()
    return EnvironmentFacts(
        python=platform.python_version(),
        system=platform.system(),
        machine=platform.machine(),
        libc=" ".join(platform.libc_ver()).strip() or None,
        packages=packages(),
        torch=torch,
        triton=triton,
        triton_error=triton_error,
        driver=driver,
        driver_cuda=driver_cuda,
        nvml_error=nvml_error,
        gpus=cards,
        libraries=mapped_libraries(_read("/proc/self/maps") or ""),
        compiler=compiler,
        compiler_error=compiler_error,
        cpu=cpu(),
        memory=memory(),
    )


def packages() -> dict[str, str]:
    """Versions of PACKAGES and of NVIDIA's wheels, as far as they are installed."""
    found = {}
    for each in metadata.distributions():
        name = (each.metadata["Name"] or "").lower().replace("_", "-")
        if name in PACKAGES or name.startswith("nvidia-") or re.fullmatch(r"triton-.*", name):
            found[name] = each.version
    return dict(sorted(found.items()))


def torch_facts() -> TorchFacts:
    try:
        import torch
    except Exception as error:  # a broken install raises what it likes
        return TorchFacts(version=_version("torch"), error=one_line(error))
    cuda = torch.version.cuda
    return TorchFacts(
        version=str(torch.__version__),
        cuda=cuda,
        hip=torch.version.hip,
        cuda_available=torch.cuda.is_available(),
        cudnn=_tried(torch.backends.cudnn.version),
        nccl=_nccl(torch) if cuda else None,
        archs=tuple(_tried(torch.cuda.get_arch_list) or ()),
        wants_triton=_pinned("torch", "triton"),
    )


def _nccl(torch: Any) -> str | None:
    version = _tried(lambda: torch.cuda.nccl.version())
    return ".".join(map(str, version)) if version else None


def _pinned(package: str, needed: str) -> str | None:
    """The version of `needed` that the metadata of `package` asks for exactly."""
    for line in _tried(lambda: metadata.requires(package)) or ():
        if match := re.match(rf"{needed}\s*\(?==\s*([\d.]+)", line):
            return str(match[1])
    return None


def triton_version() -> tuple[str | None, str | None]:
    installed = _version("triton")
    if installed is None:
        return None, None
    try:
        import triton
    except Exception as error:
        return installed, one_line(error)
    return str(triton.__version__), None


def nvidia() -> tuple[str | None, str | None, str | None, tuple[GpuFacts, ...]]:
    """Driver, newest CUDA it knows, why NVML does not answer, and the GPUs."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:
        text = one_line(error)
        is_absent = "not found" in text.lower() or isinstance(error, ImportError)
        return None, None, None if is_absent else text, ()
    number = _tried(pynvml.nvmlSystemGetCudaDriverVersion)
    known = f"{number // 1000}.{number % 1000 // 10}" if number else None
    driver = _tried(pynvml.nvmlSystemGetDriverVersion)
    return _text(driver), known, None, _gpus(pynvml)


def _gpus(nvml: Any) -> tuple[GpuFacts, ...]:
    from engine.observing.gpu import gpus

    cards = []
    for card in gpus():
        index = card.index
        capability = _tried(
            lambda at=index: nvml.nvmlDeviceGetCudaComputeCapability(
                nvml.nvmlDeviceGetHandleByIndex(at)
            )
        )
        cards.append(
            GpuFacts(
                name=card.name,
                capability=".".join(map(str, capability)) if capability else None,
                memory_total=card.memory_total_bytes,
                memory_used=card.memory_used_bytes,
                clock_mhz=card.clock_mhz,
                clock_max_mhz=card.clock_max_mhz,
                temperature_c=card.temperature_c,
                throttle=card.throttle or (),
            )
        )
    return tuple(cards)


def mapped_libraries(maps: str) -> dict[str, tuple[str, ...]]:
    """Files of LIBRARIES in the text of /proc/PID/maps: two files of one name are two copies.

    The address and the offset differ for each mapping of one file; its path does not.
    """
    found: dict[str, set[str]] = {}
    for line in maps.splitlines():
        path = line.split(maxsplit=5)[5:]
        if not path:
            continue
        match = re.match(r"lib([a-z]+\d?)(?:-[0-9a-f]+)?\.so", Path(path[0]).name)
        if match and match[1] in LIBRARIES:
            found.setdefault(match[1], set()).add(path[0].removesuffix(" (deleted)").strip())
    return {name: tuple(sorted(paths)) for name, paths in sorted(found.items())}


def maps_of(pid: int) -> str | None:
    """Of another process, for example a server that is attached to; None: not to be read."""
    return _read(f"/proc/{pid}/maps")


def c_compiler() -> tuple[str | None, str | None]:
    from kernels.cpu.build import find_compiler

    try:
        command = find_compiler()
    except Exception as error:
        return None, one_line(error)
    done = _tried(
        lambda: subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    )
    return (done.stdout.splitlines() or [" ".join(command)])[0] if done else " ".join(command), None


def cpu() -> CpuFacts:
    import psutil

    from engine.observing.machine import cores

    info = _read("/proc/cpuinfo") or ""
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", info, re.M)
    model = re.search(r"^model name\s*:\s*(.*)$", info, re.M)
    have = set(flags[1].split()) if flags else set()
    clock = _tried(psutil.cpu_freq)
    return CpuFacts(
        model=model[1] if model else platform.processor() or None,
        cores=cores(),
        quota=cgroup.cpu_quota(),
        flags=tuple(flag for flag in FLAGS if flag in have),
        mhz=clock.current if clock and clock.current else None,
        mhz_max=clock.max if clock and clock.max else None,
        governor=(_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "").strip()
        or None,
    )


def memory() -> MemoryFacts:
    import psutil

    from engine.observing.machine import available_memory

    whole, swap = psutil.virtual_memory(), _tried(psutil.swap_memory)
    folder = next((p for p in (user_folder(), *user_folder().parents) if p.exists()), Path("/"))
    disk = _tried(lambda: shutil.disk_usage(folder))
    return MemoryFacts(
        total=int(whole.total),
        available=available_memory(),
        swap_used=int(swap.used) if swap else None,
        limit=cgroup.memory_limit(),
        disk_free=disk.free if disk else None,
        open_files=_open_files(),
    )


def _open_files() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft >= 0 else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _tried(ask: Any) -> Any:
    """What `ask` says, or None where it cannot: a fact less, and no crash."""
    try:
        return ask()
    except (EngineError, OSError, RuntimeError, AttributeError, ValueError, ImportError):
        return None
    except Exception as error:
        if type(error).__module__.startswith("pynvml"):
            return None
        raise


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def with_versions(facts: EnvironmentFacts, versions: Mapping[str, str]) -> EnvironmentFacts:
    """The facts of a machine with other versions of torch and triton."""
    torch_facts = replace(
        facts.torch, version=versions.get("torch", facts.torch.version), wants_triton=None
    )
    triton = versions.get("triton", facts.triton)
    return replace(facts, torch=torch_facts, triton=triton, triton_error=None)
