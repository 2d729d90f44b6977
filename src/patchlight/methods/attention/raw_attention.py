from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from patchlight.core.errors import SettingError
from patchlight.core.layout import Layout
from patchlight.core.registry import Cost, Taps, method
from patchlight.methods._chain import Readout, map_index, read, start_row
from patchlight.tracing.trace import Steps, Trace


def taps(settings: Mapping[str, Any], layout: Layout) -> Taps:
    map_index(layout, settings["block"], method="raw_attention")
    return Taps()


@method(
    paper="Bahdanau et al. 2015; as a baseline for ViT in Chefer et al. 2021",
    equation="M = mean_h A_l[cls, :]",
    needs=("last attention",),
    cost=Cost(1, 0),
    taps=taps,
    class_blind=True,
)
def raw_attention(
    trace: Trace,
    *,
    block: int = -1,
    head_fusion: Literal["mean", "max", "min"] = "mean",
    head: int | None = None,
    readout: Readout = None,
) -> Steps:
    """Where the tokens that feed the head attend in one block.

    The row of the class token (or the mean of the rows, where the head pools) of one block's attention, over heads.
    """
    index = map_index(trace.layout, block, method="raw_attention")
    scores = None
    while (seen := (yield)) is not None:
        if seen.index == index:
            whole = start_row(trace.layout, readout, seen.attention)
            rows = read(whole, seen.attention)  # (b, h, k)
            trace.keep("attention", index, seen.attention)
            picked = rows[:, check_head(head, rows.shape[1])] if head is not None else None
            scores = picked if picked is not None else FUSE[head_fusion](rows)
    assert scores is not None
    return scores


FUSE = {"mean": lambda r: r.mean(1), "max": lambda r: r.amax(1), "min": lambda r: r.amin(1)}


def check_head(head: int, heads: int) -> int:
    if not -heads <= head < heads:
        raise SettingError(f"raw_attention: head takes 0 to {heads - 1}, but {head} came.")
    return head
