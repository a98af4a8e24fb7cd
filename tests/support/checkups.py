"""A tiny model in files, and the load and soak that check-ups of it use."""

from pathlib import Path

from builders import tiny_spec, tiny_tensors
from engine.config import EngineConfig
from model_files import write_hf
from playbooks.checkup.site import Site
from playbooks.steps.models import LoadStep, SoakStep

LOAD = LoadStep(arrivals="closed:6", lengths="lognormal:14,10,0.3", requests=36, shared_prefix=8)
SOAK = SoakStep(requests=54, waves=6)


def tiny_folder(path: Path) -> Path:
    """Its attention is sharp, so that errors in K matter."""
    spec = tiny_spec(layers=4)
    tensors = tiny_tensors(spec)
    for name in tensors:
        if "q_proj" in name or "k_proj" in name:
            tensors[name] *= 3.0
    return write_hf(path, spec, tensors)


def tiny_config(folder: Path, **settings) -> EngineConfig:
    base = {"kernels": "cpu", "max_batch": 16, "token_budget": 256, "kv_memory": 1 << 23}
    return EngineConfig(model=str(folder), **(base | settings))


def tiny_site(folder: Path, **settings) -> Site:
    return Site(tiny_config(folder, **settings))
