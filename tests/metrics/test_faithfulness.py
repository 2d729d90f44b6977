"""Faithfulness: exact values on a model made by hand, and a slow second way on a network, in float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
import torch

import patchlight as pl
import tiny
from metrics import hand

N = hand.SIDE**2
FALL = [max(0.0, 1 - k / hand.OBJECT) for k in range(N + 1)]  # of the share of light while the object goes pixel by pixel


def trapezoid(values):
    return (sum(values) - (values[0] + values[-1]) / 2) / (len(values) - 1)


def score(metric, which="perfect", **settings):
    given = {"labels": 1} if "perturbation" in metric else {}
    return pl.evaluate(hand.subject(), hand.white(), hand.maps()[which], metric, **given, **settings)


def test_a_perfect_map_deletes_and_inserts_with_exact_areas():
    assert score("deletion", steps=N).mean == pytest.approx(0.125, abs=1e-9)
    assert score("deletion", "reversed", steps=N).mean == pytest.approx(0.875, abs=1e-9)
    assert score("insertion", steps=N, canvas="mean").mean == pytest.approx(0.875, abs=1e-9)
    assert score("insertion", "reversed", steps=N, canvas="mean").mean == pytest.approx(0.125, abs=1e-9)
    np.testing.assert_allclose(score("deletion", steps=N).curve[0].numpy(), FALL, atol=1e-9)


def test_the_accuracy_holds_until_half_of_the_object_is_gone():
    # right while more than half of 16 pixels are left (the first class wins a draw): after 0, 3, 6 of 64 pixels, not after 9
    counts = [N * j // 20 for j in range(21)]
    held = [float(k < 8) for k in counts]
    assert score("positive_perturbation").curve[0].tolist() == held
    assert score("positive_perturbation").mean == pytest.approx(trapezoid(held))
    held = [float(k < 56) for k in counts]
    assert score("negative_perturbation").curve[0].tolist() == held
    inside = [N * j // 10 for j in range(1, 10)]
    nine = score("positive_perturbation", levels=9, ends=False)
    assert nine.curve[0].tolist() == [float(k < 8) for k in inside]
    assert nine.at is not None
    np.testing.assert_allclose(nine.at.numpy(), [k / N for k in inside])


def test_mean_falls_are_exact():
    falls = [1 - FALL[N * j // 20] for j in range(21)]
    assert score("aopc").mean == pytest.approx(np.mean(falls), abs=1e-9)
    logs = [np.log(max(1e-12, FALL[N * j // 20])) for j in range(21)]
    assert score("lodds").mean == pytest.approx(np.mean(logs), rel=1e-6)
    few = [max(1, int(N * s)) for s in (0.01, 0.05, 0.1, 0.2, 0.5)]
    assert score("comprehensiveness").mean == pytest.approx(np.mean([1 - FALL[k] for k in few]), abs=1e-9)
    assert score("sufficiency").mean == pytest.approx(np.mean([FALL[k] for k in few]), abs=1e-9)
    counts = [N * j // 10 for j in range(11)]
    both = [min(1.0, (N - k) / hand.OBJECT) - FALL[k] for k in counts]
    assert score("abpc").mean == pytest.approx(np.mean(both), abs=1e-9)
    assert score("abpc", "reversed").mean == pytest.approx(-np.mean(both), abs=1e-9)


def test_sets_of_cells_add_up_on_a_linear_model():
    # the probability is the sum of what is left, and the perfect map is what each pixel adds (but for the 1e-3 against ties)
    found = score("sensitivity_n", grid=8, output="probability")
    assert (found.curve > 0.9999).all()
    assert (score("sensitivity_n", "reversed", grid=8, output="probability").curve < -0.9999).all()


def test_groups_in_the_order_of_their_effect_are_fully_faithful():
    assert score("saco", groups=4, fill="black").mean == pytest.approx(1, abs=1e-9)
    assert score("saco", "reversed", groups=4, fill="black").mean == pytest.approx(
        -1, abs=0.03
    )  # the noise against ties counts too


HIGHER = {m.name for m in pl.metrics().values() if m.family == "faithfulness" and m.better == "higher"}
LOWER = {m.name for m in pl.metrics().values() if m.family == "faithfulness" and m.better == "lower"}
GREY = {"saco": {"fill": "black"}, "sensitivity_n": {"grid": 8}, "insertion": {"canvas": "mean"}}


@pytest.mark.parametrize("metric", sorted((HIGHER | LOWER) - {"road"}))  # an even picture is imputed by itself
def test_perfect_maps_beat_random_ones_and_those_beat_reversed_ones(metric):
    settings = GREY.get(metric, {})
    perfect, random, turned = (score(metric, which, **settings).mean for which in ("perfect", "random", "reversed"))
    assert (perfect > random > turned) if metric in HIGHER else (perfect < random < turned)


# -- a slow second way -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def case():
    """(subject, picture as numpy, map with ties as numpy, probability of every changed picture)"""
    subject, images = tiny.subject("vit"), tiny.pictures(count=1)
    rows = torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64).mul(40).round()
    return subject, images, rows


def slow_blur(image):
    """RISE's kernel as its authors build it, the sum over all shifts."""
    kernel = np.zeros((11, 11))
    kernel[5, 5] = 1
    kernel = scipy.ndimage.gaussian_filter(kernel, 5)
    padded = np.pad(image, ((0, 0), (5, 5), (5, 5)))
    height, width = image.shape[1:]
    return sum(kernel[i, j] * padded[:, i : i + height, j : j + width] for i in range(11) for j in range(11))


def fills(subject, image):
    mean, std = (np.array(v)[:, None, None] for v in (subject.preprocess.mean, subject.preprocess.std))
    return {
        "mean": np.zeros_like(image),
        "black": np.broadcast_to(-mean / std, image.shape),
        "average": np.broadcast_to(image.mean((1, 2), keepdims=True), image.shape),
        "blur": slow_blur(image),
    }


def removed(case, counts, fill, *, highest=True, keep=False):
    """Probabilities of the picture without the first k places of the ranking, or with nothing else."""
    subject, images, maps = case
    image = images[0].numpy()
    order = hand.order_of(maps[0].numpy(), highest=highest)
    laid = fills(subject, image)[fill]
    return hand.answer(subject, [hand.painted(image, order[k:] if keep else order[:k], laid) for k in counts])


def found(case, metric, **settings):
    subject, images, maps = case
    return pl.evaluate(subject, images, maps, metric, **settings)


@pytest.mark.parametrize("fill", ["mean", "black", "average", "blur"])
def test_deletion_one_pixel_at_a_time(case, fill):
    counts = [1024 * j // 7 for j in range(8)]
    p = removed(case, counts, fill)
    curve = p[:, p[0].argmax()]
    score = found(case, "deletion", steps=7, fill=fill)
    np.testing.assert_allclose(score.curve[0].numpy(), curve, rtol=1e-9)
    assert score.mean == pytest.approx(trapezoid(curve.tolist()), rel=1e-9)


def test_whole_steps_leave_the_rest(case):
    counts = [j * (1024 // 100) for j in range(101)]
    p = removed(case, counts, "black")
    score = found(case, "deletion", steps=100, whole_steps=True, fill="black")
    np.testing.assert_allclose(score.curve[0].numpy(), p[:, p[0].argmax()], rtol=1e-9)
    assert score.at[-1] == 1000 / 1024


@pytest.mark.parametrize("canvas", ["blur", "mean"])
def test_insertion_one_pixel_at_a_time(case, canvas):
    counts = [1024 * j // 7 for j in range(8)]
    p = removed(case, counts, canvas, keep=True)
    score = found(case, "insertion", steps=7, canvas=canvas)
    np.testing.assert_allclose(score.curve[0].numpy(), p[:, p[-1].argmax()], rtol=1e-9)


@pytest.mark.parametrize("highest", [True, False])
def test_perturbation_one_pixel_at_a_time(case, highest):
    counts = [1024 * j // 20 for j in range(21)]
    p = removed(case, counts, "black", highest=highest)
    name = "positive_perturbation" if highest else "negative_perturbation"
    for label in (int(p[0].argmax()), int(p[0].argmin())):
        score = found(case, name, labels=[label])
        assert score.curve[0].tolist() == (p.argmax(1) == label).astype(float).tolist()
    kept = found(case, name, truth="predicted")
    assert kept.curve[0].tolist() == (p.argmax(1) == p[0].argmax()).astype(float).tolist()


def test_falls_of_every_kind_one_pixel_at_a_time(case):
    counts = [1024 * j // 20 for j in range(21)]
    p = removed(case, counts, "black")
    c = p[0].argmax()
    assert found(case, "aopc").mean == pytest.approx((p[0, c] - p[:, c]).mean(), rel=1e-9)
    assert found(case, "lodds").mean == pytest.approx(np.log(p[:, c] / p[0, c]).mean(), rel=1e-9)
    nine = removed(case, [1024 * j // 10 for j in range(1, 10)], "black")
    absolute = found(case, "aopc", levels=9, ends=False, absolute=True)
    assert absolute.mean == pytest.approx(np.abs(p[0, c] - nine[:, c]).mean(), rel=1e-9)
    eleven = [1024 * j // 10 for j in range(11)]
    least, most = removed(case, eleven, "mean", highest=False), removed(case, eleven, "mean")
    assert found(case, "abpc").mean == pytest.approx((least[:, c] - most[:, c]).mean(), rel=1e-9)
    label = found(case, "abpc", of="label", labels=[4])
    assert label.mean == pytest.approx((least[:, 4] - most[:, 4]).mean(), rel=1e-9)
    few = [10, 51, 102, 204, 512]
    without, only = removed(case, few, "mean"), removed(case, few, "mean", keep=True)
    assert found(case, "comprehensiveness").mean == pytest.approx((p[0, c] - without[:, c]).mean(), rel=1e-9)
    assert found(case, "sufficiency").mean == pytest.approx((p[0, c] - only[:, c]).mean(), rel=1e-9)


def test_saco_pair_by_pair(case):
    subject, images, maps = case
    image, values = images[0].numpy(), maps[0].numpy().ravel()
    order = hand.order_of(maps[0].numpy(), highest=True)
    bounds = [1024 * j // 10 for j in range(11)]
    groups = [order[a:b] for a, b in pairwise(bounds)]
    laid = fills(subject, image)["average"]
    p = hand.answer(subject, [image, *(hand.painted(image, g, laid) for g in groups)])
    fall = p[0, p[0].argmax()] - p[1:, p[0].argmax()]
    sums = [sum(values[i] for i in g) / len(g) for g in groups]
    total = weight = 0.0
    for i in range(10):
        for j in range(i + 1, 10):
            more = sums[i] - sums[j]
            total += more if fall[i] >= fall[j] else -more
            weight += abs(more)
    assert found(case, "saco").mean == pytest.approx(total / weight, rel=1e-9)


def test_sensitivity_n_set_by_set(case):
    subject, images, maps = case
    image, rows = images[0].numpy(), maps[0].numpy()
    from patchlight.core.seeds import generator

    draw = generator(images[0], 0)
    permutations = [torch.randperm(16, generator=draw).tolist() for _ in range(6)]
    with torch.no_grad():
        whole = subject.model(images)[0]
    c = int(whole.argmax())
    expected = []
    for n in (4, 8):
        sums, falls = [], []
        for permutation in permutations:
            places = [i for i in range(1024) if (i // 32 // 8) * 4 + (i % 32) // 8 in permutation[:n]]
            with torch.no_grad():
                left = subject.model(torch.from_numpy(hand.painted(image, places, np.zeros_like(image)))[None])[0]
            sums.append(sum(rows.ravel()[i] for i in places))
            falls.append(float(whole[c] - left[c]))
        expected.append(scipy.stats.pearsonr(sums, falls)[0])
    score = found(case, "sensitivity_n", grid=4, sets=6, at=(0.25, 0.5))
    np.testing.assert_allclose(score.curve[0].numpy(), expected, rtol=1e-7)


# -- settings ----------------------------------------------------------------------------------------------------------


def test_the_class_that_is_read(case):
    subject, images, _ = case
    e = pl.explain(subject, images, "transformer_mm", target=4)
    predicted = int(e.logits.argmax())
    assert predicted != 4
    scored = pl.evaluate(subject, images, e, "deletion", steps=4)
    assert "1 maps explain another class than the predicted one" in scored.notes[0]
    explained = pl.evaluate(subject, images, e, "deletion", steps=4, of="explained")
    label = pl.evaluate(subject, images, e.pixels, "deletion", steps=4, of="label", labels=[4])
    assert explained.values.tolist() == label.values.tolist() != scored.values.tolist()
    with pytest.raises(pl.PatchlightError, match="needs maps that know their class"):
        pl.evaluate(subject, images, e.pixels, "deletion", steps=4, of="explained")


@pytest.mark.parametrize(
    ("metric", "settings", "message"),
    [
        ("deletion", {"steps": 0}, "deletion: steps must lie between 1 and the 1024 pixels, but 0 came"),
        ("aopc", {"levels": 1}, "aopc: levels must lie between 2 and"),
        ("sufficiency", {"at": (0.0,)}, r"at takes shares above 0 and up to 1, as \(0.1, 0.5\)"),
        ("road", {"at": (1.0,)}, "road: at takes shares above 0 and up to 0.99"),
        ("saco", {"groups": 1}, "saco: groups takes 2 to 1024, the number of pixels"),
        ("sensitivity_n", {"sets": 2}, "sets takes 3 or more and grid 2 to 32, but 2 and 14 came"),
        ("deletion", {"fill": "linear"}, "nothing is left around a whole picture"),
        ("deletion", {"fill": "blu"}, "Did you mean 'blur'.* See `patchlight.* deletion"),
    ],
)
def test_a_setting_out_of_range_is_named(case, metric, settings, message):
    with pytest.raises(pl.PatchlightError, match=message):
        found(case, metric, **settings)


def test_noise_is_the_pictures_own(case):
    subject, _, _ = case
    images = tiny.pictures(count=3)
    maps = torch.rand(3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    together = pl.evaluate(subject, images, maps, "deletion", steps=4, fill="noise")
    alone = pl.evaluate(subject, images[2:], maps[2:], "deletion", steps=4, fill="noise")
    assert together.values[2] == pytest.approx(float(alone.values[0]), rel=1e-9)
    other = pl.evaluate(subject, images, maps, "deletion", steps=4, fill="noise", seed=1)
    assert other.values[2] != together.values[2]
