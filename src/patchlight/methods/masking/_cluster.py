"""Complete linkage: by scipy on a CPU, and for many pictures at once on any other device, which would wait for scipy."""

from __future__ import annotations

from heapq import heappush, heappushpop
from math import inf, nextafter

import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor


def partition(distance: Tensor, threshold: float) -> Tensor:
    """(b, d) labels 0 ... K - 1 of (b, d, d) distances: clusters whose members are all nearer than `threshold`.

    They are numbered as scikit-learn does, whose numbering the authors' code hands the noise to.
    """
    if distance.device.type == "cpu":
        first = torch.stack([one_picture(d, threshold) for d in distance])
    else:
        first = by_rounds(distance, threshold)
    return torch.stack([numbered(own, d) for own, d in zip(first, distance, strict=True)])


def numbered(first: Tensor, distance: Tensor) -> Tensor:
    """(d,) first members as labels: the places in a heap from which the latest merge is taken apart again and again."""
    found, place = first.unique(return_inverse=True)
    apart = between(place, len(found), distance).cpu()
    width = apart.diagonal()  # where a cluster was merged last; the single ones come first, in their order
    rank = torch.argsort(torch.where(width > 0, width, -1.0), stable=True)
    if len(found) == 1:
        return place
    near = squareform(apart[rank][:, rank].fill_diagonal_(0).numpy(), checks=False)
    merges = linkage(near, "complete")[:, :2].astype(int).tolist()
    heap = [-(2 * len(found) - 2)]
    for _ in range(len(found) - 1):
        low, high = merges[-heap[0] - len(found)]
        heappush(heap, -low)
        heappushpop(heap, -high)
    label = torch.empty(len(found), dtype=torch.long)
    label[rank[[-node for node in heap]]] = torch.arange(len(found))
    return label.to(place.device)[place]


def between(place: Tensor, count: int, distance: Tensor) -> Tensor:
    """(K, K) the largest distance between members of two clusters; on the diagonal, within one."""
    rows = distance.new_zeros(count, len(distance))
    rows = rows.scatter_reduce(0, place[:, None].expand_as(distance), distance, "amax")
    return distance.new_zeros(count, count).scatter_reduce(1, place.expand_as(rows), rows, "amax")


def one_picture(distance: Tensor, threshold: float) -> Tensor:
    """(d,) the first member of each one's cluster."""
    if len(distance) < 2:
        return torch.zeros(len(distance), dtype=torch.long)
    near = squareform(((distance + distance.T) / 2).fill_diagonal_(0).clamp_min(0).numpy(), checks=False)
    found = torch.from_numpy(fcluster(linkage(near, "complete"), nextafter(threshold, -inf), "distance")).long()
    return (found[:, None] == found).to(torch.uint8).argmax(1)  # the first of equals


def by_rounds(distance: Tensor, threshold: float) -> Tensor:
    """The same for all pictures together: (b, d, d) -> (b, d) first members.

    Two clusters that are each other's nearest may be merged in any order without changing the hierarchy (complete linkage is
    reducible: Bruynooghe 1977), so every round merges all such pairs of all pictures.
    """
    d = distance.shape[1]
    gap = distance.clone()
    gap.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    label = torch.arange(d, device=gap.device).repeat(len(gap), 1)  # (b, d) the cluster's first member
    index = torch.arange(d, device=gap.device)
    while True:
        nearest = gap.argmin(2)  # (b, d), the first of equals
        mutual = nearest.gather(1, nearest) == index
        close = gap.gather(2, nearest[..., None])[..., 0] < threshold
        pair = mutual & close & (index < nearest)  # (b, d) keeps `nearest` as its partner
        if not pair.any():
            return label
        partner = torch.where(pair, nearest, index)
        # distance of merged clusters: the largest of their members; rows first, then columns
        gap = torch.maximum(gap, gap.gather(1, partner[:, :, None].expand_as(gap)))
        gap = torch.maximum(gap, gap.gather(2, partner[:, None].expand_as(gap)))
        gone = mutual & close & (index > nearest)  # the other side of the same pairs
        gap.masked_fill_(gone[:, :, None] | gone[:, None], torch.inf)
        gap.diagonal(dim1=1, dim2=2).fill_(torch.inf)
        into = torch.where(gone, nearest, index)  # a pair is mutual, so the lost one's nearest is its keeper
        label = into.gather(1, label)
