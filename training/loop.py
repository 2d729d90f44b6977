"""The loop: every step draws its own random numbers, so a run that was stopped goes on as if it had not been."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from patchlight.core.errors import SettingError
from training.log import Log
from training.recipes import Pace


def nothing() -> None:
    """What most tasks do behind a step."""


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be learned."""

    module: nn.Module
    """Holds all that must be kept."""
    optimisers: Sequence[Optimizer]
    loss: Callable[[int], Mapping[str, Tensor]]
    """Of a step: `loss`, which is differentiated, and its parts."""
    clipped: Sequence[nn.Parameter]
    settings: str
    """All of them in words: a run goes on only with those that it was begun with."""
    after: Callable[[], None] = nothing


def run(task: Task, pace: Pace, folder: Path, *, quiet: bool = False) -> None:
    """Learn until the last step, from the checkpoint in the folder where there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint, log = folder / "checkpoint.pt", Log(folder / "log.jsonl", quiet)
    for optimiser in task.optimisers:
        for group in optimiser.param_groups:
            group["initial_lr"] = group["lr"]
    begin = restore(task, checkpoint)
    log.cut(begin)
    for step in range(begin, pace.steps):
        log.add(learn(task, pace, step), pace.batch)
        done = step + 1
        saved = done % pace.save_every == 0 or done == pace.steps
        if saved or done % pace.log_every == 0:
            log.write(done, pace.steps)
        if saved:
            store(task, checkpoint, done)


def learn(task: Task, pace: Pace, step: int) -> Mapping[str, Tensor]:
    """One step, which depends on nothing but the weights, the optimisers' state, the seed and its own number."""
    torch.manual_seed(pace.seed * 1_000_000 + step)
    for group in (g for o in task.optimisers for g in o.param_groups):
        group["lr"] = group["initial_lr"] * rate(step, pace)
    found = task.loss(step)
    found["loss"].backward()
    nn.utils.clip_grad_norm_(task.clipped, pace.clip)
    for optimiser in task.optimisers:
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    task.after()
    return found


def rate(step: int, pace: Pace) -> float:
    """min(1, (step + 1) / warm-up) · max(floor, (1 + cos(π step / steps)) / 2)"""
    return min(1.0, (step + 1) / pace.warm_up) * max(pace.floor, 0.5 * (1 + math.cos(math.pi * step / pace.steps)))


def store(task: Task, path: Path, done: int) -> None:
    """Written aside and renamed: a run that is killed while it saves has its last checkpoint still."""
    aside = path.with_name(f".{path.name}.part")
    state: dict[str, Any] = {"module": task.module.state_dict(), "optimisers": [o.state_dict() for o in task.optimisers]}
    torch.save({**state, "done": done, "settings": task.settings}, aside)
    aside.replace(path)


def restore(task: Task, path: Path) -> int:
    """Put everything back as the checkpoint has it; the number of steps that were done."""
    if not path.is_file():
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    if state["settings"] != task.settings:
        raise SettingError(
            f"{path} was begun with other settings ({state['settings']}) than are given now ({task.settings}). "
            "Go on with those, or give another folder."
        )
    task.module.load_state_dict(state["module"])
    for optimiser, kept in zip(task.optimisers, state["optimisers"], strict=True):
        optimiser.load_state_dict(kept)
    return state["done"]
