"""The one base of every type that is handed from stage to stage or written to a file."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION: Final = 1
"""Of records, facts, baselines and verdicts. Raised when a reader of the old form would misread the new."""


class Model(BaseModel):
    """Frozen; unknown keys and non-finite numbers are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
