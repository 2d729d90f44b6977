"""What each torch function does to a message on its way back: the names under which rules are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F

T = torch.Tensor


def named(table: Mapping[str, tuple[Any, ...]]) -> Mapping[Any, str]:
    return MappingProxyType({function: name for name, functions in table.items() for function in functions})


OPERATIONS = named(
    {
        "linear": (F.linear,),
        "convolution": (F.conv1d, F.conv2d, F.conv3d, torch.conv1d, torch.conv2d, torch.conv3d),
        "matmul": (
            torch.matmul, T.matmul, T.__matmul__, T.__rmatmul__, torch.bmm, T.bmm, torch.mm, T.mm, torch.einsum,
            torch.functional.einsum,
        ),
        "layer_norm": (F.layer_norm, torch.layer_norm),
        "rms_norm": (F.rms_norm, torch.rms_norm),
        "batch_norm": (F.batch_norm, torch.batch_norm),
        "normalize": (F.normalize,),
        "softmax": (F.softmax, torch.softmax, T.softmax),
        "activation": (
            F.gelu, F.relu, torch.relu, T.relu, F.relu6, F.silu, F.mish, F.elu, F.celu, F.selu, F.leaky_relu, F.hardswish,
            F.hardtanh, F.tanh, torch.tanh, T.tanh, torch.erf, T.erf, F.softsign,
        ),
        "gate": (F.sigmoid, torch.sigmoid, T.sigmoid, F.hardsigmoid),
        "add": (torch.add, T.add, T.__add__, T.__radd__, torch.sub, T.sub, T.__sub__, torch.subtract, T.subtract),
        "subtract from": (T.__rsub__, torch.rsub),
        "product": (torch.mul, T.mul, T.__mul__, T.__rmul__, torch.multiply, T.multiply),
        "scale": (torch.neg, T.neg, T.__neg__, torch.negative, T.negative),
        "quotient": (torch.div, T.div, T.__truediv__, torch.true_divide, T.true_divide),
        "sum": (
            torch.mean, T.mean, torch.sum, T.sum, F.avg_pool2d, F.adaptive_avg_pool2d, F.avg_pool1d, F.adaptive_avg_pool1d,
        ),
        "concatenation": (torch.cat, torch.concat, torch.concatenate, torch.stack),
        "padding": (F.pad,),
        "masking": (T.masked_fill, torch.masked_fill, torch.where, T.where),
    }
)  # fmt: skip

# What only moves numbers, or takes one of them: a message goes the way that the number came.
STRUCTURAL = frozenset(
    {
        T.view, T.view_as, T.reshape, torch.reshape, T.reshape_as, T.permute, torch.permute, T.transpose, torch.transpose,
        T.swapaxes, torch.swapaxes, T.movedim, torch.movedim, T.t, torch.t, T.flatten, torch.flatten, T.unflatten,
        torch.unflatten, T.contiguous, T.clone, torch.clone, T.to, T.float, T.double, T.type, T.type_as, T.squeeze,
        torch.squeeze, T.unsqueeze, torch.unsqueeze, T.expand, T.expand_as, torch.broadcast_to, T.chunk, torch.chunk,
        T.split, torch.split, T.unbind, torch.unbind, T.__getitem__, T.select, torch.select, T.narrow, torch.narrow,
        T.index_select, torch.index_select, T.gather, torch.gather, torch.take_along_dim, T.roll, torch.roll, T.flip,
        torch.flip, T.repeat, T.repeat_interleave, torch.repeat_interleave, T.tile, torch.tile, T.copy_, T.__setitem__,
        F.dropout, T.max, torch.max, T.amax, torch.amax, F.max_pool2d, torch.max_pool2d, F.unfold, F.pixel_unshuffle,
        F.pixel_shuffle, T.unfold, T.tensor_split, torch.tensor_split, T.bfloat16, T.half, torch.max_pool1d, torch.diagonal,
        T.diagonal, T.nan_to_num, torch.nan_to_num, T.requires_grad_, T.ravel, torch.ravel,
        *(vars(torch._C.TensorBase)[name].__get__ for name in ("T", "mT")),
    }
)  # fmt: skip

# Writing into a tensor: computed beside it and copied in, so that what was there before stays known.
IN_PLACE: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        T.add_: torch.add, T.__iadd__: torch.add, T.sub_: torch.sub, T.__isub__: torch.sub, T.mul_: torch.mul,
        T.__imul__: torch.mul, T.div_: torch.div, T.__itruediv__: torch.div, T.relu_: torch.relu, torch.relu_: torch.relu,
        T.sigmoid_: torch.sigmoid, T.tanh_: torch.tanh, T.masked_fill_: torch.masked_fill,
    }
)  # fmt: skip
