"""GPUs as NVML sees them. No torch. Where there is no NVML or no GPU, there is nothing to say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from engine.snapshot import GpuState

MOST = 8
"""More than so many would not fit on a screen."""
THROTTLES = {
    "SwPowerCap": "power cap",
    "HwSlowdown": "hardware slowdown",
    "HwThermalSlowdown": "too hot (hardware)",
    "SwThermalSlowdown": "too hot",
    "HwPowerBrakeSlowdown": "power brake",
    "SyncBoost": "sync boost",
    "ApplicationsClocksSetting": "clocks set by hand",
}
"""Names of NVML's reasons, in words; idleness is none."""

T = TypeVar("T")


def gpus() -> tuple[GpuState, ...]:
    """Each GPU now; fields that one does not report are None."""
    nvml = _nvml()
    if nvml is None:
        return ()
    with suppress(nvml.NVMLError):
        count = min(nvml.nvmlDeviceGetCount(), MOST)
        return tuple(_gpu(nvml, i, nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count))
    return ()


@cache
def _nvml() -> Any:
    """pynvml, initialised once; None without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # not installed, or no driver: each has errors of its own
        return None
    return pynvml


def _gpu(nvml: Any, index: int, handle: Any) -> GpuState:
    def ask(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except nvml.NVMLError:  # this one does not report it
            return None

    use = ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    memory = ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    power = ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    limit = ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    reasons = ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    sm, mem = nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM
    return GpuState(
        index,
        name=ask(lambda: _text(nvml.nvmlDeviceGetName(handle))),
        utilisation=None if use is None else use.gpu / 100,
        memory_busy=None if use is None else use.memory / 100,
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        power_w=None if power is None else power / 1e3,
        power_limit_w=None if limit is None else limit / 1e3,
        clock_mhz=ask(lambda: int(nvml.nvmlDeviceGetClockInfo(handle, sm))),
        clock_max_mhz=ask(lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, sm))),
        memory_clock_mhz=ask(lambda: int(nvml.nvmlDeviceGetClockInfo(handle, mem))),
        temperature_c=ask(lambda: float(nvml.nvmlDeviceGetTemperature(handle, 0))),
        throttle=None if reasons is None else throttles(nvml, reasons),
    )


def throttles(nvml: Any, bits: int) -> tuple[str, ...]:
    """Bits of NVML's clock throttle reasons in words."""
    return tuple(
        words
        for name, words in THROTTLES.items()
        if bits & getattr(nvml, f"nvmlClocksThrottleReason{name}", 0)
    )


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
