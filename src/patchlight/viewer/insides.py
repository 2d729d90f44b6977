"""What went on inside a method, block by block, as small maps; told by shape alone, so that a new method needs no change here."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from patchlight.core.layout import Layout
from patchlight.render.pack import packed

SIDE = 56  # of a map of pixels
MASKS = 24  # of a gallery


def shown(insides: Mapping[str, Any], layout: Layout, picture: int) -> list[dict[str, Any]]:
    """A row for each name: one map for each block, or a gallery of masks with their scores."""
    # (B, ...), or a list with one for each picture where these differ in shape
    own: dict[str, Any] = {
        n: {k: t[picture] for k, t in v.items()} if isinstance(v, Mapping) else v[picture] for n, v in insides.items()
    }
    rows = [row for name, found in own.items() for row in rows_of(name, found, layout)]
    masks = [gallery(name, found, own) for name, found in own.items() if is_masks(found, layout)]
    return rows + masks


def rows_of(name: str, found: Any, layout: Layout) -> list[dict[str, Any]]:
    blocks = found if isinstance(found, Mapping) else {} if is_masks(found, layout) else {-1: found}
    rows: dict[str, list[dict[str, Any]]] = {}
    for block, values in blocks.items():
        for part, one in maps_of(values.detach().float().cpu(), layout).items():
            rows.setdefault(f"{name}{part}", []).append({"block": int(block), **packed(one)})
    # a row of zeros, such as that of a diagonal matrix read in the class token's row, says nothing
    return [{"name": label, "maps": maps} for label, maps in rows.items() if any(m["most"] for m in maps)]


def maps_of(values: Tensor, layout: Layout) -> dict[str, np.ndarray]:
    """Addition to the name -> map; matrices are read as the head reads them, heads by their mean."""
    tokens, patches = layout.tokens, prod(layout.grid)
    shape = tuple(values.shape)
    if not shape or not patches:
        return {}
    if shape[-1] in (tokens, patches) and len(shape) == 1:
        return {"": values[-patches:].unflatten(0, layout.grid).numpy()}
    if shape[-2:] == (tokens, tokens):
        return {} if len(shape) > 3 else read(values, layout)
    if shape[-1] in (tokens, patches) and len(shape) == 2:
        return {", mean of heads": values.mean(0)[-patches:].unflatten(0, layout.grid).numpy()}
    if len(shape) == 2 and min(shape) > 1:
        side = min(SIDE, shape[0]), min(SIDE, shape[1])
        return {"": (values if shape == side else F.adaptive_avg_pool2d(values[None], side)[0]).numpy()}
    return {}


def read(values: Tensor, layout: Layout) -> dict[str, np.ndarray]:
    """(n, n), or a few or a head's worth of them: the row that the head reads."""
    rows = values.new_tensor(layout.readout) @ values  # (..., n)
    grids = rows[..., -prod(layout.grid) :].unflatten(-1, layout.grid)
    if grids.dim() == 2:
        return {"": grids.numpy()}
    if len(grids) == 2:  # the two halves of a block
        return {", attention": grids[0].numpy(), ", MLP": grids[1].numpy()}
    return {", mean of heads": grids.mean(0).numpy()}


def is_masks(found: Any, layout: Layout) -> bool:
    """(m, h, w)"""
    return isinstance(found, Tensor) and found.dim() == 3 and found.shape[-1] != layout.tokens


def gallery(name: str, masks: Tensor, insides: Mapping[str, Any]) -> dict[str, Any]:
    """The masks (m, h, w) with the highest scores, where some inside has a score for each."""
    scores = next((v for v in insides.values() if isinstance(v, Tensor) and v.shape == masks.shape[:1]), None)
    order = range(min(MASKS, len(masks))) if scores is None else scores.float().argsort(descending=True)[:MASKS].tolist()
    side = min(28, masks.shape[1]), min(28, masks.shape[2])
    small = F.adaptive_avg_pool2d(masks.detach().float(), side).cpu().numpy()
    maps = [{"block": -1, "score": None if scores is None else float(scores[i]), **packed(small[i])} for i in order]
    return {"name": name, "gallery": True, "total": len(masks), "maps": maps}
