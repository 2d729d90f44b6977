"""Mean curves with their 95 % bands: what a metric saw while pixels went or came."""

from __future__ import annotations

import io
from collections.abc import Mapping
from itertools import cycle

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from patchlight.core.errors import PictureError

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito: colour-blind safe
DRAWS = 1000
STYLES = ("-", "--", "-.", ":")


def curves(
    at: np.ndarray, lines: Mapping[str, np.ndarray], *, title: str = "", across: str = "share", up: str = "score", dpi: int = 150
) -> Image.Image:
    """A picture of the mean of each (n, steps) over the places `at` (steps,); the band is the 95 % bootstrap interval."""
    if not lines:
        raise PictureError("curves takes at least one line, but none came. Give {name: (n, steps)}.")
    figure = Figure(figsize=(6.4, 4.2), dpi=dpi, layout="constrained")
    axes = figure.add_subplot()
    for (name, rows), colour, style in zip(lines.items(), cycle(COLOURS), cycle(STYLES), strict=False):
        if rows.ndim != 2 or rows.shape[1] != len(at):
            raise PictureError(f"the curve {name!r} is {rows.shape}, but ({len(at)} places) were given. Give (n, {len(at)}).")
        sound = rows[np.isfinite(rows).all(1)]
        if not len(sound):
            continue
        mean = sound.mean(0)
        axes.plot(at, mean, style, color=colour, label=f"{name} (n = {len(sound)})", linewidth=1.8)
        if len(sound) > 1:
            share = np.random.default_rng(0).multinomial(len(sound), [1 / len(sound)] * len(sound), DRAWS) / len(sound)
            low, high = np.quantile(share @ sound, [0.025, 0.975], axis=0)
            axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(title=title, xlabel=across, ylabel=up)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=9)
    data = io.BytesIO()
    figure.savefig(data, format="png")
    data.seek(0)
    with Image.open(data) as image:
        return image.convert("RGB")
