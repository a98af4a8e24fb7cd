"""The environment: facts of this machine are read, made-up ones are judged rightly."""

import json
import os
import sys
from dataclasses import replace

import pytest

from engine.errors import ConfigError
from engine.observing.cgroup import CpuQuota
from playbooks.environment import facts as reading
from playbooks.environment.cuda import runs_on
from playbooks.environment.facts import (
    CpuFacts,
    EnvironmentFacts,
    GpuFacts,
    MemoryFacts,
    TorchFacts,
    gather,
    mapped_libraries,
)
from playbooks.environment.judge import judge
from playbooks.environment.step import examine
from playbooks.environment.table import read_table, shipped
from playbooks.environment.versions import at_least, begins, matches, parts
from report_schemas import violations

GIB = 1 << 30
CPU = EnvironmentFacts(
    python="3.12.4",
    system="Linux",
    machine="x86_64",
    libc="glibc 2.39",
    packages={"torch": "2.8.0+cpu", "numpy": "2.2.0"},
    torch=TorchFacts("2.8.0+cpu", cuda_available=False),
    libraries={"gomp": ("/v/libgomp.so.1",)},
    compiler="gcc 12.2",
    cpu=CpuFacts("Xeon", 8, ("avx2", "fma"), 3000, 3500, "performance"),
    memory=MemoryFacts(64 * GIB, 60 * GIB, 0, None, 100 * GIB, 65536),
)
H200 = GpuFacts("H200", "9.0", 141 * GIB, GIB, 1980, 1980, 40, ())
GPU = replace(
    CPU,
    packages={"torch": "2.8.0+cu128", "numpy": "2.2.0", "nvidia-nccl-cu12": "2.27.3",
              "vllm": "0.11.0"},
    torch=TorchFacts("2.8.0+cu128", "12.8", None, True, 91002, "2.27.3",
                     ("sm_80", "sm_86", "sm_90", "sm_100"), "3.4.0"),
    triton="3.4.0",
    driver="575.57.08",
    driver_cuda="12.9",
    gpus=(H200,),
    libraries=CPU.libraries | {"nccl": ("/v/nvidia/nccl/lib/libnccl.so.2",),
                               "cuda": ("/usr/lib/libcuda.so.1",)},
)  # fmt: skip


def found(facts, name):
    (check,) = [check for check in judge(facts, shipped()) if check.id == name]
    return check


def of_torch(facts, **changes):
    return replace(facts, torch=replace(facts.torch, **changes))


# --- this machine ---------------------------------------------------------------------------


def test_it_works_on_this_machine_and_says_what_is_here():
    report = examine()
    assert violations(report, "environment") == []
    json.dumps(report, allow_nan=False)
    ids = [check["id"] for check in report["checks"]]
    assert {"python", "torch", "triton", "driver", "nccl", "cudnn", "gpu", "compiler", "cpu",
            "cpu_clock", "memory"} <= set(ids)  # fmt: skip
    facts = report["facts"]
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["torch"]["version"]
    assert facts["memory"]["total"] > facts["memory"]["available"] > 0
    assert facts["cpu"]["cores"] == len(os.sched_getaffinity(0))


def test_the_libraries_of_this_process_are_those_in_its_map():
    assert gather().libraries.get("gomp"), "torch brings its own OpenMP"
    mapped = mapped_libraries(reading.maps_of(os.getpid()))
    assert all(os.path.isfile(file) for files in mapped.values() for file in files)


def test_another_process_that_cannot_be_read_is_refused():
    with pytest.raises(ConfigError, match="--pid 4194999"):
        examine(CPU, pid=4194999)


# --- two copies in one process ----------------------------------------------------------------

MAPS = """\
7f10c0000000-7f10c0021000 r--p 00000000 08:01 131 /v/site-packages/nvidia/nccl/lib/libnccl.so.2
7f10c0021000-7f10c0300000 r-xp 00021000 08:01 131 /v/site-packages/nvidia/nccl/lib/libnccl.so.2
7f10d0000000-7f10d0300000 r-xp 00000000 08:01 977 /usr/lib/my libs/libnccl.so.2.18.3 (deleted)
7f10e0000000-7f10e0300000 r-xp 00000000 08:01 313 /v/torch/lib/libcudart-1f2e.so.12
7f10e0300000-7f10e0310000 rw-p 00000000 00:00 0
7f10e0400000-7f10e0410000 r-xp 00000000 08:01 9 /usr/lib/libcudnn_ops.so.9
7f10e0500000-7f10e0510000 r-xp 00000000 08:01 7 /usr/lib/libgomp.so.1.0.0
7fffe0000000-7fffe0021000 rw-p 00000000 00:00 0 [stack]
"""


def test_maps_are_read_by_file_and_not_by_mapping():
    assert mapped_libraries(MAPS) == {
        "cudart": ("/v/torch/lib/libcudart-1f2e.so.12",),
        "gomp": ("/usr/lib/libgomp.so.1.0.0",),
        "nccl": ("/usr/lib/my libs/libnccl.so.2.18.3",
                 "/v/site-packages/nvidia/nccl/lib/libnccl.so.2"),
    }  # fmt: skip
    assert mapped_libraries("") == mapped_libraries("nonsense\n\n") == {}


def test_two_copies_of_nccl_fail_and_are_both_named():
    check = found(replace(GPU, libraries=mapped_libraries(MAPS)), "nccl")
    assert check.verdict == "fail"
    assert "2 copies" in check.evidence
    assert "libnccl.so.2.18.3" in check.evidence
    assert check.source == "vllm#1726"
    assert found(GPU, "nccl").verdict == "pass"
    assert found(CPU, "nccl").verdict == "skip"


def test_two_openmp_runtimes_warn():
    both = replace(CPU, libraries={"gomp": ("/a",), "iomp5": ("/b",)})
    assert found(both, "openmp").verdict == "warn"


# --- synthetic tuples: what must fail, warn, pass ---------------------------------------------


def test_healthy_tuples_have_no_complaint():
    for facts in (CPU, GPU):
        assert {c.id: c.verdict for c in judge(facts, shipped()) if c.verdict not in
                ("pass", "skip")} == {}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "name", "verdict", "why"),
    [
        # K41: Triton does not import, and nothing may fall back in silence
        (replace(GPU, triton_error="ImportError: libcuda.so.1"), "triton", "fail", "libcuda"),
        (replace(CPU, triton="3.4.0", triton_error="ImportError: x"), "triton", "warn", "x"),
        (replace(GPU, triton=None), "triton", "warn", "slow kernels"),
        (replace(CPU, triton=None), "triton", "skip", "not needed"),
        # K42: torch and Triton
        (replace(GPU, triton="3.5.0"), "triton", "fail", "asks for triton 3.4"),
        (of_torch(replace(GPU, triton="3.5.1"), wants_triton="3.5.1"), "triton", "pass", "3.5.1"),
        (of_torch(replace(CPU, triton="3.4.0"), version="2.7.1"), "triton", "fail", "3.3"),
        (of_torch(replace(CPU, triton="9.9"), version="2.99.0"), "triton", "warn", "not in"),
        (of_torch(replace(CPU, triton="3.6.0"), version="2.10.1"), "triton", "pass", "3.6"),
        # K42: driver against torch.version.cuda
        (replace(GPU, driver="470.82.01"), "driver", "fail", "needs driver 525"),
        (replace(GPU, driver="535.183.01", driver_cuda="12.2"), "driver", "warn", "minor-version"),
        (of_torch(GPU, cuda="13.0"), "driver", "fail", "needs driver 580"),
        (of_torch(replace(GPU, driver="580.65.06", driver_cuda="13.0"), cuda="13.0"), "driver",
         "pass", "13.0"),
        (of_torch(GPU, cuda="14.1"), "driver", "warn", "not in the table"),
        (replace(GPU, driver=None, nvml_error="NVMLError_LibRmVersionMismatch: RM has detected"),
         "driver", "fail", "RM has detected"),
        # K42: invalid kernel image
        (of_torch(GPU, archs=("sm_70", "sm_80")), "gpu_code", "fail", "9.0"),
        (replace(GPU, gpus=(replace(H200, capability="12.0"),)), "gpu_code", "fail", "12.0"),
        (of_torch(replace(GPU, gpus=(replace(H200, capability="7.0"),)), cuda="13.0"), "gpu_code",
         "fail", "dropped"),
        (of_torch(GPU, archs=("sm_80", "compute_80")), "gpu_code", "pass", "H200"),
        # K42: builds of two CUDAs
        (replace(GPU, packages=GPU.packages | {"vllm": "0.12.0+cu130"}), "cuda_builds", "fail",
         "CUDA 12.8"),
        (replace(GPU, packages=GPU.packages | {"nvidia-nccl-cu13": "2.28"}), "cuda_builds",
         "warn", "another CUDA"),
        # a GPU and a torch that does not use it
        (of_torch(GPU, cuda=None), "torch", "warn", "CPU build"),
        (of_torch(GPU, cuda_available=False), "torch", "fail", "sees no device"),
        (of_torch(CPU, error="OSError: libc10.so"), "torch", "fail", "libc10"),
        # the machine
        (replace(CPU, python="3.10.9"), "python", "fail", "3.11"),
        (replace(CPU, python="3.19.0"), "python", "warn", "nobody has tried"),
        (replace(CPU, libc="glibc 2.17"), "libc", "fail", "2.28"),
        (replace(CPU, cpu=replace(CPU.cpu, quota=CpuQuota(0.5, 100, 80))), "cpu_quota", "warn",
         "80 of 100 periods"),
        (replace(CPU, cpu=replace(CPU.cpu, quota=CpuQuota(4.0, 100, 2))), "cpu_quota", "pass",
         "2 of 100 periods"),
        (replace(CPU, libc=None), "libc", "skip", "not glibc"),
        (replace(CPU, compiler=None, compiler_error="no C compiler"), "compiler", "warn", "no C"),
        (replace(CPU, cpu=replace(CPU.cpu, flags=("f16c",))), "cpu", "warn", "no AVX2"),
        (replace(CPU, machine="aarch64", cpu=replace(CPU.cpu, flags=("asimd",))), "cpu", "pass",
         "asimd"),
        (replace(CPU, cpu=replace(CPU.cpu, mhz=800, governor="powersave")), "cpu_clock", "warn",
         "powersave"),
        (replace(CPU, memory=replace(CPU.memory, available=GIB // 2)), "memory", "fail", "less"),
        (replace(CPU, memory=replace(CPU.memory, limit=GIB // 2)), "memory", "fail", "less"),
        (replace(CPU, memory=replace(CPU.memory, swap_used=9 * GIB)), "memory", "warn", "swapped"),
        (replace(CPU, memory=MemoryFacts()), "memory", "warn", "cannot be read"),
        (replace(CPU, memory=replace(CPU.memory, disk_free=1)), "disk", "warn", "free"),
        (replace(CPU, memory=replace(CPU.memory, open_files=256)), "open_files", "warn", "open"),
        (replace(GPU, gpus=(replace(H200, throttle=("power cap",)),)), "gpu", "warn", "power cap"),
        (replace(GPU, gpus=(replace(H200, temperature_c=91.0),)), "gpu", "warn", "91"),
    ],
)  # fmt: skip
def test_what_must_be_said_of_a_tuple(facts, name, verdict, why):
    check = found(facts, name)
    assert check.verdict == verdict, check
    assert why in check.evidence, check
    if verdict == "fail":
        assert check.remedy, "a failure says what to do"


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (of_torch(replace(CPU, packages={"numpy": "2.0.1"}), version="2.2.2"), "torch-numpy"),
        (of_torch(replace(CPU, triton="3.4.0"), version="2.7.1"), "triton-torch"),
    ],
)
def test_pairs_that_are_known_to_break_fail_with_their_source(facts, name):
    check = found(facts, name)
    assert check.verdict == "fail"
    assert check.source
    assert check.remedy
    assert examine(facts)["verdict"] == "fail"
    assert name not in [c.id for c in judge(CPU, shipped())]


def test_facts_that_are_all_unknown_are_judged_without_a_crash():
    verdicts = {c.verdict for c in judge(EnvironmentFacts(python="3.11.0"), shipped())}
    assert verdicts <= {"pass", "warn", "skip", "fail"}


def test_a_gpu_machine_with_unknown_fields_is_judged_without_a_crash():
    blank = replace(GPU, driver_cuda=None, gpus=(GpuFacts(), GpuFacts("A100", "8.0")))
    checks = [c for c in judge(blank, shipped()) if c.id == "gpu_code"]
    assert [c.verdict for c in checks] == ["warn", "pass"]


# --- reading what is broken -------------------------------------------------------------------


def test_a_triton_that_does_not_import_is_a_fact_with_its_reason(tmp_path, monkeypatch):
    folder = tmp_path / "triton"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError('libtriton.so: bad\\nELF')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    monkeypatch.setattr(reading, "_version", lambda name: "3.4.0")
    assert reading.triton_version() == ("3.4.0", "ImportError: libtriton.so: bad ELF")


def test_an_nvml_that_does_not_match_its_driver_is_a_fact(monkeypatch):
    pynvml = pytest.importorskip("pynvml")

    def refuse():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    driver, _, error, gpus = reading.nvidia()
    assert (driver, gpus) == (None, ())
    assert "mismatch" in error.lower()


# --- versions and the table -------------------------------------------------------------------


def test_versions_compare_by_number():
    assert parts("2.13.0+cpu") == (2, 13, 0)
    assert parts("535.183.01") == (535, 183, 1)
    assert parts("garbage") == ()
    assert begins("2.13.0", "2.13")
    assert not begins("2.13.0", "2.1")
    assert not begins("2.1", "")
    assert at_least("2.10", "2.9")
    assert not at_least("2.9.9", "2.10")
    assert at_least("580", "580.65") is False
    assert matches("2.2.2", "<2.3")
    assert matches("2.3", ">=2.3,<3")
    assert matches("2.3.0", "==2.3")
    assert not matches("2.3.1", "!=2.3")
    assert not matches("unknown", ">=0")
    with pytest.raises(ConfigError, match="no comparison"):
        matches("1", "about 2")


def test_code_for_a_gpu():
    assert runs_on("8.6", ("sm_80",))
    assert not runs_on("8.0", ("sm_86",))
    assert not runs_on("9.0", ("sm_80", "sm_86"))
    assert runs_on("9.0", ("sm_90a",))
    assert not runs_on("10.0", ("sm_90a",))
    assert runs_on("12.0", ("compute_90",))
    assert not runs_on("12.0", ("gfx90a", "sm_100"))


def test_every_entry_of_the_table_has_a_source():
    table = shipped()
    for name in ("python", "libc", "triton", "driver", "dropped"):
        assert getattr(table, name).source
    assert all(rule.source and rule.why and rule.remedy for rule in table.breaks)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = [", "not valid TOML"),
        ("schema = 1", "missing"),
        ('[[breaks]]\nid = "x"\nwhen = { torch = "new" }\nwhy = ""\nremedy = ""\nsource = ""',
         "no comparison"),
        ('[[breaks]]\nid = "x"\nwhen = { luck = "<1" }\nwhy = ""\nremedy = ""\nsource = ""',
         "luck"),
        ('[[breaks]]\nid = "x"\nwhat = 1', "what"),
    ],
)  # fmt: skip
def test_a_table_that_is_wrong_is_refused(tmp_path, text, why):
    path = tmp_path / "table.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_table(path)
