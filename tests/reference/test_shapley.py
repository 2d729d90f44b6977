"""shapley: against full enumeration at 8 tokens, by painting and by dropping; its axioms; its errors; an end to sampling."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import pytest
import torch
from torch import Tensor, nn

import patchlight as pl
import tiny
from patchlight.core.registry import discover
from patchlight.tracing.as_found import as_found
from patchlight.tracing.drop import Hidden
from tiny import close

SIZE, GRID, PLAYERS = (32, 16), (4, 2), 8
KERNEL, WALKS = {"estimator": "kernel"}, {"estimator": "permutation"}
EXACT = {"estimator": "exact", "samples": 256}


@cache
def small() -> pl.Subject:
    return pl.load(tiny.redrawn(tiny.vit(img_size=SIZE)))


def pictures(count: int = 2) -> Tensor:
    return torch.randn(count, 3, *SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def patch(x: Tensor, number: int) -> Tensor:
    """(b, 3, 8, 8) one of the eight patches, as a view that may be written to."""
    row, column = divmod(number, 2)
    return x[:, :, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]


def there(coalition: set[int]) -> Tensor:
    return torch.tensor([i in coalition for i in range(PLAYERS)])


def painted_value(subject: pl.Subject, image: Tensor, coalition: set[int], target: int) -> float:
    mask = there(coalition).double().view(4, 2).repeat_interleave(8, 0).repeat_interleave(8, 1)
    with torch.no_grad():
        return float(subject.forward((image * mask)[None]).softmax(-1)[0, target])


def hidden_value(subject: pl.Subject, image: Tensor, coalition: set[int], target: int) -> float:
    with as_found(subject.model), torch.no_grad(), Hidden(subject.layout(), there(coalition)[None]):
        return float(subject.forward(image[None]).softmax(-1)[0, target])


def by_definition(value, subject: pl.Subject, image: Tensor, target: int) -> Tensor:
    """The mean over all 8! orders of what a patch adds, summed by the set that it finds."""
    known: dict[frozenset[int], float] = {}
    total = [0.0] * PLAYERS
    orders = list(permutations(range(PLAYERS)))
    for order in orders:
        before = frozenset()
        for player in order:
            after = before | {player}
            for coalition in (before, after):
                if coalition not in known:
                    known[coalition] = value(subject, image, set(coalition), target)
            total[player] += known[after] - known[before]
            before = after
    return torch.tensor(total, dtype=torch.float64).view(GRID) / len(orders)


@cache
def truth(remove: str) -> Tensor:
    value = painted_value if remove == "paint" else hidden_value
    return torch.stack([by_definition(value, small(), image, 2) for image in pictures()])


def explain(subject: pl.Subject | None = None, images: Tensor | None = None, **settings) -> pl.Explanation:
    return pl.explain(subject or small(), pictures() if images is None else images, "shapley", 2, **settings)


# -- against the definition -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remove", ["paint", "drop"])
def test_exact_values_are_those_of_the_definition(remove):
    found = explain(**EXACT, remove=remove)
    close(found.tokens, truth(remove), 1e-10)
    assert found.error.abs().max() == 0
    assert found.samples.tolist() == [256, 256]


@pytest.mark.parametrize("remove", ["paint", "drop"])
@pytest.mark.parametrize("settings", [KERNEL, WALKS], ids=str)
def test_estimates_come_within_their_errors_of_the_definition(settings, remove):
    found = explain(**settings, samples=1200, remove=remove)
    off = (found.tokens - truth(remove)).abs() / found.error
    assert off.max() < 4
    assert off.square().mean().sqrt() < 1.6
    assert found.error.max() < 0.08 * (truth(remove).amax() - truth(remove).amin())


def test_painting_and_dropping_answer_different_questions_and_say_so():
    paint, drop = explain(**EXACT), explain(**EXACT, remove="drop")
    assert (paint.tokens - drop.tokens).abs().max() > 0.1 * paint.tokens.abs().max()
    assert any("patches were dropped from the tokens, not painted over" in note for note in drop.notes)
    assert not any("dropped" in note for note in paint.notes)


# -- axioms -----------------------------------------------------------------------------------------------------------

EVERY = [EXACT, {**KERNEL, "samples": 64}, {**WALKS, "samples": 56}]
every_estimator = pytest.mark.parametrize("settings", EVERY, ids=lambda s: s["estimator"])


@every_estimator
@pytest.mark.parametrize("remove", ["paint", "drop"])
def test_efficiency(settings, remove):
    found = explain(**settings, remove=remove)
    value = painted_value if remove == "paint" else hidden_value
    for image, tokens in zip(pictures(), found.tokens, strict=True):
        whole, nothing = (value(small(), image, s, 2) for s in (set(range(PLAYERS)), set()))
        torch.testing.assert_close(tokens.sum(), torch.tensor(whole - nothing, dtype=torch.float64), rtol=0, atol=1e-12)


class Changed(nn.Module):
    """The network behind a change of its input."""

    def __init__(self, change) -> None:
        super().__init__()
        self.model, self.change, self.img_size = tiny.redrawn(tiny.vit(img_size=SIZE)), change, SIZE

    def forward(self, images: Tensor) -> Tensor:
        images = images.clone()
        self.change(images)
        return self.model(images)


def blind_to_patch_5(images: Tensor) -> None:
    patch(images, 5).zero_()


def alike_in_1_and_6(images: Tensor) -> None:
    mean = (patch(images, 1) + patch(images, 6)) / 2
    patch(images, 1).copy_(mean)
    patch(images, 6).copy_(mean)


def test_a_patch_that_the_network_ignores_is_worth_nothing():
    subject = pl.load(Changed(blind_to_patch_5))
    for settings in (EXACT, {**WALKS, "samples": 56}):
        found = explain(subject, **settings).tokens.flatten(1)
        assert found[:, 5].abs().max() < 1e-14
        assert (found[:, [0, 1, 2, 3, 4, 6, 7]].abs() > 1e-6).all()
    kernel = explain(subject, **KERNEL, samples=1200)
    assert (kernel.tokens.flatten(1)[:, 5].abs() < 4 * kernel.error.flatten(1)[:, 5]).all()


def test_patches_that_the_network_cannot_tell_apart_are_worth_the_same():
    subject, images = pl.load(Changed(alike_in_1_and_6)), pictures()
    patch(images, 6).copy_(patch(images, 1))
    found = explain(subject, images, **EXACT).tokens.flatten(1)
    torch.testing.assert_close(found[:, 1], found[:, 6], rtol=0, atol=1e-13)
    assert ((found[:, 1] - found[:, 2]).abs() > 1e-6).all()
    kernel = explain(subject, images, **KERNEL, samples=1200)
    gap, errors = (kernel.tokens.flatten(1)[:, [1, 6]], kernel.error.flatten(1)[:, [1, 6]])
    assert (gap.diff(dim=1).abs() < 4 * errors.sum(1, keepdim=True)).all()


def test_additivity_over_targets():
    """Of logits: a contrast is worth the difference of its classes, to the last digit, as the draws are the same."""
    both, one, other = (
        pl.explain(small(), pictures(), "shapley", target, samples=64, score="logit").tokens for target in ((5, 2), 5, 2)
    )
    close(both, one - other, 1e-10)


# -- errors, players, an end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{**KERNEL, "samples": 100}, {**WALKS, "samples": 112}], ids=lambda s: s["estimator"])
def test_errors_are_true(settings):
    """Over 30 seeds: the stated error equals the spread of the estimates, and covers the truth as often as it says."""
    runs = [explain(**settings, seed=seed) for seed in range(30)]
    found, errors = torch.stack([r.tokens for r in runs]), torch.stack([r.error for r in runs])
    ratio = errors.square().mean(0).sqrt() / found.std(0)
    assert 0.8 < ratio.mean() < 1.2, ratio
    inside = ((found - truth("paint")).abs() < 1.96 * errors).double().mean()
    assert 0.88 < inside < 0.98, inside


@pytest.mark.parametrize("remove", ["paint", "drop"])
def test_a_coarser_grid_has_blocks_of_patches_as_players(remove):
    """Four players of two patches each, by the definition over the patches that they hold."""
    found = explain(estimator="exact", samples=16, grid=(2, 2), remove=remove)
    held = [{0, 2}, {1, 3}, {4, 6}, {5, 7}]

    def value(subject: pl.Subject, image: Tensor, coalition: set[int], target: int) -> float:
        return (painted_value if remove == "paint" else hidden_value)(
            subject, image, set().union(*(held[i] for i in coalition)), target
        )

    for image, tokens in zip(pictures(), found.tokens, strict=True):
        total = [0.0] * 4
        for order in permutations(range(4)):
            for place, player in enumerate(order):
                gain = value(small(), image, set(order[: place + 1]), 2) - value(small(), image, set(order[:place]), 2)
                total[player] += gain / 24
        torch.testing.assert_close(tokens.flatten(), torch.tensor(total, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", [KERNEL, WALKS], ids=str)
def test_until_ends_the_sampling_of_each_picture_by_itself(settings):
    images = torch.cat([pictures(), 0.2 * pictures()])
    options = {**settings, "samples": 6000, "until": 0.012}
    found = explain(images=images, **options)
    extent = found.tokens.flatten(1).amax(1) - found.tokens.flatten(1).amin(1)
    relative = found.error.flatten(1).square().mean(1).sqrt() / extent
    assert (relative <= 0.012).all()
    assert len(set(found.samples.tolist())) > 1
    assert (found.samples < 6000).all()
    for i in range(4):
        alone = explain(images=images[i : i + 1], **options)
        assert alone.samples.tolist() == found.samples[i : i + 1].tolist()
        close(alone.tokens, found.tokens[i : i + 1], 1e-10)


def test_what_did_not_come_below_until_is_told():
    found = explain(samples=300, until=0.0001)
    assert any(
        "picture 0: relative standard error" in n and "after all 300 coalitions, above until=0.0001" in n for n in found.notes
    )


def test_cost_of_every_estimator_is_at_most_what_it_claims():
    seen = []
    subject = pl.load(tiny.redrawn(tiny.vit(img_size=SIZE)))
    subject.model.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    for settings in (*EVERY, {**KERNEL, "samples": 64, "remove": "drop"}):
        seen.clear()
        explain(subject, pictures(1), **settings)
        claimed = discover()["shapley"].cost(discover()["shapley"].resolve(settings))
        assert claimed.forwards - 5 <= sum(seen) <= claimed.forwards


WRONG = [
    ({"estimator": "exact", "samples": 255}, "exact values of 8 patches take 2.8 coalitions, but samples is 255"),
    ({"samples": 31}, "kernel takes 32 samples or more for 8 patches, but 31 came"),
    ({**WALKS, "samples": 27}, "permutation takes 28 samples or more for 8 patches, but 27 came"),
    ({"grid": (1, 1)}, r"shapley: grid takes \(rows, columns\) from 2 cells up to 32 x 16, but \(1, 1\) came"),
    ({"grid": (33, 2)}, "from 2 cells up to 32 x 16"),
    ({"grid": (5, 2), "remove": "drop"}, "from 2 cells up to 4 x 2"),
    ({"grid": (2, 2, 2)}, "from 2 cells up to 32 x 16"),
    ({"until": 0.0}, "until takes a relative standard error above 0"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=str)
def test_wrong_settings_say_what_would_do(settings, message):
    with pytest.raises(pl.PatchlightError, match=message):
        explain(**settings)


@pytest.mark.parametrize("network", ["vit_mean", "swin", "cnn"])
def test_tokens_of_other_networks_are_not_dropped(network):
    with pytest.raises(pl.PatchlightError, match=r"the patches of this model cannot be dropped: .*Use remove='paint'"):
        tiny.explain(network, "shapley", remove="drop")
