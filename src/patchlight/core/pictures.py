"""Reading pictures: whatever comes becomes an upright RGB picture of 8 bits, or an error that says what to do."""

from __future__ import annotations

import glob
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from patchlight.core.errors import PictureError

SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".gif", ".bmp", ".dib", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".avif", ".tga"),
)


@dataclass(frozen=True)
class Picture:
    """An upright RGB picture, its name, and what had to be changed to make it one."""

    image: Image.Image
    name: str
    notes: tuple[str, ...] = ()


def read_picture(source: str | Path | Image.Image | np.ndarray) -> Picture:
    """The picture at a path, in a PIL image or in a uint8 array (h, w), (h, w, 1), (h, w, 3) or (h, w, 4)."""
    if isinstance(source, str | Path):
        return read_file(Path(source).expanduser())
    if isinstance(source, Image.Image):
        return decoded(source, name=Path(str(getattr(source, "filename", ""))).name or "picture")
    if isinstance(source, np.ndarray):
        return decoded(from_array(source), name="array")
    raise PictureError(
        f"A picture is a path, a PIL image or a uint8 array (height, width, 3), but a {type(source).__name__} came. "
        "Give one of these, one picture at a time."
    )


def read_file(path: Path) -> Picture:
    check_file(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of large pictures at half the size at which it refuses them
        try:
            with Image.open(path) as image:
                frames = getattr(image, "n_frames", 1)
                picture = decoded(image, name=path.name)
        except PictureError:
            raise
        except UnidentifiedImageError as error:
            raise PictureError(
                f"{path} is not a picture that Pillow can read: its first bytes are those of no known picture format. "
                "If it is a picture, convert it to PNG or JPEG."
            ) from error
        except Exception as error:  # the decoders of some forty formats raise whatever they like
            raise unreadable(str(path), error) from error
    if frames > 1:
        return Picture(picture.image, picture.name, (f"the first of {frames} frames", *picture.notes))
    return picture


def check_file(path: Path) -> None:
    """Say what is wrong with a path before a decoder does."""
    try:
        if path.is_dir():
            raise PictureError(f"{path} is a folder, but a picture was expected. Give its files, or use find_pictures.")
        if not path.exists():
            raise PictureError(f"There is no file {path}.{near_files(path)}")
        if not path.is_file():
            raise PictureError(f"{path} is neither a file nor a folder, but a picture was expected. Give a picture file.")
        if not path.stat().st_size:
            raise PictureError(f"{path} is empty (0 bytes), but a picture was expected. Fetch or copy it again.")
    except (OSError, ValueError) as error:
        if isinstance(error, PictureError):
            raise
        raise PictureError(f"{str(path)[:200]!r} cannot be opened: {error}. Check the path and its permissions.") from error


def near_files(path: Path) -> str:
    """` Did you mean ...?`, from the names that lie in the same folder."""
    if not path.parent.is_dir():
        return f" Its folder {path.parent} does not exist either. Check the path."
    names = [p.name for p in path.parent.iterdir()]
    close = get_close_matches(path.name, names, n=3, cutoff=0.6)
    return (
        f" Did you mean {' or '.join(map(repr, close))}?"
        if close
        else f" Check the path; {path.parent} has {len(names)} entries."
    )


def unreadable(name: str, error: Exception) -> PictureError:
    if isinstance(error, Image.DecompressionBombError):
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        return PictureError(
            f"{name} has more pixels than the {limit:,} that Pillow takes for safe. Scale the picture down first."
        )
    return PictureError(
        f"{name} cannot be decoded, so it is probably cut off or damaged ({type(error).__name__}: {error}). "
        "Fetch or copy it again, or save it anew from a picture editor."
    )


def from_array(array: np.ndarray) -> Image.Image:
    """A uint8 array as a PIL image; the shape says whether it is grey, RGB or RGBA."""
    came = f"{array.dtype} {tuple(array.shape)}"
    if array.dtype != np.uint8:
        hint = "Multiply by 255 and convert it" if array.dtype.kind == "f" else "Convert it with .astype(numpy.uint8)"
        raise PictureError(
            f"An array must be uint8 (height, width, 3), but {came} came. {hint}, "
            "or give a preprocessed float tensor (B, 3, H, W)."
        )
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)) or not array.size:
        raise PictureError(
            "An array must be (height, width), or (height, width, channels) with 1, 3 or 4 channels, and not empty, "
            f"but {came} came. Put the channels last and give one picture at a time."
        )
    return Image.fromarray(np.ascontiguousarray(array))


def decoded(image: Image.Image, *, name: str) -> Picture:
    """The loaded, upright RGB copy; the given image is left as it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image.load()
            rgb, notes = to_rgb(ImageOps.exif_transpose(image))
        except PictureError:
            raise
        except Exception as error:
            raise unreadable(name, error) from error
    if not (rgb.width and rgb.height):
        raise PictureError(
            f"{name} is {rgb.width} x {rgb.height} pixels, but at least one pixel was expected. Give another picture."
        )
    return Picture(rgb, name, notes)


def to_rgb(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """RGB and 8 bits, with a note of everything that was decided on the way."""
    if image.mode.startswith("I;16"):
        # 65535 = 257 * 255, so both ends of the scale are kept
        grey = np.rint(np.asarray(image).astype(np.float32) / 257).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB"), ("16 bits divided by 257 to 8 bits",)
    if image.mode in ("I", "F"):
        return stretched(np.asarray(image).astype(np.float64))
    if not image.has_transparency_data:
        return image.convert("RGB"), ()
    rgba = image.convert("RGBA")
    white = Image.new("RGBA", rgba.size, "white")
    seen: Any = rgba.getchannel("A").getextrema()
    notes = ("transparent pixels laid on white",) if seen[0] < 255 else ()
    return Image.alpha_composite(white, rgba).convert("RGB"), notes


def stretched(values: np.ndarray) -> tuple[Image.Image, tuple[str, ...]]:
    """32-bit values have no fixed white, so: 255 (v - min) / (max - min)."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    span = (high - low) or 1.0
    grey = np.nan_to_num((values - low) / span, nan=0.0, posinf=1.0, neginf=0.0)
    image = Image.fromarray(np.rint(255 * grey).astype(np.uint8)).convert("RGB")
    return image, (f"32-bit values from {low:g} to {high:g} stretched to 8 bits",)


def find_pictures(patterns: str | Path | Iterable[str | Path]) -> list[Path]:
    """The files that paths, folders (with everything below them) and globs (`**` too) name, in that order, each once."""
    given = [patterns] if isinstance(patterns, str | Path) else patterns
    found: dict[Path, Path] = {}
    for pattern in given:
        for path in expand(pattern):
            found.setdefault(path.resolve(), path)
    return list(found.values())


def expand(pattern: str | Path) -> list[Path]:
    """What one pattern names; a name that exists is taken as it is, even with brackets in it."""
    path = Path(pattern).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        hits = list(pictures_below(path))
        if not hits:
            raise PictureError(f"The folder {path} has no pictures in it. {KNOWN}")
        return hits
    if not glob.has_magic(str(path)):
        check_file(path)
    matched = [Path(p) for p in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207  Path.glob takes no absolute pattern
    if not matched:
        raise PictureError(
            f"The pattern {str(pattern)!r} matches nothing. Check the folder, or quote it so that the shell leaves it."
        )
    hits = [h for m in matched for h in (pictures_below(m) if m.is_dir() else [m] if is_picture(m) else [])]
    if not hits:
        raise PictureError(f"The pattern {str(pattern)!r} matches {len(matched)} names, none of them a picture. {KNOWN}")
    return hits


def pictures_below(folder: Path) -> Iterator[Path]:
    yield from sorted(p for p in folder.rglob("*") if is_picture(p) and p.is_file())


def is_picture(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


KNOWN = f"Pictures end in {', '.join(SUFFIXES)}; give a file by its own name to read it whatever its ending."
