"""What the machine says, with NVML played by a stand-in that speaks like pynvml."""

import threading
from types import SimpleNamespace

import pytest

from engine.observing import gpu
from engine.observing.machine import Machine, machine, system_heap
from waiting import CEILING_S, until


class NvmlError(Exception):
    pass


class Nvml:
    """Two GPUs; the second one does not report its power."""

    NVMLError = NvmlError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    nvmlClocksThrottleReasonSwPowerCap = 0x4
    nvmlClocksThrottleReasonHwThermalSlowdown = 0x40

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, handle):
        return b"NVIDIA H200" if handle == 0 else "NVIDIA L4"

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=87, memory=45)

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(used=5, total=9)

    def nvmlDeviceGetPowerUsage(self, handle):
        if handle == 1:
            raise NvmlError("not supported")
        return 512_000

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return 700_000

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return 0x44 if handle == 0 else 0

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return {1: 1755, 2: 3201}[kind]

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return 61


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(gpu, "_nvml", Nvml)


def test_gpus_in_numbers(two_gpus):
    first, second = gpu.gpus()
    assert (first.name, second.name) == ("NVIDIA H200", "NVIDIA L4")
    assert (first.utilisation, first.memory_busy) == (0.87, 0.45)
    assert (first.power_w, first.power_limit_w) == (512.0, 700.0)
    assert (first.clock_mhz, first.clock_max_mhz, first.memory_clock_mhz) == (1755, 1980, 3201)
    assert first.throttle == ("power cap", "too hot (hardware)")
    assert second.power_w is None and second.throttle == ()


def test_the_machine_knows_its_memory_and_its_gpus(two_gpus):
    state = Machine().read()
    assert state.rss_bytes > 10_000_000 and state.available_bytes > 0
    assert (state.device_used_bytes, state.device_total_bytes) == (5, 9)
    assert len(state.gpus) == 2


def test_who_asks_does_not_wait_for_the_answer(monkeypatch):
    one = Machine()
    first = one.read()
    asked, go_on = threading.Event(), threading.Event()

    def slow():
        asked.set()
        go_on.wait(CEILING_S)
        return ()

    monkeypatch.setattr("engine.observing.machine.gpus", slow)
    one._due = 0.0
    assert one.read() is first
    assert one.read() is first
    assert asked.wait(CEILING_S)
    go_on.set()
    until(lambda: one.read() is not first)


def test_one_for_the_process():
    assert machine() is machine()


def test_the_heap_hands_out_no_more_than_it_has():
    heap = system_heap()
    if heap is None:
        pytest.skip("no mallinfo2 here")
    assert heap.reserved_bytes >= heap.allocated_bytes > 0
