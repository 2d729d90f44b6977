from __future__ import annotations

import torch
from torch import Tensor

from patchlight.core.errors import SettingError
from patchlight.core.metric import Case, Found, metric
from patchlight.metrics.sanity._again import check_count, remade


@metric(
    paper="Yeh et al. 2019, On the (In)fidelity and Sensitivity of Explanations, arXiv:1901.09392",
    equation="max_s |M(x + e_s) - M(x)| / |M(x)|, e_s ~ U(-radius, radius) for every value, |.| Euclidean",
    better="lower",
    needs=("method",),
)
def max_sensitivity(case: Case, *, radius: float = 0.02, samples: int = 10) -> Found:
    """How much the map moves, at most, when the picture is changed by less than anybody sees.

    The radius is in the units of the normalised input (0.02 is about one grey level of 255 for ImageNet's deviation). Maps are
    made for the class that was explained first. Every picture draws from its own content and the seed, so batches do not
    matter. The maximum grows with `samples`: compare at equal ones. A map that never changes gets 0: low alone is no praise.
    A method that draws numbers itself draws others for a changed picture, and its own noise counts too (see `seed_agreement`).
    """
    check_count("max_sensitivity", samples=samples)
    if radius <= 0:
        raise SettingError(f"max_sensitivity: radius takes a number above 0, but {radius} came.")
    generators = case.generators()
    moved = [distance(case, remade(case, "max_sensitivity", near(case.images, generators, radius))) for _ in range(samples)]
    curve = torch.stack(moved, 1).cummax(1).values
    missing = int(curve[:, -1].isnan().sum())
    notes = (f"{missing} maps are zero or became broken: no value",) if missing else ()
    at = torch.arange(1, samples + 1, dtype=torch.float64, device=curve.device)
    return Found(curve[:, -1], curve, at, notes=notes)


def near(images: Tensor, generators: list[torch.Generator], radius: float) -> Tensor:
    """(b, 3, H, W) with each picture's own noise, drawn on the CPU so that all devices draw the same."""
    noise = [torch.rand(images.shape[1:], generator=g, dtype=torch.float64) * 2 - 1 for g in generators]
    return images + radius * torch.stack(noise).to(images.device, images.dtype)


def distance(case: Case, maps: Tensor) -> Tensor:
    """(b,) relative to the map; NaN for a map of zeros."""
    base = case.pixels.double().flatten(1)
    size = base.norm(dim=1)
    return torch.where(size > 0, (maps.double().flatten(1) - base).norm(dim=1) / size, torch.nan)
