"""ViT-CX from its paper and code, one mask at a time with scipy's clusters; and what happens at its edges."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from torch import Tensor

import patchlight as pl
import tiny
from patchlight.methods.masking._cluster import by_rounds, numbered, partition
from tiny import close, pictures, subject


def normed(model: torch.nn.Module, image: Tensor, grid: tuple[int, int] = (4, 4)) -> Tensor:
    """(d, h, w) what the last attention reads."""
    held = []
    handle = model.blocks[-1].norm1.register_forward_hook(lambda *args: held.append(args[2]))
    with torch.no_grad():
        model(image[None])
    handle.remove()
    return held[0][0, -grid[0] * grid[1] :].T.unflatten(1, grid)


def scaled(maps: Tensor) -> Tensor:
    low, high = (f(maps.flatten(1), 1)[:, None, None] for f in (torch.amin, torch.amax))
    return (maps - low) / (high - low)


def slow_masks(features: Tensor, size: tuple[int, int], threshold: float | None) -> Tensor:
    masks = scaled(F.interpolate(features[:, None], size=size, mode="bilinear")[:, 0])
    if threshold is None:
        return masks
    found = fcluster(linkage(pdist(masks.flatten(1).numpy(), "cosine"), "complete"), threshold, "distance")
    return scaled(torch.stack([masks[torch.tensor(found == c)].sum(0) for c in sorted(set(found))]))


def slow(model: torch.nn.Module, image: Tensor, target: int, masks: Tensor, *, coverage: bool = True) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        impact = model(image * masks[:, None]).softmax(-1)[:, target]
    summed = (impact[:, None, None] * masks).sum(0)
    return (summed / masks.sum(0) / len(masks) if coverage else summed), impact


@pytest.mark.parametrize("network", ["vit", "vit_mean", "vit_registers", "deit_distilled"])
@pytest.mark.parametrize("threshold", [None, 0.1, 0.3])
def test_equals_the_formula_without_noise(network, threshold):
    model, shown = subject(network).model, pictures(network, 2)
    chosen = {"masks": "features"} if threshold is None else {"threshold": threshold}
    found = tiny.explain(network, "vit_cx", shown, 3, **{"threshold": None, **chosen}, sigma=0.0, insides=True)
    for index, image in enumerate(shown):
        masks = slow_masks(normed(model, image), (32, 32), threshold)
        expected, impact = slow(model, image, 3, masks)
        close(found.pixels[index], expected, 1e-8)
        close(found.insides["impact"][index].sort().values, impact.sort().values, 1e-8)
        close(found.insides["impact mean"][index], impact.mean(), 1e-8)
        close(found.insides["impact variance"][index], impact.var(correction=0), 1e-8)
        close(found.insides["coverage"][index], masks.mean(0), 1e-8)
        unit = F.normalize(masks.flatten(1), dim=1)
        k = len(masks)
        close(found.insides["mask similarity"][index], ((unit @ unit.T).sum() - k) / (k * (k - 1)), 1e-8)
        assert bool(found.insides["overdetermined"][index]) == bool(impact.mean() > 0.9)
        assert found.samples[index] == k
        assert found.insides["masks"][index].shape == (k, 32, 32)


def given_noise(found: pl.Explanation) -> Tensor:
    (masks,) = found.insides["masks"]
    return torch.randn(len(masks), 3, 32, 32, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize("unit", ["normalised", "raw"])
def test_equals_the_formula_with_noise(unit):
    held = replace(subject("vit"), preprocess=pl.Preprocess(size=(32, 32), std=(0.2, 0.25, 0.5)))
    model, image = held.model, pictures(count=1)
    plain = pl.explain(held, image, "vit_cx", 3, sigma=0.0, threshold=0.3, insides=True)
    noise = given_noise(plain)
    found = pl.explain(held, image, "vit_cx", 3, noise=noise, sigma=0.2, unit=unit, threshold=0.3, insides=True)
    masks = plain.insides["masks"][0][:, None]
    sigma = 0.2 if unit == "normalised" else torch.tensor([1.0, 0.8, 0.4], dtype=torch.float64)[:, None, None]
    noise = sigma * noise * (1 - masks)
    with torch.no_grad():
        one, two, whole = (model(x).softmax(-1)[:, 3] for x in (image * masks + noise, image + noise, image))
    impact = one - two + whole
    close(found.insides["impact"][0], impact, 1e-6)
    expected = (impact[:, None, None] * masks[:, 0]).sum(0) / masks[:, 0].sum(0) / len(masks)
    close(found.pixels[0], expected, 1e-6)
    assert found.samples.tolist() == [2 * len(masks)]
    assert found.error is None  # one draw tells no error


def test_the_parts_can_be_switched_off():
    model, image = subject("vit").model, pictures(count=1)
    masks = slow_masks(normed(model, image[0]), (32, 32), 0.3)
    plain = tiny.explain("vit", "vit_cx", image, 3, threshold=0.3, debias=False)
    close(plain.pixels[0], slow(model, image[0], 3, masks)[0], 1e-8)
    bare = tiny.explain("vit", "vit_cx", image, 3, threshold=0.3, debias=False, coverage=False)
    close(bare.pixels[0], slow(model, image[0], 3, masks, coverage=False)[0], 1e-8)
    logit = tiny.explain("vit", "vit_cx", image, 3, threshold=0.3, sigma=0.0, score="logit")
    assert not torch.allclose(logit.pixels, plain.pixels)


AT = ["norm", "attention", "output", "input"]


@pytest.mark.parametrize("network", ["vit", "swin", "hf_vit", "torchvision_vit", "cait"])
def test_features_of_every_place_of_a_block(network):
    maps = [tiny.explain(network, "vit_cx", pictures(network, 1), 3, features=at, sigma=0.0, block=1).pixels for at in AT]
    assert not any(torch.allclose(one, other) for i, one in enumerate(maps) for other in maps[:i])


def test_a_layer_by_name_is_that_block():
    shown = pictures(count=1)
    by_name = tiny.explain("vit", "vit_cx", shown, 3, layer="blocks.1.norm1", sigma=0.0)
    close(by_name.pixels, tiny.explain("vit", "vit_cx", shown, 3, block=1, sigma=0.0).pixels, 1e-10)
    out = tiny.explain("vit", "vit_cx", shown, 3, layer="blocks.1", sigma=0.0)
    close(out.pixels, tiny.explain("vit", "vit_cx", shown, 3, block=1, features="output", sigma=0.0).pixels, 1e-10)


def test_where_patches_are_merged_the_last_stage_but_one_is_taken():
    shown = pictures("swin", 1)
    chosen = tiny.explain("swin", "vit_cx", shown, 3, sigma=0.0, threshold=0.05)
    close(tiny.explain("swin", "vit_cx", shown, 3, sigma=0.0, threshold=None).pixels, chosen.pixels, 1e-10)
    close(tiny.explain("swin", "vit_cx", shown, 3, sigma=0.0, threshold=0.05, block=1).pixels, chosen.pixels, 1e-10)


# -- edges ------------------------------------------------------------------------------------------------------------


def test_one_cluster_shows_its_score_everywhere_but_where_it_shows_nothing():
    found = tiny.explain("vit", "vit_cx", threshold=5.0, sigma=0.0, insides=True)
    for index in range(3):
        (mask,), (impact,) = found.insides["masks"][index], found.insides["impact"][index]
        shown = mask > 1e-4
        assert not shown.all()
        close(found.pixels[index][shown], impact.expand(int(shown.sum())), 1e-9)
        assert (found.pixels[index][mask == 0] == 0).all()


def test_a_constant_channel_makes_no_mask():
    model = tiny.fresh("vit")
    with torch.no_grad():
        model.blocks[-1].norm1.weight[4] = 0.0  # its channel is the bias everywhere
    shown = pictures(count=1)
    found = pl.explain(model, shown, "vit_cx", 3, sigma=0.0, masks="features", insides=True)
    assert found.insides["clusters"][0].tolist() == [*range(4), -1, *range(4, 23)]
    features = normed(model, shown[0])
    masks = slow_masks(features[torch.arange(24) != 4], (32, 32), None)
    close(found.pixels[0], slow(model, shown[0], 3, masks)[0], 1e-8)


def test_only_constant_channels_are_an_error():
    model = tiny.fresh("vit")
    torch.nn.init.zeros_(model.blocks[-1].norm1.weight)
    with pytest.raises(pl.PatchlightError, match="every channel of the feature maps is constant"):
        pl.explain(model, pictures(count=1), "vit_cx", 3)


# -- draws ------------------------------------------------------------------------------------------------------------


def test_draws_have_a_standard_error_that_tells_the_spread():
    options = {"threshold": 0.3, "sigma": 1.0, "draws": 4, "batch_size": 64}
    shown = pictures(count=1)
    many = [tiny.explain("vit", "vit_cx", shown, 3, seed=s, **options) for s in range(80)]
    spread = torch.stack([e.pixels for e in many]).var(0).mean().sqrt()
    told = torch.stack([e.error.square() for e in many]).mean().sqrt()
    assert 0.75 < told / spread < 1.33


def test_the_noise_of_every_draw_is_the_pictures_own():
    """Pictures with other numbers of masks in the batch do not shift it."""
    options = {"threshold": 0.3, "draws": 3}
    shown, insides = pictures(), {"insides": True}
    found = tiny.explain("vit", "vit_cx", shown, 3, **options, **insides)
    assert len({len(m) for m in found.insides["masks"]}) > 1
    for index in range(len(shown)):
        alone = tiny.explain("vit", "vit_cx", shown[index : index + 1], 3, **options)
        close(alone.pixels, found.pixels[index : index + 1], 1e-12)


def test_given_noise_follows_its_picture_into_micro_batches():
    noise = torch.randn(3, 1, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    options = {"threshold": 5.0, "target": 3}  # one cluster each
    found = tiny.explain("vit", "vit_cx", noise=noise, batch_size=2, **options)
    for index, own in enumerate(noise):
        close(
            found.pixels[index],
            tiny.explain("vit", "vit_cx", pictures()[index : index + 1], noise=own, **options).pixels[0],
            1e-12,
        )
    assert torch.equal(tiny.explain("vit", "vit_cx", noise=noise.numpy(), batch_size=2, **options).pixels, found.pixels)


def test_until_ends_the_draws():
    options = {"threshold": 0.3, "draws": 200, "until": 0.2}
    found = tiny.explain("vit", "vit_cx", **options)
    masks = [len(m) for m in tiny.explain("vit", "vit_cx", threshold=0.3, sigma=0.0, insides=True).insides["masks"]]
    taken = [n / (2 * k) for n, k in zip(found.samples.tolist(), masks, strict=True)]
    assert all(2 <= t < 200 for t in taken)
    alone = tiny.explain("vit", "vit_cx", pictures()[1:2], batch_size=5, **options)
    assert alone.samples.tolist() == found.samples.tolist()[1:2]
    close(alone.pixels, found.pixels[1:2], 1e-9)


def test_random_masks_have_a_standard_error_too():
    options = {"masks": "random", "sigma": 0.0, "samples": 64}
    shown = pictures(count=1)
    for coverage in (True, False):
        many = [tiny.explain("vit", "vit_cx", shown, 3, seed=s, coverage=coverage, **options) for s in range(24)]
        spread = torch.stack([e.pixels for e in many]).var(0).mean().sqrt()
        told = torch.stack([e.error.square() for e in many]).mean().sqrt()
        assert 0.75 < told / spread < 1.33
    kept = tiny.explain("vit", "vit_cx", shown, 3, insides=True, **options).insides
    assert "masks" not in kept
    assert kept["impact"][0].shape == (64,)


# -- clusters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "threshold"), [(1, 0.1), (2, 0.5), (40, 0.3), (120, 0.1), (120, 0.01), (60, 3.0)])
def test_rounds_of_mutual_neighbours_give_scipys_clusters(count, threshold):
    draw = torch.Generator().manual_seed(count)
    points = torch.rand(3, count, 6, generator=draw, dtype=torch.float64)
    points[:, count // 2 :] += 0.2 * points[:, : count - count // 2]
    distance = torch.cdist(points, points) / 2
    distance.diagonal(dim1=1, dim2=2).zero_()
    scipys = partition(distance, threshold)
    rounds = by_rounds(distance, threshold)
    for index in range(3):
        assert torch.equal(numbered(rounds[index], distance[index]), scipys[index])


WRONG = [
    ({"sigma": -1.0}, "vit_cx: sigma takes 0 or more, but -1.0 came"),
    ({"threshold": 0.0}, "vit_cx: threshold takes a cosine distance above 0, but 0.0 came. For none, masks='features'"),
    ({"draws": 0}, r"vit_cx: samples takes 2 or more, draws 1 \(2 with until\), but 3 and 0 came"),
    ({"until": 0.1, "draws": 1}, r"draws 1 \(2 with until\), but 3 and 1 came"),
    ({"noise": torch.zeros(99, 3, 32, 32)}, r"vit_cx: noise takes \(K, 3, 32, 32\).* but \(99, 3, 32, 32\) came"),
    ({"noise": torch.zeros(1, 3, 32, 32), "draws": 2}, "vit_cx: noise holds one draw, .* but 2 draws came"),
    ({"layer": "blocks.1.norm"}, "layer: the model has no module 'blocks.1.norm'. Did you mean 'blocks.1.norm"),
    ({"layer": "head"}, r"layer: 'head' puts out \(3, 7\), but feature maps"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=lambda v: v if isinstance(v, str) else "")
def test_a_wrong_setting_is_an_error(settings, message):
    with pytest.raises(pl.PatchlightError, match=message):
        tiny.explain("vit", "vit_cx", **settings)


def test_a_module_that_is_not_called_is_an_error():
    model = tiny.fresh("vit")
    model.idle = torch.nn.Linear(2, 2)
    with pytest.raises(pl.PatchlightError, match="the module 'idle' put out no tensor in the forward pass"):
        pl.explain(model, pictures(count=1), "vit_cx", layer="idle")


def test_a_block_without_a_second_stream_shows_no_attention():
    with pytest.raises(pl.PatchlightError, match=r"block .* shows no features at 'attention'"):
        pl.explain(NoSkip(), pictures(count=1), "vit_cx", features="attention")


class NoSkip(torch.nn.Module):
    """A ViT whose blocks are attention alone, nothing added to it."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.img_size = tiny.fresh("vit"), (32, 32)
        for block in self.model.blocks:
            block.forward = lambda x, own=block: own.attn(own.norm1(x))

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images)
