"""Function matching: the student sees the very crop that the teacher sees and must do inside what the teacher does inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from patchlight.core.errors import SettingError
from training import networks
from training.crops import cut, draw
from training.loop import Task, run
from training.networks import Outputs, outputs
from training.pictures import NOBODY, Canvases
from training.recipes import Matching

SEED_OF_WEIGHTS, SEED_OF_SCALES = 1, 2  # added to the recipe's, apart from those of the steps


@dataclass(frozen=True, eq=False)
class Scales:
    """How much the teacher's numbers vary, so that every term of the loss begins near one.

    patch, token: (l, d), of the patch tokens and the class token behind each block; feature: (d,).
    """

    patch: Tensor
    token: Tensor
    feature: Tensor


class Pair(nn.Module):
    """Student and adapters, which bring the student's outputs to the teacher's width and are dropped at the end."""

    def __init__(self, student: nn.Module, like: Outputs, teacher: Outputs) -> None:
        super().__init__()
        self.student = student
        width = teacher.feature.shape[-1]
        self.blocks = nn.ModuleList(adapter(found, width) for found in like.blocks)
        self.feature = adapter(like.feature, width, same=like.blocks[0].dim() == 3)

    def forward(self, x: Tensor) -> Outputs:
        found = outputs(self.student, x)
        blocks = tuple(adapt(block) for adapt, block in zip(self.blocks, found.blocks, strict=True))
        return Outputs(blocks, self.feature(found.feature), found.logits)


def adapter(found: Tensor, width: int, *, same: bool | None = None) -> nn.Module:
    """Nothing for tokens of a plain ViT of the teacher's width, which can be matched as they are; else a linear layer."""
    same = found.dim() == 3 if same is None else same
    return nn.Identity() if same and found.shape[-1] == width else nn.Linear(found.shape[-1], width)


# -- the loss ---------------------------------------------------------------------------------------------------------


def terms(mine: Outputs, theirs: Outputs, follows: Sequence[int], scales: Scales, temperature: float) -> dict[str, Tensor]:
    """Mean squared differences over the teacher's variances, and T² KL(teacher ‖ student) at temperature T."""
    pairs = [(block.float(), theirs.blocks[k - 1].float(), k - 1) for block, k in zip(mine.blocks, follows, strict=True)]
    patch = [((on_patches(a) - on_grid(a, b)).square().mean((0, 1)) / scales.patch[k]).mean() for a, b, k in pairs]
    token = [((a[:, 0] - b[:, 0]).square().mean(0) / scales.token[k]).mean() for a, b, k in pairs if a.dim() == 3]
    feature = ((mine.feature.float() - theirs.feature.float()).square().mean(0) / scales.feature).mean()
    one, other = (F.log_softmax(found.logits.float() / temperature, -1) for found in (mine, theirs))
    kl = F.kl_div(one, other, log_target=True, reduction="batchmean") * temperature**2
    return {
        "patch": torch.stack(patch).mean(),
        "token": torch.stack(token).mean() if token else patch[0].new_zeros(()),
        "feature": feature,
        "kl": kl,
    }


def on_patches(found: Tensor) -> Tensor:
    """(b, 1 + n, d) or (b, h, w, d) -> (b, n, d), without the class token."""
    return found[:, 1:] if found.dim() == 3 else found.flatten(1, 2)


def on_grid(mine: Tensor, theirs: Tensor) -> Tensor:
    """The teacher's patch tokens (b, n, d), averaged where the student's grid is coarser."""
    patches = theirs[:, 1:]
    if mine.dim() == 3:
        return patches
    side = round(patches.shape[1] ** 0.5)
    square = patches.unflatten(1, (side, side)).permute(0, 3, 1, 2)
    return F.adaptive_avg_pool2d(square, (mine.shape[1], mine.shape[2])).flatten(2).transpose(1, 2)


@torch.no_grad()
def measured(teacher: nn.Module, batches: Sequence[Tensor]) -> Scales:
    """Variances over some batches; a share of their mean is added, for some channels hardly move."""
    found = [outputs(teacher, x) for x in batches]
    patch, token = [], []
    for each in zip(*(f.blocks for f in found), strict=True):
        block = torch.cat([b.float() for b in each])
        patches, tokens = block[:, 1:].flatten(0, 1).var(0), block[:, 0].var(0)
        patch.append(patches + 0.02 * patches.mean())
        token.append(tokens + 0.1 * tokens.mean() + 0.05 * patches.mean())
    feature = torch.cat([f.feature.float() for f in found]).var(0)
    return Scales(torch.stack(patch), torch.stack(token), feature + 0.05 * feature.mean())


# -- the run ----------------------------------------------------------------------------------------------------------


def make(teacher: nn.Module, pictures: Canvases, recipe: Matching, folder: Path, *, quiet: bool = False) -> nn.Module:
    """The student in evaluation mode; its weights also in `folder/weights.safetensors`."""
    device = pictures.pixels.device
    check(teacher, recipe)
    torch.manual_seed(recipe.pace.seed + SEED_OF_SCALES)
    views = [next_batch(pictures, recipe) for _ in range(3)]
    scales = measured(teacher, views)
    torch.manual_seed(recipe.pace.seed + SEED_OF_WEIGHTS)
    student = networks.build(recipe.student).to(device)
    with torch.no_grad():
        pair = Pair(student, outputs(student, views[0][:1]), outputs(teacher, views[0][:1])).to(device)

    def loss(step: int) -> dict[str, Tensor]:
        pair.train()
        x = next_batch(pictures, recipe)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            with torch.no_grad():
                theirs = outputs(teacher, x)
            found = terms(pair(x), theirs, recipe.student.follows, scales, recipe.temperature)
        progress = step / recipe.pace.steps
        return {"loss": found["patch"] + found["token"] + found["feature"] + (1 + progress) * found["kl"], **found}

    muon, adam = optimisers(pair, recipe)
    clipped = [p for group in adam.param_groups for p in group["params"]]  # Muon's steps have one length whatever the gradient
    run(Task(pair, [muon, adam], loss, clipped, f"{recipe} {len(pictures)} pictures"), recipe.pace, folder, quiet=quiet)
    networks.save(student, folder / "weights.safetensors", {"settings": str(recipe)})
    return student.eval()


def check(teacher: nn.Module, recipe: Matching) -> None:
    depth = len(getattr(teacher, "blocks", ()))
    if not recipe.student.follows or max(recipe.student.follows) > depth:
        raise SettingError(
            f"the student follows the blocks {recipe.student.follows} of a teacher that has {depth}. Give `follows` one block of "
            "the teacher, from 1 on, for each watched output of the student."
        )


def next_batch(pictures: Canvases, recipe: Matching) -> Tensor:
    """Crops of random pictures: of unlabelled ones in the recipe's share, where there are any."""
    nobody = (pictures.labels == NOBODY).cpu()
    index = picked(~nobody, recipe.pace.batch)
    if nobody.any():
        foreign = torch.rand(recipe.pace.batch) < recipe.unlabelled
        index = torch.where(foreign, picked(nobody, recipe.pace.batch), index)
    sizes, index = pictures.sizes.cpu()[index], index.to(pictures.pixels.device)
    return cut(pictures.pixels[index], pictures.sizes[index], draw(sizes, recipe.crops).to(index.device))


def picked(among: Tensor, count: int) -> Tensor:
    known = among.nonzero()[:, 0]
    return known[torch.randint(len(known), (count,))]


def optimisers(pair: Pair, recipe: Matching) -> tuple[torch.optim.Muon, torch.optim.AdamW]:
    """Muon for the matrices inside the student's blocks, AdamW for all else, without decay for vectors and positions."""
    named = list(pair.named_parameters())
    inner = {n for n, p in named if n.startswith("student.") and p.dim() == 2 and is_inner(n)}
    plain = {n for n, p in named if p.dim() < 2 or "pos_embed" in n or "cls_token" in n or "bias" in n}
    groups = [
        {"params": [p for n, p in named if n not in inner | plain], "weight_decay": recipe.weight_decay},
        {"params": [p for n, p in named if n in plain - inner], "weight_decay": 0.0},
    ]
    matrices = [p for n, p in named if n in inner]
    # the step of a matrix has the size of AdamW's: 0.2 √max(rows, columns) times an orthogonal matrix
    muon = torch.optim.Muon(matrices, lr=recipe.muon_rate, weight_decay=recipe.weight_decay, adjust_lr_fn="match_rms_adamw")
    return muon, torch.optim.AdamW(groups, lr=recipe.adam_rate, betas=(0.9, 0.98))


def is_inner(name: str) -> bool:
    return ("blocks." in name or "downsample." in name) and "bias" not in name
