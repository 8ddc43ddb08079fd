"""The array type that annotations use: the dtype is part of a record's layout, not of a signature."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
