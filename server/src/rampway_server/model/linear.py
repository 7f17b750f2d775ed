"""A linear layer whose weight is packed once for the device that multiplies with it.

It knows shapes and dtypes, not what the layer is for.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Linear"]

_PACK_ROWS = 32  # the batch oneDNN is told to expect: between decode and a prefill chunk
_TILE = 32  # rows of every product in the invariant mode


class Linear:
    """`x @ weight.T + bias`; `weight` is `[out, in]` and is given up to this object."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, *, invariant: bool = False
    ) -> None:
        """Pack `weight`. On CPU oneDNN's own layout is 2 to 5 times faster at small batches.

        An `invariant` layer multiplies in tiles of 32 rows, padded with zeros: libraries choose
        their order of summing by the number of rows, so a fixed number fixes the order.
        """
        self._invariant = invariant
        self.out_features, self.in_features = weight.shape
        self._bias = bias
        self._packed = _can_pack(weight)
        if self._packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _PACK_ROWS)  # noqa: SLF001
        else:
            self._weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        """Return `[T, out]` in the dtype of `x` `[T, in]`; sums are in fp32."""
        if not self._invariant:
            return self._product(x)
        rows = x.shape[0]
        padded = functional.pad(x, (0, 0, 0, -rows % _TILE))
        return torch.cat([self._product(tile) for tile in torch.split(padded, _TILE)])[:rows]

    def _product(self, x: Tensor) -> Tensor:
        if not self._packed:
            return functional.linear(x, self._weight, self._bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001
            x, self._weight, self._bias, "none", [], ""
        )
        return out


def _can_pack(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001
    return weight.dtype == torch.float32
