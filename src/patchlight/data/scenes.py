from __future__ import annotations

from typing import Literal

from patchlight.core.errors import SettingError
from patchlight.data._registry import Found, dataset
from patchlight.data._scene import CLASSES, Scene, Wanted
from patchlight.data._set import Entry

MOST = len(CLASSES)


@dataset(
    gives=("label", "boxes", "mask", "parts"),
    licence="made by patchlight, free (CC0)",
    get="nothing, it is drawn",
    layout="nothing",
    cite="patchlight",
    made=True,
)
def scenes(
    _root: None,
    *,
    count: int = 200,
    seed: int = 0,
    size: int = 96,
    classes: int = 4,
    distractors: int = 2,
    texture: Literal["mixed", "plain", "noise", "stripes", "checks"] = "mixed",
    mark: float | None = None,
    cause: Literal["object", "mark"] = "object",
    leave_out: Literal["nothing", "object", "distractors", "mark"] = "nothing",
) -> Found:
    """Drawn scenes in which it is known to the pixel what decides the class: one object among distractors on a texture.

    The class is the object's shape; its colour, size, turn and place say nothing, nor do distractors and texture. `mark` puts
    a coloured square into a corner, whose colour (nothing else comes near it) names the class in this share of the pictures
    and another class in the rest (1.0: a perfect spurious clue; 1/classes: no clue). `cause="mark"` makes the mark decide
    instead, and lets the shape agree in that share. The mask and box are those of the cause; `parts` has the masks of
    everything. `leave_out` draws the same scenes without one thing, masks unchanged: what truly changes when it goes. A
    picture depends on seed and number alone, so slices agree.
    """
    wanted = Wanted(size, classes, distractors, texture, mark, cause, leave_out)
    check(count, wanted)
    drawn = [Scene(seed, i, wanted) for i in range(count)]
    entries = [Entry(f"{i:06d}", s.image, s.label, boxes=s.boxes, mask=s.mask, parts=s.parts) for i, s in enumerate(drawn)]
    return Found(entries, [name for name, _ in CLASSES[:classes]])


def check(count: int, wanted: Wanted) -> None:
    if count < 1 or wanted.size < 24 or wanted.distractors < 0:
        raise SettingError(
            f"scenes: at least 1 picture of 24 pixels and 0 distractors are needed, but count={count}, size={wanted.size}, "
            f"distractors={wanted.distractors} came."
        )
    if not 2 <= wanted.classes <= MOST:
        raise SettingError(f"scenes: there are shapes for 2 to {MOST} classes, but {wanted.classes} came.")
    if wanted.mark is not None and not 0 <= wanted.mark <= 1:
        raise SettingError(f"scenes: mark is a share from 0 to 1 or None, but {wanted.mark} came.")
    if wanted.mark is None and "mark" in (wanted.cause, wanted.leave_out):
        raise SettingError("scenes: the mark cannot be the cause or left out where there is none. Set mark=1.0 or another share.")
