"""Base class of every part of a description: strict numbers and no unknown fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, gt=0.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(strict=True, ge=0.0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, gt=0.0, le=1.0, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=1)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=64)]


class Part(BaseModel):
    """A frozen part of a description that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _known_fields_only(cls, data: Any) -> Any:
        """Refuse unknown fields here as well as by `extra`, so that the message lists the allowed ones."""
        if isinstance(data, Mapping):
            fields = {field.alias or name: name for name, field in cls.model_fields.items()}
            unknown = sorted(str(key) for key in data if key not in fields and key not in fields.values())
            if unknown:
                raise ValueError(f"unknown field {', '.join(unknown)}; allowed: {', '.join(fields)}")
        return data
