"""The teacher: a pretrained network gets a new head by logistic regression and is then fine-tuned as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from timm.optim._param_groups import param_groups_layer_decay
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from patchlight.core.errors import ModelError
from patchlight.core.pictures import read_picture
from training import networks
from training.crops import cut, draw
from training.loop import Task, run
from training.pictures import Canvases, Example, load
from training.recipes import Network, Tuning


def make(
    weights: Path,
    found: Sequence[Example],
    folder: Path,
    *,
    network: Network,
    tuning: Tuning,
    device: torch.device,
    quiet: bool = False,
) -> nn.Module:
    """The fine-tuned teacher, in evaluation mode; its weights also in `folder/weights.safetensors`."""
    model = pretrained(network, weights, tuning).to(device)
    if not (folder / "checkpoint.pt").is_file():
        new_head(model, found, device)
    mean = fine_tune(
        model, load(found).to(device), tuning, folder, settings=f"{network} {tuning} {len(found)} pictures", quiet=quiet
    )
    networks.save(mean, folder / "weights.safetensors", {"settings": str(tuning)})
    return networks.frozen(mean)


def pretrained(network: Network, weights: Path, tuning: Tuning) -> nn.Module:
    """The network with a file's weights, all but the head."""
    model = networks.build(network, drop_path_rate=tuning.drop_path)
    tensors = {name: t.float() for name, t in load_file(weights).items() if not name.startswith("head.")}
    left = model.load_state_dict(tensors, strict=False)
    if set(left.missing_keys) != {"head.weight", "head.bias"} or left.unexpected_keys:
        raise ModelError(
            f"{weights} does not fit the body of {network.architecture}: missing {left.missing_keys}, too much "
            f"{left.unexpected_keys}. Give the file of a pretrained {network.architecture} with timm's names."
        )
    return model


# -- the head ---------------------------------------------------------------------------------------------------------


def new_head(model: nn.Module, found: Sequence[Example], device: torch.device) -> None:
    """Logistic regression on the features of the middle crops; its weights become those of the head."""
    x, y = features(model, found, device), torch.tensor([e.label for e in found], device=device)
    mean, deviation = x.mean(0), x.std(0) + 1e-5
    weight, bias = regression((x - mean) / deviation, y, classes=model.get_parameter("head.bias").numel())
    with torch.no_grad():
        model.get_parameter("head.weight").copy_(weight / deviation)
        model.get_parameter("head.bias").copy_(bias - weight / deviation @ mean)


@torch.no_grad()
def features(model: nn.Module, found: Sequence[Example], device: torch.device, *, batch: int = 64) -> Tensor:
    """What the head reads, picture by picture: (n, d)."""
    model.eval()
    parts = []
    for start in range(0, len(found), batch):
        views = [networks.PREPROCESS(read_picture(e.path).image) for e in found[start : start + batch]]
        parts.append(networks.outputs(model, torch.stack(views).to(device)).feature)
    return torch.cat(parts)


def regression(x: Tensor, y: Tensor, *, classes: int, penalty: float = 1e-2) -> tuple[Tensor, Tensor]:
    """argmin over W, b of the cross-entropy of x W^T + b, plus penalty · |W|²"""
    weight = torch.zeros(classes, x.shape[1], device=x.device, requires_grad=True)
    bias = torch.zeros(classes, device=x.device, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy(x @ weight.T + bias, y) + penalty * weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return weight.detach(), bias.detach()


# -- all of it --------------------------------------------------------------------------------------------------------


def fine_tune(model: nn.Module, pets: Canvases, tuning: Tuning, folder: Path, *, settings: str, quiet: bool) -> nn.Module:
    """The running mean of the weights over all steps."""
    mean = AveragedModel(model, multi_avg_fn=running_mean(tuning.mean_decay))
    groups = param_groups_layer_decay(model, weight_decay=tuning.weight_decay, layer_decay=tuning.layer_decay)
    groups = [{**g, "lr": tuning.rate * g["lr_scale"]} for g in groups]

    def loss(_: int) -> dict[str, Tensor]:
        model.train()
        index = torch.randint(len(pets), (tuning.pace.batch,)).to(pets.labels.device)
        drawn = draw(pets.sizes[index], tuning.crops).to(index.device)
        x, y = cut(pets.pixels[index], pets.sizes[index], drawn), pets.labels[index]
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            logits = model(x).float()
        each, other = (F.cross_entropy(logits, labels, reduction="none") for labels in (y, y[drawn.partner]))
        return {"loss": (drawn.share * each + (1 - drawn.share) * other).mean()}

    task = Task(
        module=nn.ModuleList([model, mean]),
        optimisers=[torch.optim.AdamW(groups, betas=(0.9, 0.99))],
        loss=loss,
        clipped=list(model.parameters()),
        settings=settings,
        after=lambda: mean.update_parameters(model),
    )
    run(task, tuning.pace, folder, quiet=quiet)
    return mean.module


def running_mean(decay: float):
    """m ← m + (1 - min(decay, s / (s + 10))) (w - m) at step s: short at first, when the weights still move far."""

    @torch.no_grad()
    def update(means: Sequence[Tensor], weights: Sequence[Tensor], step: Tensor | int) -> None:
        for kept, new in zip(means, weights, strict=True):
            kept.lerp_(new, 1 - min(decay, int(step) / (int(step) + 10)))

    return update
