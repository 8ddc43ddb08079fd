"""Array views without reference counts.

Counting references on every view costs more than the simulation itself, in run time and in compile time. The caller of
the outermost kernel holds the arrays, so the kernels may borrow them.
"""

from __future__ import annotations

from numba import config
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array


@intrinsic
def _borrow(typing_context, array):
    def codegen(context, builder, signature, args):
        array_class = make_array(signature.args[0])
        source, view = array_class(context, builder, args[0]), array_class(context, builder)
        for field in ("nitems", "itemsize", "data", "shape", "strides"):
            setattr(view, field, getattr(source, field))
        for field in ("meminfo", "parent"):
            setattr(view, field, cgutils.get_null_value(getattr(view, field).type))
        return view._getvalue()

    return array(array), codegen


def _same(array):
    return array


borrow = _same if config.DISABLE_JIT else _borrow
