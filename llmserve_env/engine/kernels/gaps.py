"""Moving the tail of a row one place forward, as one memory move."""

from __future__ import annotations

from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array


@intrinsic
def _close_gap(typing_context, row, gap, last):
    def codegen(context, builder, signature, args):
        array_type = signature.args[0]
        array = make_array(array_type)(context, builder, args[0])
        target = builder.gep(array.data, [args[1]])
        source = builder.gep(target, [context.get_constant(types.intp, 1)])
        itemsize = context.get_abi_sizeof(context.get_data_type(array_type.dtype))
        count = builder.sub(args[2], args[1])
        cgutils.raw_memmove(builder, target, source, count, itemsize)
        return context.get_dummy_value()

    return types.none(row, types.intp, types.intp), codegen


def _close_gap_interpreted(row, gap, last):
    row[gap:last] = row[gap + 1 : last + 1].copy()


close_gap = _close_gap_interpreted if config.DISABLE_JIT else _close_gap
"""close_gap(row, gap, last): row[gap..last-1] = row[gap+1..last], for a contiguous row and 0 <= gap <= last."""
