"""Maps made elsewhere: read from .npz, .npy or a grey PNG, and carried to the model's input as their picture is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from patchlight.core.errors import PictureError
from patchlight.core.preprocess import RESAMPLE, Preprocess

SUFFIXES = (".npz", ".npy", ".png")
KEYS = ("tokens", "pixels", "map", "maps", "attribution", "attributions", "heatmap", "scores")
GREY = ("1", "L", "I;16", "I;16B", "I;16L", "I", "F")


def read_maps(path: str | Path) -> np.ndarray:
    """(b, h, w) in float64, raw as they are in the file; one map is a batch of one.

    In an .npz the first of these names counts: tokens, pixels, map, maps, attribution, attributions, heatmap, scores; or its
    only array. A picture must be grey: the colours of a heat map cannot be turned back into numbers.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() not in SUFFIXES:
        raise PictureError(f"{path} is no file of maps: expected {', '.join(SUFFIXES)}. Save the raw scores with numpy.save.")
    if not path.is_file():
        raise PictureError(f"No file of maps lies at {path}. Check the path.")
    try:
        found = read_grey(path) if path.suffix.lower() == ".png" else read_numpy(path)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        if isinstance(error, PictureError):
            raise
        raise PictureError(f"{path} cannot be read as maps ({type(error).__name__}: {error}). Save the scores again.") from error
    found = found[None] if found.ndim == 2 else found
    if found.ndim != 3 or found.dtype.kind not in "fiub" or not found.size:
        raise PictureError(
            f"{path} holds {found.dtype} {found.shape}, but maps are numbers (h, w) or (b, h, w). "
            "Reduce colour channels first, for example by their sum."
        )
    return found.astype(np.float64)


def read_numpy(path: Path) -> np.ndarray:
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded:
        names = [n for n in KEYS if n in loaded.files] or (loaded.files if len(loaded.files) == 1 else [])
        if not names:
            raise PictureError(
                f"{path} holds the arrays {', '.join(loaded.files) or 'none'}, and none of them is called {', '.join(KEYS)}. "
                "Save the map under one of these names."
            )
        return loaded[names[0]]


def read_grey(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        if image.mode not in GREY:
            raise PictureError(
                f"{path} is a picture in {image.mode}, but a map must be grey: colours cannot be turned back into numbers. "
                "Save the scores in grey, or as .npy."
            )
        return np.asarray(image)


def find_map(folder: Path, stem: str) -> Path:
    """The one file of a folder that belongs to a picture: STEM.npz, .npy or .png, or STEM.METHOD.npz as `explain` writes them."""
    if not folder.is_dir():
        raise PictureError(f"There is no folder of maps at {folder}. Give a file, or a folder with one for each picture.")
    found = [p for s in SUFFIXES if (p := folder / f"{stem}{s}").is_file()]
    if not found:
        named = [p for p in folder.iterdir() if p.name.startswith(f"{stem}.") and p.suffix.lower() in SUFFIXES[:2]]
        found = sorted(p for p in named if p.name.count(".") == stem.count(".") + 2)
    if len(found) != 1:
        what = "no map" if not found else f"{len(found)} maps ({', '.join(p.name for p in found[:4])})"
        raise PictureError(f"{folder} has {what} for the picture {stem!r}, but one was expected: {stem}.npz, .npy or .png.")
    return found[0]


def seen_map(preprocess: Preprocess, values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A map (h, w) as the model's input has it. `size` is that of the picture (width, height).

    One as large as the picture goes through the picture's own resize and crop, bilinear, its lowest value beyond the picture.
    Any other is taken for scores on a grid over the model's input, and kept as it is.
    """
    if values.shape != size[::-1] or values.shape == tuple(preprocess.size):
        return values
    across, down = preprocess.scaled(*size)
    resized = Image.fromarray(values.astype(np.float32)).resize((across, down), RESAMPLE["bilinear"])
    height, width = preprocess.size
    canvas = Image.new("F", (width, height), float(np.nanmin(values)) if np.isfinite(values).any() else float("nan"))
    left, top = preprocess.corner(across, down)
    canvas.paste(resized, (-left, -top))
    return np.array(canvas, dtype=np.float64)
