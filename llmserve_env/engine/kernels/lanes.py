"""Loops over the leading slots of a batch, in whole vectors.

LLVM unrolls such a loop into vectors that a batch of a few dozen requests would never fill, so that its slots would be
processed one by one. Rows of slots are therefore read to the end of the last vector, and slots beyond the batch count
as nothing. These loops use 32-bit numbers, because a vector holds twice as many of them.
"""

from __future__ import annotations

import numpy as np
from numba import config

from llmserve_env.engine.kernels.compilation import kernel

LANES = 1 if config.DISABLE_JIT else 64
"""Slots at a time: four vectors of the widest registers, as many as LLVM takes per round. Interpreted, one."""

FEW = 8
"""Fewer slots than this are processed faster one by one."""
ZERO = np.int32(0)


@kernel
def whole_vectors(slots):
    """The number of slots to loop over for the leading `slots`; it never exceeds the room of a row."""
    return slots if slots < FEW else (slots + LANES - 1) & ~(LANES - 1)
