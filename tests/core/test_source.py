"""Pictures come in any form a user has them in, and are read batch by batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from patchlight.core.errors import PictureError
from patchlight.core.preprocess import Preprocess
from patchlight.core.source import open_source

PLAIN = Preprocess(size=(8, 8))
LIKE = torch.empty(0, dtype=torch.float64)


def photo(value: int) -> np.ndarray:
    return np.full((8, 8, 3), value, dtype=np.uint8)


FORMS = {
    "array": lambda _: photo(9),
    "stack": lambda _: np.stack([photo(9), photo(200)]),
    "list of arrays": lambda _: [photo(9), photo(200)],
    "picture": lambda _: Image.fromarray(photo(9)),
    "path": lambda folder: folder / "a.png",
    "string": lambda folder: str(folder / "a.png"),
    "folder": lambda folder: folder,
    "glob": lambda folder: str(folder / "*.png"),
    "paths": lambda folder: [folder / "a.png", str(folder / "b.png")],
    "uint8 tensor, channels last": lambda _: torch.tensor(photo(9)),
    "uint8 tensor, channels first": lambda _: torch.tensor(photo(9)).permute(2, 0, 1),
    "uint8 tensors": lambda _: torch.tensor(np.stack([photo(9), photo(200)])).permute(0, 3, 1, 2),
    "list of tensors": lambda _: [torch.tensor(photo(9)), torch.tensor(photo(200))],
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_picture_in_any_form_is_the_same_input(tmp_path, form):
    for name, value in (("a.png", 9), ("b.png", 200)):
        Image.fromarray(photo(value)).save(tmp_path / name)
    source = open_source(FORMS[form](tmp_path), PLAIN)
    whole = source.batch(0, len(source), like=LIKE)
    assert whole.dtype == torch.float64
    expected = [PLAIN(Image.fromarray(photo(v))).double() for v in (9, 200)][: len(source)]
    assert torch.equal(whole, torch.stack(expected))
    assert len(source) == (2 if any(w in form for w in ("stack", "list", "folder", "glob", "paths", "tensors")) else 1)


def test_a_float_tensor_is_used_as_it_is():
    images = torch.randn(3, 3, 8, 8)
    source = open_source(images, PLAIN)
    assert torch.equal(source.batch(1, 3, like=torch.empty(0)), images[1:3])
    assert torch.equal(open_source(images[0], PLAIN).batch(0, 1, like=torch.empty(0)), images[:1])
    assert open_source(source, PLAIN) is source


def test_names_are_those_of_the_files_or_numbers(tmp_path):
    Image.fromarray(photo(9)).save(tmp_path / "a.png")
    assert open_source(tmp_path / "a.png", PLAIN).name(0) == "a.png"
    assert open_source([photo(9), photo(9)], PLAIN).name(1) == "picture 1"
    assert open_source(torch.zeros(2, 3, 8, 8), PLAIN).name(1) == "picture 1"


NAN = torch.zeros(3, 3, 8, 8)
NAN[1, 0, 2, 2] = float("nan")
WRONG = [
    ([], "no pictures came. Give a path, a list of paths"),
    (3, "a picture of the type int came. Expected a path, a PIL image"),
    ([{}], "a picture of the type dict came"),
    (torch.zeros(2, 8, 8, 3), r"expected a float tensor \(B, 3, H, W\), but \(2, 8, 8, 3\) came. Channels go second"),
    (torch.zeros(8, 8), r"expected a float tensor \(B, 3, H, W\), but \(8, 8\) came"),
    (torch.zeros(0, 3, 8, 8), r"but \(0, 3, 8, 8\) came"),
    (NAN, r"pictures \[1\] hold NaN or infinite numbers. Check how they were normalised"),
]


@pytest.mark.parametrize(("images", "message"), WRONG, ids=lambda v: v if isinstance(v, str) else "")
def test_what_is_no_picture_is_an_error_that_says_what_would_do(images, message):
    with pytest.raises(PictureError, match=message):
        open_source(images, PLAIN)


def test_a_list_of_float_tensors_of_one_size_is_a_batch():
    pictures = [torch.full((3, 8, 8), value) for value in (0.5, -1.0)]
    found = open_source(pictures, PLAIN).batch(0, 2, like=LIKE)
    assert torch.equal(found, torch.stack(pictures).double())


def test_float_tensors_of_several_sizes_are_an_error():
    with pytest.raises(PictureError, match="An array must be uint8"):
        open_source([torch.zeros(3, 8, 8), torch.zeros(3, 9, 9)], PLAIN).batch(0, 2, like=LIKE)
