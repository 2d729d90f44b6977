"""Pictures that were sent: told by their content, bounded, kept in memory alone."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import threading
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from importlib.resources import as_file
from typing import Generic, TypeVar

from PIL import Image, UnidentifiedImageError
from torch import Tensor

from patchlight.core.errors import PatchlightError, PictureError
from patchlight.core.pictures import Picture, read_picture
from patchlight.core.preprocess import Preprocess
from patchlight.core.source import Source
from patchlight.models.embedded import asset

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
V = TypeVar("V")


class TooLargeError(PatchlightError):
    """More bytes or pixels than the server takes."""


class ContentError(PatchlightError):
    """The content is that of no picture."""


class UnknownError(PatchlightError):
    """A picture or model that the server does not have."""


@dataclass(frozen=True)
class Limits:
    bytes: int = 20_000_000
    pixels: int = 40_000_000
    requests: int = 32
    memory: int = 200_000_000
    methods: int = 40


@dataclass(frozen=True, eq=False)
class Upload(Source):
    """One picture under the name that its sender gave it, which is shown and used for nothing else."""

    called: str = "picture"
    read: Picture | None = None
    ready: Tensor | None = None

    def __len__(self) -> int:
        return 1

    def batch(self, start: int, stop: int, *, like: Tensor) -> Tensor:
        assert self.ready is not None
        return self.ready[None][start:stop].to(like.device, like.dtype)

    def picture(self, index: int) -> Picture:  # noqa: ARG002
        assert self.read is not None
        return self.read

    def name(self, index: int) -> str:  # noqa: ARG002
        return self.called


class Latest(Generic[V]):
    """The values that were used last, as many as fit into `most`."""

    def __init__(self, most: int) -> None:
        self.most, self.held, self.lock = most, 0, threading.Lock()
        self.values: OrderedDict[object, tuple[int, V]] = OrderedDict()

    def get(self, key: object) -> V | None:
        with self.lock:
            if key not in self.values:
                return None
            self.values.move_to_end(key)
            return self.values[key][1]

    def put(self, key: object, value: V, size: int) -> None:
        with self.lock:
            self.held += size - self.values.pop(key, (0, None))[0]
            self.values[key] = size, value
            while self.held > self.most and len(self.values) > 1:
                self.held -= self.values.popitem(last=False)[1][0]


class Pictures:
    """Sent pictures by the digest of their content, as they came; decoded when they are used."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.sent: Latest[tuple[str, bytes]] = Latest(limits.memory)
        self.read: Latest[Upload] = Latest(limits.memory // 4)

    def add(self, data: bytes, name: str) -> str:
        if len(data) > self.limits.bytes:
            raise too_large(len(data), self.limits)
        key = hashlib.sha256(data).hexdigest()[:32]
        check_content(data, self.limits)
        self.sent.put(key, (clean(name), data), len(data))
        return key

    def given(self, text: str) -> str:
        """The id of a picture from an id, base64 or a data URL."""
        if len(text) <= 64:
            return text
        try:
            data = base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ContentError("picture: expected an id from POST /pictures, or a file in base64, but neither came.") from error
        return self.add(data, "picture")

    def open(self, key: str, preprocess: Preprocess, model: str) -> Upload:
        """The picture as the model takes it."""
        if found := self.read.get((key, model)):
            return found
        sent = self.sent.get(key)
        if sent is None:
            raise UnknownError(f"there is no picture {key[:64]!r} on this server, or no longer. Send it again to POST /pictures.")
        name, data = sent
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picture = read_picture(Image.open(io.BytesIO(data), formats=FORMATS))
        found = Upload(preprocess, items=(picture.image,), called=name, read=picture, ready=preprocess(picture.image))
        self.read.put((key, model), found, picture.image.width * picture.image.height * 3)
        return found


def check_content(data: bytes, limits: Limits) -> None:
    """The first bytes say what it is and how large, before anything is decoded."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                width, height = image.size
    except UnidentifiedImageError as error:
        raise ContentError(
            f"this is no picture: its first bytes are those of none of {', '.join(FORMATS)}. Send a photo, whatever its name."
        ) from error
    except Image.DecompressionBombError as error:
        raise too_many(str(error), limits) from error
    except Exception as error:  # the parsers of headers raise whatever they like
        raise PictureError(f"the picture's header cannot be read ({type(error).__name__}). Save it anew and send it.") from error
    if width * height > limits.pixels:
        raise too_many(f"{width} x {height}", limits)


def too_large(size: int, limits: Limits) -> TooLargeError:
    return TooLargeError(f"{size:,} bytes came, but the server takes at most {limits.bytes:,}. Scale the picture down.")


def too_many(size: str, limits: Limits) -> TooLargeError:
    return TooLargeError(f"the picture has too many pixels ({size}); at most {limits.pixels:,} are taken. Scale it down.")


def clean(name: str) -> str:
    """The last part of a name, printable and short."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(c for c in last if c.isprintable())[:80] or "picture"


def samples() -> dict[str, bytes]:
    """The photos that come with patchlight, by name."""
    with as_file(asset("photos")) as folder:
        return {p.name: p.read_bytes() for p in sorted(folder.glob("*.jpg"))}
