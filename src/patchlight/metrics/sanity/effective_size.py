from __future__ import annotations

from patchlight.core.metric import Case, Found, metric
from patchlight.metrics.sanity._shares import shares, told


@metric(
    paper="patchlight; the participation ratio of physics, Bell & Dean 1970 (Quantus counts pixels above a threshold instead)",
    equation="1 / (n sum p^2), p = |M| / sum |M|",
    better="neither",
)
def effective_size(case: Case) -> Found:
    """The share of the picture that a map effectively covers: m equal pixels among n give m / n, whatever the rest is near.

    No threshold has to be chosen. 1 for a map that is the same everywhere.
    """
    p, something = shares(case)
    return told(1 / (p.shape[1] * p.square().sum(1)).clamp_min(1e-300), something)
