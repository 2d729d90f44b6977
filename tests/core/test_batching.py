"""A batch that does not fit is halved and tried again; the user is told."""

from __future__ import annotations

import pytest
import torch

import patchlight as pl
import tiny
from patchlight.core.batching import in_batches

WORDINGS = [
    torch.OutOfMemoryError("CUDA out of memory."),
    MemoryError("no more"),
    RuntimeError("DefaultCPUAllocator: not enough memory"),
]


@pytest.mark.parametrize("error", WORDINGS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize(("limit", "expected"), [(9, [(0, 8), (8, 11)]), (4, [(0, 4), (4, 8), (8, 11)]), (3, [(0, 2), (2, 4)])])
def test_batches_are_halved_until_they_fit(error, limit, expected):
    notes: list[str] = []

    def work(start: int, stop: int, size: int) -> tuple[int, int]:
        assert stop - start <= size
        if stop - start > limit:
            raise error
        return start, stop

    found = list(in_batches(11, 8, work, note=notes.append))
    assert found[: len(expected)] == expected
    assert [i for start, stop in found for i in range(start, stop)] == list(range(11))
    assert len(notes) == {9: 0, 4: 1, 3: 2}[limit]
    assert all("out of memory: continued in batches of" in n for n in notes)


def test_one_picture_that_does_not_fit_is_an_error():
    def work(start: int, stop: int, _size: int) -> None:
        raise torch.OutOfMemoryError(f"CUDA out of memory for {start}:{stop}\nmore")

    with pytest.raises(
        pl.PatchlightError, match=r"one picture at a time does not fit into memory \(CUDA out of memory for 0:1\)"
    ):
        list(in_batches(3, 4, work, note=[].append))


def test_any_other_error_is_passed_on():
    def work(start: int, stop: int, _size: int) -> None:
        raise RuntimeError(f"shapes differ in {start}:{stop}")

    with pytest.raises(RuntimeError, match="shapes differ in 0:3"):
        list(in_batches(3, 4, work, note=[].append))


class Small(torch.nn.Module):
    """A network on a device with little memory."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.model, self.limit, self.img_size = tiny.fresh("vit"), limit, (32, 32)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if len(images) > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        return self.model(images)


@pytest.mark.parametrize("method", [m.name for m in tiny.served("vit")])
def test_explaining_with_little_memory_gives_the_same_numbers_and_a_note(method):
    images = tiny.pictures(count=5)
    found = pl.explain(pl.load(Small(2)), images, method, 3, batch_size=5, **tiny.quick(method))
    tiny.close(found.scores, tiny.explain("vit", method, images, 3).scores, 1e-10)
    assert any("out of memory: continued in batches of 2" in note for note in found.notes)


def test_explaining_without_memory_for_one_picture_is_an_error():
    held = pl.load(Small(1))
    held.model.limit = 0
    with pytest.raises(pl.PatchlightError, match="one picture at a time does not fit"):
        pl.explain(held, tiny.pictures(), "saliency")
