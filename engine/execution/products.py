"""Which weights an engine runs on: how they are read, and how each matrix is multiplied."""

from __future__ import annotations

from collections.abc import Mapping

from engine import models
from engine.config import EngineConfig
from engine.execution.calibration import for_engine
from engine.models import LoadedModel
from engine.models.products import Products, Quantised
from engine.models.weights import Checkpoint
from kernels.dispatch import Backend

CALIBRATED = ("auto", "mixed", "int8")
"""Of `compute`: what asks a calibration which columns stay in float."""


def weights_of(config: EngineConfig) -> tuple[object, ...]:
    """Two engines with the same can share one loaded model."""
    same = (config.model, config.device, config.kernels, config.weights, config.compute)
    calibrated = config.compute in CALIBRATED
    return same + ((config.outlier_columns, config.calibration) if calibrated else ())


def checkpoint_of(config: EngineConfig) -> Checkpoint:
    """The model's files, opened, as `config.weights` wants them read."""
    checkpoint = models.open_checkpoint(models.resolve(config.model))
    return Quantised(checkpoint) if config.weights == "q8_0" else checkpoint


def products_for(config: EngineConfig, checkpoint: Checkpoint, backend: Backend) -> Products:
    """What `config.compute` comes to on this model and these kernels.

    Raises ConfigError for a calibration that is not this model's.
    """
    compute = config.compute
    columns: Mapping[str, tuple[int, ...]] = {}
    if compute in CALIBRATED:
        found = for_engine(config, checkpoint.spec, models.identity(checkpoint.files))
        columns = {} if found is None else found.columns
    if compute == "auto":  # the reference multiplies integers too, more slowly than floats
        compute = "mixed" if backend.name == "cpu" and columns else "f32"
    kept = {name: row[: config.outlier_columns] for name, row in columns.items()}
    return Products(compute, kept)


def notes_on(config: EngineConfig, loaded: LoadedModel) -> list[str]:
    """What is odd about products of integers on this model."""
    products, notes = loaded.products, []
    if products.compute == "f32":
        return []
    if loaded.model.in_float:
        notes.append(
            f"compute: {loaded.model.in_float} matrices are not quantised and are multiplied in "
            "float; weights = q8_0 quantises them as they are loaded"
        )
    if products.compute in CALIBRATED and not products.columns:
        notes.append(
            "compute: no calibration names outlier columns of this model, so none stays in float; "
            f"`evewatch model calibrate --model {config.model}` finds them"
        )
    return notes
