"""The pictures of a call: found by name, read one batch at a time, those that cannot be read set aside."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from patchlight.core.errors import PictureError
from patchlight.core.pictures import Picture, find_pictures, read_picture
from patchlight.core.preprocess import Preprocess
from patchlight.core.source import Source

STDIN = "-"


@dataclass(frozen=True, eq=False)
class Item:
    """A picture not yet read: `file` is its name to the user, `stem` its name in the results."""

    file: str
    what: Path | Image.Image
    stem: str = ""


@dataclass(frozen=True)
class Failure:
    file: str
    reason: str


@dataclass(frozen=True, eq=False)
class Batch(Source):
    """Pictures that were read, under the names of their files."""

    read: tuple[tuple[Item, Picture, Tensor], ...] = ()

    def __len__(self) -> int:
        return len(self.read)

    def batch(self, start: int, stop: int, *, like: Tensor) -> Tensor:
        return torch.stack([x for _, _, x in self.read[start:stop]]).to(like.device, like.dtype)

    def picture(self, index: int) -> Picture:
        return self.read[index][1]

    def name(self, index: int) -> str:
        return Path(self.item(index).file).name

    def item(self, index: int) -> Item:
        return self.read[index][0]


def find(patterns: Sequence[str]) -> list[Item]:
    """Every picture that is named, each once and each with a stem of its own."""
    found: list[Item] = []
    for pattern in patterns:
        found += from_stdin() if pattern == STDIN else from_paths([pattern])
    unique: dict[object, Item] = {}
    for item in found:
        unique.setdefault(item.what.resolve() if isinstance(item.what, Path) else id(item.what), item)
    return with_stems(list(unique.values()))


def from_paths(patterns: Iterable[str]) -> list[Item]:
    return [Item(str(path), path) for path in find_pictures(patterns)]


def from_stdin() -> list[Item]:
    """One picture, or a list of paths, one a line: whichever the bytes are."""
    data = sys.stdin.buffer.read()
    if not data.strip():
        raise PictureError("Standard input is empty, but a picture or a list of paths, one a line, was expected. Pipe one in.")
    try:
        return [Item("stdin", Image.open(io.BytesIO(data)))]
    except Exception:  # no picture: the decoders raise whatever they like
        lines = text_lines(data)
    return from_paths(lines)


def text_lines(data: bytes) -> list[str]:
    try:
        return [line.strip() for line in data.decode().splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise PictureError(
            "Standard input is neither a picture that Pillow can read nor a list of paths, one a line. Pipe one of these in."
        ) from error


def with_stems(items: Sequence[Item]) -> list[Item]:
    """Two pictures of one name keep apart: a.jpg and b/a.png become a and a-2, whatever the letters' case."""
    taken: set[str] = set()
    named = []
    for item in items:
        base = Path(item.file).stem or "picture"
        stem, number = base, 1
        while stem.casefold() in taken:
            number += 1
            stem = f"{base}-{number}"
        taken.add(stem.casefold())
        named.append(Item(item.file, item.what, stem))
    return named


@dataclass
class Reader:
    """Hands out batches of readable pictures and remembers the others."""

    items: Sequence[Item]
    preprocess: Preprocess
    size: int
    failures: list[Failure] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[int, Batch]]:
        """(pictures looked at, those of them that could be read)"""
        for start in range(0, len(self.items), self.size):
            part = self.items[start : start + self.size]
            yield len(part), Batch(self.preprocess, read=tuple(r for item in part if (r := self.read(item)) is not None))

    def read(self, item: Item) -> tuple[Item, Picture, Tensor] | None:
        try:
            picture = read_picture(item.what)
            return item, picture, self.preprocess(picture.image)
        except PictureError as error:
            self.failures.append(Failure(item.file, str(error)))
            return None
