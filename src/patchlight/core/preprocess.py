"""From a picture to the tensor that a model was trained on, and back to where in the picture the model looked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from patchlight.core.errors import ModelError, PictureError

Interpolation = Literal["bicubic", "bilinear", "nearest", "lanczos"]
Fit = Literal["squash", "cover", "contain"]
RESAMPLE = {
    "nearest": Image.Resampling.NEAREST,
    "lanczos": Image.Resampling.LANCZOS,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}
FITS: dict[str, Fit] = {"center": "cover", "squash": "squash", "border": "contain"}  # timm's crop modes
MOST = 2**28  # pixels of a resized picture; only a very narrow strip has more
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocess:
    """Resize, crop the middle, normalise.

    `size` is the model's input (h, w). `resize` is the shorter side, the aspect kept; or a pair (h, w) that both sides are
    squashed to, or that the picture covers or is contained in with its aspect kept (`fit`); or None. What the crop has
    beyond the picture is black, or the mean colour when contained. `crop` says how half a pixel is decided: rounded to
    even (torchvision, timm) or down (transformers).
    """

    size: tuple[int, int]
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    resize: int | tuple[int, int] | None = None
    interpolation: Interpolation = "bicubic"
    fit: Fit = "squash"
    crop: Literal["round", "floor"] = "round"

    def __call__(self, image: Image.Image) -> Tensor:
        """x = (picture / 255 - mean) / std, float32 (3, h, w)."""
        if image.mode != "RGB":
            raise PictureError(f"Preprocess takes an RGB picture, but mode {image.mode!r} came. Read it with read_picture first.")
        rows = np.array(self.view(image), dtype=np.float32)
        x = torch.from_numpy(rows).permute(2, 0, 1).contiguous().div_(255)
        return x.sub_(column(self.mean)).div_(column(self.std))

    def view(self, image: Image.Image) -> Image.Image:
        """The resized and cropped picture: what the model sees, before normalising."""
        height, width = self.size
        across, down = self.scaled(*image.size)
        if across * down > MOST:
            raise PictureError(
                f"A picture of {image.width} x {image.height} pixels becomes {across} x {down} before the crop, "
                "which is too large. Cut it to a less narrow shape first."
            )
        resized = image.resize((across, down), RESAMPLE[self.interpolation])
        fill = cast(tuple[int, int, int], tuple(round(255 * m) for m in self.mean)) if self.fit == "contain" else (0, 0, 0)
        canvas = Image.new("RGB", (width, height), fill)
        left, top = self.corner(*resized.size)
        canvas.paste(resized, (-left, -top))
        return canvas

    def scaled(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) after the resize."""
        if self.resize is None:
            return width, height
        if isinstance(self.resize, int):
            longer = int(self.resize * max(width, height) / min(width, height))
            return (self.resize, longer) if width <= height else (longer, self.resize)
        if self.fit == "squash":
            return self.resize[1], self.resize[0]
        ratios = height / self.resize[0], width / self.resize[1]
        ratio = min(ratios) if self.fit == "cover" else max(ratios)
        return max(1, round(width / ratio)), max(1, round(height / ratio))

    def corner(self, width: int, height: int) -> tuple[int, int]:
        """(left, top) of the crop in the resized picture; negative where the crop is larger than the picture."""
        return self.start(width, self.size[1]), self.start(height, self.size[0])

    def start(self, have: int, want: int) -> int:
        if have < want:
            return -((want - have) // 2)
        return (have - want) // 2 if self.crop == "floor" else round((have - want) / 2)

    def box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """(x0, y0, x1, y1): the part of a width x height picture that the model sees, in the picture's pixels.

        It reaches outside the picture where the crop had to be filled up.
        """
        new_width, new_height = self.scaled(width, height)
        left, top = self.corner(new_width, new_height)
        across, down = width / new_width, height / new_height
        return left * across, top * down, (left + self.size[1]) * across, (top + self.size[0]) * down

    def undo(self, x: Tensor) -> Image.Image:
        """picture = 255 (x std + mean), for tensors that came without their picture."""
        if x.ndim != 3 or x.shape[0] != 3:
            raise PictureError(f"A preprocessed picture is (3, H, W), but {tuple(x.shape)} came. Give one picture of the batch.")
        rows = x.detach().to("cpu", torch.float32) * column(self.std) + column(self.mean)
        rows = rows.nan_to_num(0.0).clamp(0, 1).mul(255).round().to(torch.uint8)
        return Image.fromarray(rows.permute(1, 2, 0).contiguous().numpy())


def column(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None, None]


def from_timm(config: Mapping[str, Any]) -> Preprocess:
    """What timm's `create_transform(**config)` does; the config of `resolve_data_config` or a `pretrained_cfg`."""
    where = "timm's data configuration"
    channels, height, width = config.get("input_size") or (3, 224, 224)
    if channels != 3:
        raise ModelError(f"{where} has {channels} channels, but pictures have 3. Give a preprocessed tensor instead.")
    part, mode = config.get("crop_pct") or 0.875, config.get("crop_mode") or "center"
    if mode not in FITS:
        raise ModelError(f"{where} has the crop mode {mode!r}, but center, squash or border was expected. Give preprocess=.")
    resize = floor(height / part), floor(width / part)
    return Preprocess(
        size=(height, width),
        mean=triple(config.get("mean") or IMAGENET_MEAN, name="mean", where=where),
        std=triple(config.get("std") or IMAGENET_STD, name="std", where=where),
        resize=resize[0] if mode == "center" and height == width else resize,
        interpolation=interpolation(config.get("interpolation") or "bicubic", where=where),
        fit=FITS[mode],
    )


def from_torchvision(transform: Any) -> Preprocess:
    """What `weights.transforms()` of a torchvision classification model does."""
    where = f"the transform {type(transform).__name__}"
    try:
        crop, resize = one(transform.crop_size), one(transform.resize_size)
        mean, std, mode = transform.mean, transform.std, transform.interpolation.value
    except AttributeError as error:
        raise ModelError(
            f"{where} is not that of a torchvision classification model ({error}). Give weights.transforms(), or preprocess=."
        ) from error
    return Preprocess(
        size=crop if isinstance(crop, tuple) else (crop, crop),
        mean=triple(mean, name="mean", where=where),
        std=triple(std, name="std", where=where),
        resize=resize,
        interpolation=interpolation(mode, where=where),
    )


def from_hf(config: Mapping[str, Any]) -> Preprocess:
    """What an image processor of transformers does, from its `to_dict()`."""
    where = config.get("image_processor_type") or "the image processor"
    resize, size = hf_geometry(config, where=where)
    # (f p - m) / s for a pixel p of 0 to 255 = (p / 255 - m / 255 f) / (s / 255 f): a rescale factor f folds into mean and std
    factor = 255 * (config.get("rescale_factor") or 1 / 255) if on(config, "do_rescale", default=True) else 255.0
    normalise = on(config, "do_normalize", default=True)
    mean = triple((config.get("image_mean") or (0.5,)) if normalise else (0.0,), name="image_mean", where=where)
    std = triple((config.get("image_std") or (0.5,)) if normalise else (1.0,), name="image_std", where=where)
    folded = abs(factor - 1) > 1e-6
    codes = {int(code): name for name, code in RESAMPLE.items()}
    code = config.get("resample")
    return Preprocess(
        size=size,
        mean=(mean[0] / factor, mean[1] / factor, mean[2] / factor) if folded else mean,
        std=(std[0] / factor, std[1] / factor, std[2] / factor) if folded else std,
        resize=resize,
        interpolation=interpolation("bilinear" if code is None else codes.get(int(code), code), where=where),
        crop="floor",
    )


def hf_geometry(config: Mapping[str, Any], *, where: str) -> tuple[int | tuple[int, int] | None, tuple[int, int]]:
    """(resize, size) of a processor: what comes first, and what comes out."""
    cropped = on(config, "do_center_crop", default=False)
    resize = None
    if on(config, "do_resize", default=True):
        # a bare number is the shorter side where a crop follows (CLIP), else both sides (ViT)
        resize = hf_size(config.get("size"), square=config.get("default_to_square", not cropped), where=where)
    if cropped:
        size = hf_size(config.get("crop_size"), square=True, where=where)
        if isinstance(resize, int) and where.startswith("Levit"):
            resize = int(256 / 224 * resize)
        return resize, size if isinstance(size, tuple) else (size, size)
    if isinstance(resize, int) and config.get("crop_pct"):  # ConvNeXt's way: crops by itself below 384, squashes from there on
        return (int(resize / config["crop_pct"]) if resize < 384 else (resize, resize)), (resize, resize)
    if not isinstance(resize, tuple):
        raise ModelError(
            f"{where} leaves the size of the picture open (size {config.get('size')!r}, no crop), but one fixed size is needed. "
            "Give preprocess=Preprocess(size=(H, W), ...)."
        )
    return resize, resize


def hf_size(size: Any, *, square: bool, where: str) -> int | tuple[int, int]:
    """A pair (h, w), or the shorter side."""
    if isinstance(size, int):
        return (size, size) if square else size
    if isinstance(size, list | tuple) and len(size) == 2:
        return int(size[0]), int(size[1])
    known = {k: v for k, v in dict(size or {}).items() if v is not None}
    if set(known) == {"height", "width"}:
        return int(known["height"]), int(known["width"])
    if set(known) == {"shortest_edge"}:
        return int(known["shortest_edge"])
    raise ModelError(
        f"{where} has the size {size!r}, but a number, height and width, or shortest_edge was expected. "
        "Give preprocess=Preprocess(size=(H, W), ...)."
    )


def on(config: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = config.get(name)
    return default if value is None else bool(value)


def one(value: Any) -> Any:
    """[224] and 224 are 224; [224, 320] is a pair."""
    if isinstance(value, list | tuple):
        return value[0] if len(value) == 1 else tuple(value)
    return value


def triple(values: Any, *, name: str, where: str) -> tuple[float, float, float]:
    found = [float(v) for v in (values if isinstance(values, list | tuple) else (values,))]
    found = found * 3 if len(found) == 1 else found
    if len(found) != 3:
        raise ModelError(
            f"{where} has {len(found)} values of {name}, but 3 were expected, one for each colour. Give preprocess=."
        )
    return found[0], found[1], found[2]


def interpolation(name: Any, *, where: str) -> Interpolation:
    if name not in get_args(Interpolation):
        raise ModelError(
            f"{where} resizes with {name!r}, but one of {', '.join(get_args(Interpolation))} was expected. "
            "Give preprocess= with one of these."
        )
    return name
