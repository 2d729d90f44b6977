"""Pictures are scored one batch at a time, in order, in the batch that suits the device."""

from __future__ import annotations

import pytest
import torch

import patchlight as pl
from patchlight.core.scoring import Scorer


def mean_of_channels(images: torch.Tensor) -> torch.Tensor:
    return images.mean((2, 3))


def scorer(function=mean_of_channels, device="cpu", **options) -> Scorer:
    return Scorer(function, torch.device(device), torch.float32, **options)


@pytest.mark.parametrize("fixed", [None, 1, 3, 100])
@pytest.mark.parametrize("count", [1, 7, 64])
def test_every_picture_is_scored_once_and_in_order(fixed, count):
    images = torch.randn(count, 3, 4, 4)
    made = []

    def make(start, stop):
        made.append(stop - start)
        return images[start:stop]

    found = list(scorer(fixed=fixed).stream(make, count))
    assert [start for start, _, _ in found] == [0, *(stop for _, stop, _ in found[:-1])]
    assert found[-1][1] == count
    torch.testing.assert_close(torch.cat([scores for _, _, scores in found]), images.mean((2, 3)))
    assert fixed is None or max(made) <= fixed


def test_the_best_batch_is_found_once_for_pictures_alike():
    scores = scorer(device="mps")  # where it is looked for: only the pictures would have to be there
    list(scores.stream(lambda a, b: torch.zeros(b - a, 3, 4, 4), 5000))
    ((key, size),) = scores.sizes.items()
    assert key[:3] == (3, 4, 4)
    steps = [stop - start for start, stop, _ in scores.stream(lambda a, b: torch.zeros(b - a, 3, 4, 4), 5000)]
    assert set(steps[1:-1]) == {size}
    assert len(scores.sizes) == 1


def test_on_a_cpu_the_batch_is_fixed_so_that_the_same_call_gives_the_same_numbers_to_the_bit():
    scores = scorer()
    for _ in range(2):
        steps = [stop - start for start, stop, _ in scores.stream(lambda a, b: torch.zeros(b - a, 3, 4, 4), 100)]
        assert set(steps[:-1]) == {8}
    assert scores.sizes == {}


def test_half_precision_by_autocast():
    linear = torch.nn.Linear(4, 3)
    images = torch.randn(2, 4)
    whole, half = (scorer(linear, half=kind)(images) for kind in (None, torch.bfloat16))
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), whole, rtol=2e-2, atol=2e-2)


def test_a_batch_that_does_not_fit_is_halved_and_nothing_is_lost():
    def small(images):
        if len(images) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return mean_of_channels(images)

    scores = scorer(small)
    images = torch.randn(9, 3, 4, 4)
    found = torch.cat([s for _, _, s in scores.stream(lambda a, b: images[a:b], 9)])
    torch.testing.assert_close(found, images.mean((2, 3)))
    assert scores.notes == ["out of memory: scored in batches of 4", "out of memory: scored in batches of 2"]


def test_one_picture_that_does_not_fit_is_an_error():
    def none(images):
        raise torch.OutOfMemoryError(f"CUDA out of memory for {len(images)}")

    with pytest.raises(pl.PatchlightError, match="scoring a single picture ran out of memory"):
        list(scorer(none).stream(lambda a, b: torch.zeros(b - a, 3, 4, 4), 8))


def test_any_other_error_is_passed_on():
    def broken(images):
        raise RuntimeError(f"shapes differ in {len(images)}")

    with pytest.raises(RuntimeError, match="shapes differ in 8"):
        list(scorer(broken).stream(lambda a, b: torch.zeros(b - a, 3, 4, 4), 8))


def test_scores_carry_no_graph():
    images = torch.randn(2, 3, 4, 4, requires_grad=True)
    assert not scorer()(images).requires_grad


def test_a_subject_scores_without_leaving_anything_behind():
    subject = pl.load("pets-vit")
    images = torch.randn(2, 3, 224, 224)
    subject.model.train()
    scores = subject.scorer(images)
    assert subject.model.training
    subject.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(scores, subject.model(images), rtol=1e-4, atol=1e-4)
    assert subject.scorer is subject.scorer
