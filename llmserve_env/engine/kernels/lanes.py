"""Loops over the leading slots of a batch, in whole vectors.

A batch of a few dozen requests would never fill the vectors that LLVM unrolls a loop into, and be worked off one by
one. The rows of slots are therefore read to the end of the last vector, and slots beyond the batch count as nothing.
Such loops keep to 32 bits, of which a vector holds twice as many.
"""

from __future__ import annotations

import numpy as np
from numba import config

from llmserve_env.engine.kernels.compilation import kernel

LANES = 1 if config.DISABLE_JIT else 64
"""Slots at a time: four vectors of the widest registers, as many as LLVM takes per round. Interpreted, one."""

FEW = 8
"""Fewer slots than these are worked off faster one by one."""
ZERO = np.int32(0)


@kernel
def whole_vectors(slots):
    """The number of slots to loop over for the leading `slots`; it never exceeds the room of a row."""
    return slots if slots < FEW else (slots + LANES - 1) & ~(LANES - 1)
