"""One drawn scene: shapes are exact, a pixel belongs to a shape when its centre lies in it."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from PIL import Image

from patchlight.data._set import box_of

Shape = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(u, v) in radii -> inside or not; every shape lies within the unit circle."""


def polar(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.hypot(u, v), np.arctan2(v, u)


def star(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    radius, angle = polar(u, v)
    return radius <= 0.6 + 0.38 * np.cos(5 * angle)


CLASSES: tuple[tuple[str, Shape], ...] = (
    ("disc", lambda u, v: np.hypot(u, v) <= 0.8),
    ("triangle", lambda u, v: (v <= 0.5) & (np.abs(u) * 3**0.5 <= v + 1)),
    ("cross", lambda u, v: (np.minimum(np.abs(u), np.abs(v)) <= 0.26) & (np.maximum(np.abs(u), np.abs(v)) <= 0.94)),
    ("ring", lambda u, v: np.abs(np.hypot(u, v) - 0.75) <= 0.22),
    ("square", lambda u, v: np.maximum(np.abs(u), np.abs(v)) <= 0.7),
    ("star", star),
)
DISTRACTORS: tuple[Shape, ...] = (
    lambda u, v: (np.abs(u) <= 0.95) & (np.abs(v) <= 0.2),  # a bar
    lambda u, v: (np.hypot(u, v) <= 0.9) & (v >= 0.1),  # half a disc
    lambda u, v: np.hypot(np.abs(u) - 0.55, v) <= 0.35,  # two dots
)
CONTRAST = 0.3  # of a thing to the texture behind it and to the marks, in the channel that differs most


@dataclass(frozen=True)
class Wanted:
    """The settings of `scenes`."""

    size: int
    classes: int
    distractors: int
    texture: str
    mark: float | None
    cause: str
    leave_out: str


@dataclass(frozen=True, eq=False)
class Drawn:
    """The finished picture (h, w, 3) in 0 ... 1 and the masks of what is in it."""

    pixels: np.ndarray
    parts: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Scene:
    """What is in the scene is decided by (seed, index) alone; it is drawn when asked for, and not kept."""

    seed: int
    index: int
    wanted: Wanted

    @cached_property
    def classes(self) -> tuple[int, int]:
        """(object, mark): the cause is drawn evenly, the other agrees with it in the share `mark`."""
        random, wanted = np.random.default_rng([self.seed, self.index, 0]), self.wanted
        cause = int(random.integers(wanted.classes))
        other = (cause + 1 + int(random.integers(wanted.classes - 1))) % wanted.classes
        second = cause if random.random() < (wanted.mark if wanted.mark is not None else 0) else other
        return (cause, second) if wanted.cause == "object" else (second, cause)

    @property
    def label(self) -> int:
        return self.classes[0 if self.wanted.cause == "object" else 1]

    def image(self) -> Image.Image:
        return Image.fromarray(np.rint(255 * draw(self).pixels).astype(np.uint8))

    def parts(self) -> Mapping[str, np.ndarray]:
        return {name: mask.copy() for name, mask in draw(self).parts.items()}

    def mask(self) -> np.ndarray:
        return self.parts()[self.wanted.cause]

    def boxes(self) -> list[tuple[float, float, float, float]]:
        return box_of(self.mask() > 0)


@lru_cache(maxsize=4)  # picture, boxes and masks of an item are asked for one after the other
def draw(scene: Scene) -> Drawn:
    """All is drawn from the generator whether it is left out or not, so that everything else stays where it is."""
    random, wanted = np.random.default_rng([scene.seed, scene.index, 1]), scene.wanted
    canvas = texture(random, wanted.size, wanted.texture)
    radius, centre = random.uniform(0.15, 0.21), random.uniform(0.3, 0.7, 2)
    taken, marks = [(centre, radius)], mark_colours(wanted.classes)
    mask = placed(random, CLASSES[scene.classes[0]][1], centre, radius, wanted.size)
    things = [("object", mask, colour(random, canvas[mask], marks))]
    corner = int(random.integers(4))
    if wanted.mark is not None:
        where, square = mark_at(corner, wanted.size)
        taken.append((where, 0.09))
        things.append(("mark", square, marks[scene.classes[1]]))
    for _ in range(wanted.distractors):
        mask = distractor(random, taken, wanted.size)
        things.append(("distractors", mask, colour(random, canvas[mask], marks)))
    names = ("object", "distractors", *(["mark"] if wanted.mark is not None else []))
    parts = {name: np.zeros((wanted.size, wanted.size), np.int8) for name in names}
    for name, mask, paint in things:
        parts[name][mask] = 1
        if name != wanted.leave_out:
            canvas[mask] = paint
    return Drawn(canvas, parts)


def placed(random: Any, shape: Shape, centre: np.ndarray, radius: float, size: int) -> np.ndarray:
    """The shape turned by a random angle."""
    angle = random.uniform(0, 2 * np.pi)
    rows, columns = (np.mgrid[:size, :size] + 0.5) / size
    across, down = (columns - centre[0]) / radius, (rows - centre[1]) / radius
    turned = across * np.cos(angle) + down * np.sin(angle), down * np.cos(angle) - across * np.sin(angle)
    return shape(*turned)


def distractor(random: Any, taken: list[tuple[np.ndarray, float]], size: int) -> np.ndarray:
    """Beside everything that is there; smaller, the longer the search."""
    radius, shape = random.uniform(0.1, 0.16), DISTRACTORS[random.integers(len(DISTRACTORS))]
    centre = random.uniform(radius, 1 - radius, 2)
    while any(np.hypot(*(centre - c)) <= radius + r for c, r in taken):
        radius *= 0.97
        centre = random.uniform(radius, 1 - radius, 2)
    taken.append((centre, radius))
    return placed(random, shape, centre, radius, size)


def mark_at(corner: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(centre, mask) of a square one pixel off the edges of a corner."""
    side = max(3, round(0.09 * size))
    starts = (1, size - 1 - side)
    top, left = starts[corner // 2], starts[corner % 2]
    mask = np.zeros((size, size), bool)
    mask[top : top + side, left : left + side] = True
    return np.array([left + side / 2, top + side / 2]) / size, mask


def mark_colours(classes: int) -> np.ndarray:
    """(k, 3) saturated: one channel is 0, which no texture has."""
    return np.array([colorsys.hsv_to_rgb(k / classes, 1.0, 0.9) for k in range(classes)])


def colour(random: Any, behind: np.ndarray, avoid: np.ndarray) -> np.ndarray:
    """A random colour that differs by CONTRAST, in some channel, from every pixel behind it and from all marks; or nearly."""
    tries = random.random((64, 3))
    others = np.concatenate([behind.reshape(-1, 3), avoid])
    gaps = np.abs(tries[:, None] - others).max(-1).min(-1)
    return tries[np.argmax(gaps >= CONTRAST)] if (gaps >= CONTRAST).any() else tries[gaps.argmax()]


def texture(random: Any, size: int, kind: str) -> np.ndarray:
    """(h, w, 3): two near colours mixed by a pattern, with a little grain."""
    chosen = TEXTURES[random.integers(len(TEXTURES))] if kind == "mixed" else kind
    base = random.uniform(0.2, 0.8, 3)
    other = np.clip(base + random.uniform(-0.2, 0.2, 3), 0.15, 1)  # no channel near 0, where the marks are
    share = PATTERNS[chosen](random, size)[:, :, None]
    grain = random.normal(0, 0.0 if chosen == "plain" else 0.02, (size, size, 3))
    return np.clip(base * (1 - share) + other * share + grain, 0, 1)


def waves(random: Any, size: int) -> np.ndarray:
    """(h, w) in -1 ... 1: waves in a random direction."""
    angle, length, phase = random.uniform(0, np.pi), random.uniform(0.08, 0.2), random.uniform(0, 2 * np.pi)
    rows, columns = np.mgrid[:size, :size] / size
    return np.sin(2 * np.pi * (columns * np.cos(angle) + rows * np.sin(angle)) / length + phase)


def smooth_noise(random: Any, size: int) -> np.ndarray:
    from scipy.ndimage import zoom

    coarse = np.asarray(zoom(random.random((9, 9)), size / 8, order=1))[:size, :size]
    return np.clip(coarse, 0, 1)


PATTERNS: Mapping[str, Callable[[Any, int], np.ndarray]] = {
    "plain": lambda _, size: np.zeros((size, size)),
    "noise": smooth_noise,
    "stripes": lambda random, size: (waves(random, size) > 0).astype(float),
    "checks": lambda random, size: ((waves(random, size) > 0) ^ (waves(random, size) > 0)).astype(float),
}
TEXTURES = tuple(PATTERNS)
