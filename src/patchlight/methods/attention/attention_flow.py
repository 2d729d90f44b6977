from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.registry import Cost, Taps, method
from patchlight.methods._chain import Readout, is_skipped, start_row
from patchlight.tracing.trace import Steps, Trace

CAPACITY = 10**8  # scipy's solver takes int32: shares are rounded to 1e-8


@method(
    paper="Abnar & Zuidema 2020, Quantifying Attention Flow in Transformers",
    equation="M_v = maxflow((L, cls) -> (0, v)), capacity of (l, i) -> (l - 1, j) = rownorm(mean_h A_l + I)[i, j]",
    needs=("chain",),
    cost=Cost(1, 0),
    taps=Taps(),
    class_blind=True,
)
def attention_flow(trace: Trace, *, normalise: bool = False, readout: Readout = None) -> Steps:
    """The exact maximum flow from the class token behind the last block to each token in front of the first.

    On ViTs it is nearly always min(1, column sum of the first block's matrix): the edges into the sink are the bottleneck, and
    many patches tie at 1. So it says little about the model beyond its first block; the notes give the share of patches at that
    bound. `normalise` divides by the sum over all tokens, as the paper does.
    """
    layout, steps, source = trace.layout, [], None
    while (seen := (yield)) is not None:
        if is_skipped(seen.block, readout) or seen.block.kind in ("class", "pool"):
            continue
        fused = seen.mean_attention.double()  # (b, n, n)
        steps.append(with_skip(fused).cpu())
        trace.keep("capacity", seen.index, with_skip(fused))
        if source is None:
            whole = readout if readout is not None or layout.pool != "attention" else "mean"
            source = start_row(layout, whole, fused)[0].double().cpu().numpy()
    if source is None:
        raise SettingError("attention_flow: no block attends over all tokens.")
    maps = torch.stack(steps[::-1], 1).numpy()  # (b, l, n, n), first block first
    found = np.stack([flows(m, source) for m in maps])
    bound = np.minimum(1, maps[:, 0].sum(1))
    trace.notes += [f"attention_flow: {share:.0%} of the tokens are at the bound min(1, column sum of the first block)"
                    for share in (np.abs(found - bound) < 1e-6).mean(1)]  # fmt: skip
    scores = torch.from_numpy(found / found.sum(1, keepdims=True) if normalise else found)
    return scores.to(trace.logits.device, torch.promote_types(trace.logits.dtype, torch.float32))


def with_skip(fused: Tensor) -> Tensor:
    """rownorm(A + I)"""
    total = fused + torch.eye(fused.shape[-1], dtype=fused.dtype, device=fused.device)
    return total / total.sum(-1, keepdim=True)


def flows(maps: np.ndarray, source: np.ndarray) -> np.ndarray:
    """(n,) the maximum flow to each token, for capacities (l, n, n), rows summing to 1, and a source row (n,) summing to 1.

    Node k n + i is token i behind block k; one more node feeds the tokens behind the last block by the source row.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_flow

    blocks, tokens, _ = maps.shape
    whole = np.rint(np.asarray(maps, dtype=np.float64) * CAPACITY).astype(np.int32)
    layer, query, key = np.nonzero(whole)
    feed = np.nonzero(np.rint(source * CAPACITY))[0]
    heads = np.concatenate([(layer + 1) * tokens + query, np.full(len(feed), (blocks + 1) * tokens)])
    tails = np.concatenate([layer * tokens + key, blocks * tokens + feed])
    capacities = np.concatenate([whole[layer, query, key], np.rint(source[feed] * CAPACITY).astype(np.int32)])
    nodes = (blocks + 1) * tokens + 1
    graph = csr_matrix((capacities, (heads, tails)), shape=(nodes, nodes), dtype=np.int32)
    return np.array([maximum_flow(graph, nodes - 1, v).flow_value for v in range(tokens)]) / CAPACITY
