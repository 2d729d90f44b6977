"""A data set as a list of entries: known by name and label at once, read when asked for."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from PIL import Image

from patchlight.core.errors import DataError, PatchlightError
from patchlight.core.item import Box, Item
from patchlight.core.pictures import read_picture

if TYPE_CHECKING:
    from patchlight.data._registry import Kind

log = logging.getLogger("patchlight")
OBJECT, BACKGROUND = 1, 0


@dataclass(frozen=True, eq=False)
class Entry:
    """A picture that has not been read yet. `picture` is a file, or makes the picture; the others make what belongs to it."""

    name: str
    picture: Path | Callable[[], Image.Image]
    label: int | None = None
    boxes: Callable[[], Sequence[Sequence[float]]] | None = None
    mask: Callable[[], np.ndarray] | None = None
    parts: Callable[[], Mapping[str, np.ndarray]] | None = None
    upright: bool = False
    """Turned as its EXIF says. Annotations are made on pixels as they are stored, so annotated pictures are not turned."""

    def read(self) -> Item:
        """The picture with all that belongs to it, checked against each other."""
        image = self.open()
        boxes = () if self.boxes is None else checked_boxes(self.boxes(), image, self.name)
        mask = None if self.mask is None else checked_mask(self.mask(), image, self.name)
        parts = {} if self.parts is None else {n: checked_mask(m, image, self.name) for n, m in self.parts().items()}
        return Item(self.name, image, self.label, boxes, mask, parts)

    def open(self) -> Image.Image:
        if callable(self.picture):
            return read_picture(self.picture()).image
        return read_picture(self.picture).image if self.upright else as_stored(self.picture)

    def content(self) -> Iterator[bytes]:
        """What a digest is made of: the bytes of the picture's file, and everything else as it is read."""
        yield f"{self.name}\0{self.label}\0".encode()
        try:
            picture = self.picture
            yield array_bytes(np.asarray(picture())) if callable(picture) else picture.read_bytes()
            if self.boxes is not None:
                yield array_bytes(np.asarray(self.boxes(), dtype=np.float64))
            if self.mask is not None:
                yield array_bytes(self.mask())
        except (PatchlightError, OSError) as error:
            yield f"broken {type(error).__name__}".encode()


@dataclass(frozen=True)
class Broken:
    """A picture that cannot be used, and why."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class DataSet:
    """Pictures in a fixed order. A number gives an item, a slice a smaller data set; going through it skips what is broken."""

    kind: Kind
    root: Path | None
    settings: Mapping[str, Any]
    entries: tuple[Entry, ...]
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    broken: list[Broken] = field(default_factory=list)
    """What reading has found broken so far."""

    def __repr__(self) -> str:
        classes = f", {len(self.labels)} classes" if self.labels else ""
        return f"<DataSet {self.name}: {len(self)} pictures{classes}, {self.kind.licence}>"

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> DataSet: ...
    def __getitem__(self, index: int | slice) -> Item | DataSet:
        if isinstance(index, slice):
            return self.of(self.entries[index])
        if not -len(self) <= index < len(self):
            raise DataError(f"{self.name} has {len(self)} pictures, but number {index} was asked for. Count from 0.")
        return self.entries[index].read()

    def __iter__(self) -> Iterator[Item]:
        """The items that can be read; the others are named in the log and in `broken`."""
        failed = 0
        for entry in self.entries:
            try:
                item = entry.read()
            except PatchlightError as error:
                failed += 1
                self.record(entry, error)
                log.warning("%s: %s is skipped: %s", self.name, entry.name, error)
            else:
                yield item
        if failed and failed == len(self):
            raise DataError(
                f"{self.name}: all {failed} pictures are broken, and nothing is left. The first: {self.broken[0].reason} "
                f"Check {self.root}."
            )
        if failed:
            log.warning("%s: %d of %d pictures were skipped", self.name, failed, len(self))

    def record(self, entry: Entry, error: PatchlightError) -> None:
        """Name a picture among the broken ones, once."""
        if entry.name not in {b.name for b in self.broken}:
            self.broken.append(Broken(entry.name, str(error)))

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def licence(self) -> str:
        return self.kind.licence

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(e.name for e in self.entries)

    def batches(self, size: int) -> Iterator[list[Item]]:
        """The items that can be read, so many at a time: only these are in memory."""
        batch: list[Item] = []
        for item in self:
            batch.append(item)
            if len(batch) == size:
                yield batch
                batch = []
        if batch:
            yield batch

    def of(self, entries: Sequence[Entry]) -> DataSet:
        return replace(self, entries=tuple(entries), broken=[])

    def sample(self, count: int, *, seed: int = 0) -> DataSet:
        """`count` pictures drawn without replacement, in the data set's own order."""
        if not 0 < count <= len(self):
            raise DataError(f"{self.name} has {len(self)} pictures, but a sample of {count} was asked for. Take fewer.")
        drawn = np.random.default_rng(seed).permutation(len(self))[:count]
        return self.of([self.entries[i] for i in sorted(drawn)])

    def digest(self) -> str:
        """32 hexadecimal digits of the content: names, labels, pictures, boxes and masks; not where they lie."""
        total = hashlib.blake2b(digest_size=16)
        for entry in self.entries:
            one = hashlib.blake2b(digest_size=16)
            for chunk in entry.content():
                one.update(len(chunk).to_bytes(8, "little"))
                one.update(chunk)
            total.update(one.digest())
        return total.hexdigest()

    def check(self, progress: Callable[[int, int], None] | None = None) -> tuple[Broken, ...]:
        """Read every picture once; what cannot be used. progress: called with (done, all)."""
        for done, entry in enumerate(self.entries, 1):
            try:
                entry.read()
            except PatchlightError as error:
                self.record(entry, error)
            if progress is not None:
                progress(done, len(self))
        return tuple(self.broken)


def array_bytes(array: np.ndarray) -> bytes:
    return f"{array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes()


def as_stored(path: Path) -> Image.Image:
    """The picture with its pixels where the file has them: no turning by EXIF."""
    from patchlight.core.pictures import check_file, unreadable

    check_file(path)
    try:
        with Image.open(path) as image:
            image.load()
            bare = image.copy()
    except Exception as error:  # the decoders of some forty formats raise whatever they like
        raise unreadable(str(path), error) from error
    bare.info = {k: v for k, v in bare.info.items() if k == "transparency"}
    return read_picture(bare).image


def checked_boxes(found: Sequence[Sequence[float]], image: Image.Image, name: str) -> tuple[Box, ...]:
    """Each with an area and at least partly inside the picture; cut at its edges."""
    width, height = image.size
    boxes = []
    for x0, y0, x1, y1 in found:
        cut = (max(0.0, x0), max(0.0, y0), min(float(width), x1), min(float(height), y1))
        if not (all(map(isfinite, (x0, y0, x1, y1))) and cut[0] < cut[2] and cut[1] < cut[3]):
            raise DataError(
                f"{name}: a box must be x0 < x1, y0 < y1 and touch the picture of {width} x {height} pixels, "
                f"but {[x0, y0, x1, y1]} came. Check that the boxes belong to pictures of this size."
            )
        boxes.append(cut)
    return tuple(boxes)


def checked_mask(mask: np.ndarray, image: Image.Image, name: str) -> np.ndarray:
    if mask.shape != (image.height, image.width):
        raise DataError(
            f"{name}: the mask has {mask.shape[1]} x {mask.shape[0]} pixels, but its picture {image.width} x {image.height}. "
            "Give masks made for pictures of this size."
        )
    return mask


def read_mask(path: Path) -> np.ndarray:
    """The numbers of a mask file (h, w), or (h, w, 3) where it is coloured; palette indices are kept as they are."""
    from patchlight.core.pictures import check_file, unreadable

    check_file(path)
    try:
        with Image.open(path) as image:
            image.load()
            return np.asarray(image)
    except Exception as error:
        raise unreadable(str(path), error) from error


def box_of(mask: np.ndarray) -> list[tuple[float, float, float, float]]:
    """The box around a mask of yes and no; none for an empty one."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not rows.size:
        return []
    return [(float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))]


lazily = partial
"""`lazily(read_mask, path)`: done when the item is read."""
