"""Training an explainer on a user's pictures: stage by stage, judged on pictures held out, resumed where it was left."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import ceil, cos, pi, prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from patchlight.core.errors import ModelError, PatchlightError, SettingError
from patchlight.core.interrupt import Stop, interruptible
from patchlight.core.source import Source, open_source
from patchlight.methods.masking._course import STAGES, Course, Recipe
from patchlight.methods.masking._explainer import About, save
from patchlight.methods.masking._without import Remove
from patchlight.models.load import load
from patchlight.models.subject import Subject
from patchlight.tracing.drop import undroppable

BATCH = {"cuda": 64, "mps": 16, "cpu": 16}
HELD_OUT, MOST_HELD_OUT, LEAST = 0.1, 64, 8
WARMUP, CLIP, SAVE_EVERY = 0.05, 1.0, 60.0  # share of the steps, largest norm of a gradient, seconds
MODEL_RATE = 0.1  # the model's own layers learn at a tenth of the head's rate

Progress = Callable[[int, int], None]


def train_explainer(
    subject: Any,
    images: Any,
    out: str | Path,
    *,
    surrogate_epochs: int = 5,
    epochs: int = 20,
    coalitions: int = 8,
    batch_size: int | None = None,
    rate: float = 1e-3,
    tune: bool = True,
    grid: tuple[int, int] | None = None,
    remove: Remove = "drop",
    seed: int = 0,
    restart: bool = False,
    progress: Progress | None = None,
    report: Callable[[str], None] | None = None,
) -> About:
    """Train an explainer for a model on pictures like those that it will explain; no labels are needed.

    subject: what `load` takes. images: as for `explain`. out: the file that `explain(method="vit_shapley", explainer=out)` takes.
    surrogate_epochs: for a copy of the model that learns to do without patches; 0 takes the model as it is. epochs: for the
    explainer. coalitions: of each picture in a step, in pairs. tune: whether the explainer may change its copy of the model, or
    only its head (quicker, less good). grid: (rows, columns) of blocks of patches that share one value; None: every patch has its
    own, which takes many more pictures and steps to learn.
    remove: patches are dropped from a plain ViT, or painted over with the mean colour.
    Every epoch is judged on a tenth of the pictures, held out, and the best one is kept. What is done so far lies beside `out`:
    the same call goes on from there, also after Ctrl-C; restart begins anew. progress is told (steps done, all), report one line
    for each epoch. Returns how the explainer came about.
    """
    subject = load(subject)
    batch = batch_size or BATCH.get(subject.device.type, 16)
    recipe = Recipe(
        surrogate_epochs, epochs, coalitions, batch, rate, tune, None if grid is None else (grid[0], grid[1]), remove, seed
    ).check()
    source = open_source(images, subject.preprocess)
    course = prepared(subject, source, recipe)
    with torch.inference_mode(mode=False), interruptible() as stop:
        run = Run(course, Path(out), stop, progress, report)
        return run.finish(resume=not restart)


def prepared(subject: Subject, source: Source, recipe: Recipe) -> Course:
    """Everything that can be wrong is found before the first step."""
    if subject.dtype not in (torch.float32, torch.float64):
        raise ModelError(f"train_explainer takes a model in float32, but {subject.dtype} came. Load it without half precision.")
    if len(source) < LEAST:
        raise SettingError(f"train_explainer takes {LEAST} pictures or more, but {len(source)} came. Hundreds are better.")
    layout = subject.layout()
    if reason := layout.missing("tokens"):
        raise ModelError(f"vit_shapley cannot be trained for {subject.name}: {reason}. Use shapley, which needs no training.")
    rows, columns = layout.grid
    if recipe.grid is not None and not (1 <= recipe.grid[0] <= rows and 1 <= recipe.grid[1] <= columns and prod(recipe.grid) > 1):
        raise SettingError(
            f"train_explainer: grid takes (rows, columns) from 2 blocks up to {rows} x {columns} patches, but {recipe.grid} came."
        )
    like = torch.empty(0, device=subject.device, dtype=subject.dtype)
    if recipe.remove == "drop" and (reason := undroppable(subject.model, subject.forward, layout, source.batch(0, 1, like=like))):
        raise ModelError(f"training leaves patches out of plain ViTs only: {reason}. Use remove='paint' for {subject.name}.")
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(recipe.seed))
    count = min(MOST_HELD_OUT, max(2, round(HELD_OUT * len(source))))
    return Course(subject, layout, source, recipe, train=order[count:], held_out=order[:count])


@dataclass(eq=False)
class Run:
    """Where a training stands, and how it is kept on disk."""

    course: Course
    out: Path
    stop: Stop
    progress: Progress | None = None
    report: Callable[[str], None] | None = None
    stage: int = 0
    step: int = 0
    best: dict[str, Any] = field(default_factory=dict)
    optimiser: torch.optim.Optimizer = field(init=False)
    saved: float = field(default_factory=time.monotonic)

    # -- steps --------------------------------------------------------------------------------------------------------

    @property
    def per_epoch(self) -> int:
        return ceil(len(self.course.train) / self.course.recipe.batch)

    def steps(self, stage: int) -> int:
        recipe = self.course.recipe
        return self.per_epoch * (recipe.epochs if STAGES[stage] == "explainer" else recipe.surrogate_epochs)

    def finish(self, *, resume: bool) -> About:
        state = self.read() if resume else None
        for stage in range(0 if state is None else state["stage"], len(STAGES)):
            self.stage, self.step = stage, 0
            self.enter(state)
            state = None
            self.learn()
            self.take(self.best)
            self.course.end(STAGES[stage])
        explainer = self.course.explainer(self.best["score"])
        save(explainer, self.out)
        self.unfinished.unlink(missing_ok=True)
        return explainer.about

    def enter(self, state: dict[str, Any] | None) -> None:
        """The beginning of a stage, or the place where it was left."""
        if state is not None:
            self.course.tuned = dict(state["tuned"])
        self.course.begin(STAGES[self.stage])
        self.optimiser = self.make_optimiser()
        if state is None:
            self.judge(epoch=0)
            return
        self.take(state["now"])
        self.step, self.best = state["step"], state["best"]
        self.optimiser.load_state_dict(state["optimiser"])
        self.say(f"goes on with the {STAGES[self.stage]} at step {self.step} of {self.steps(self.stage)}")

    def learn(self) -> None:
        course, stage = self.course, STAGES[self.stage]
        while self.step < self.steps(self.stage):
            self.pause()
            for group in self.optimiser.param_groups:
                group["lr"] = group["rate"] * self.pace()
            self.optimiser.zero_grad()
            with torch.enable_grad():
                loss = course.loss(stage, self.numbers(), course.generator(self.stage, self.step))
            loss.backward()
            torch.nn.utils.clip_grad_norm_([p for g in self.optimiser.param_groups for p in g["params"]], CLIP)
            self.optimiser.step()
            self.step += 1
            if self.progress is not None:
                before, every = (sum(map(self.steps, range(n))) for n in (self.stage, len(STAGES)))
                self.progress(before + self.step, every)
            if self.step % self.per_epoch == 0:
                self.judge(epoch=self.step // self.per_epoch)

    def numbers(self) -> Tensor:
        """The pictures of a step: every epoch has its own order."""
        epoch, place = divmod(self.step, self.per_epoch)
        order = torch.randperm(len(self.course.train), generator=self.course.generator(self.stage, -2, epoch))
        return self.course.train[order][place * self.course.recipe.batch :][: self.course.recipe.batch]

    def pace(self) -> float:
        """Up in a straight line, then down as a cosine."""
        done, total = self.step + 1, self.steps(self.stage)
        rise = max(1, round(WARMUP * total))
        return done / rise if done <= rise else (1 + cos(pi * (done - rise) / max(1, total - rise))) / 2

    def make_optimiser(self) -> torch.optim.Optimizer:
        course, rate = self.course, self.course.recipe.rate
        tensors = [t for t in course.tuned[STAGES[self.stage]].values() if t.requires_grad]
        groups = [{"params": tensors, "rate": MODEL_RATE * rate}] if tensors else []
        if STAGES[self.stage] == "explainer":
            groups.append({"params": list(course.head.parameters()), "rate": rate})
        return torch.optim.AdamW(groups or [{"params": [torch.zeros(1)], "rate": 0.0}], lr=0.0, weight_decay=0.01)

    # -- the best epoch -----------------------------------------------------------------------------------------------

    def judge(self, *, epoch: int) -> None:
        stage = STAGES[self.stage]
        if not self.steps(self.stage):
            self.best = {"score": 0.0, **self.now()}
            return
        score = self.course.judge(stage)
        if not self.best or epoch == 0 or score > self.best["score"]:
            self.best = {"score": score, **self.now()}
        told = (
            f"divergence {-score:.4f}" if stage == "surrogate" else f"foresees {score:.1%} of what parts earn beyond their size"
        )
        self.say(f"{stage}, epoch {epoch}: held-out {told}")

    def now(self) -> dict[str, Any]:
        stage = STAGES[self.stage]
        tensors = {n: t.detach().clone() for n, t in self.course.tuned[stage].items()}
        head = self.course.head.state_dict() if stage == "explainer" else {}
        return {"tensors": tensors, "head": {n: t.detach().clone() for n, t in head.items()}}

    def take(self, state: dict[str, Any]) -> None:
        device = self.course.subject.device
        with torch.no_grad():
            for name, tensor in self.course.tuned[STAGES[self.stage]].items():
                tensor.copy_(state["tensors"][name].to(device))
        if state["head"]:
            self.course.head.load_state_dict(state["head"])

    def say(self, line: str) -> None:
        if self.report is not None:
            self.report(line)

    # -- what is kept on disk -----------------------------------------------------------------------------------------

    @property
    def unfinished(self) -> Path:
        return self.out.with_name(self.out.name + ".unfinished")

    def pause(self) -> None:
        """Write down where the training stands, now and then, and when the user asks for an end."""
        if self.stop.asked or time.monotonic() - self.saved > SAVE_EVERY:
            self.write()
        if self.stop.asked:
            raise KeyboardInterrupt(f"the training is kept in {self.unfinished}; the same call goes on from there")

    def key(self) -> dict[str, Any]:
        """What must be the same for a training to go on."""
        source = self.course.source
        names = json.dumps([source.name(i) for i in range(len(source))]).encode()
        return {
            "recipe": asdict(self.course.recipe),
            "model": self.course.subject.name,
            "pictures": hashlib.blake2b(names, digest_size=8).hexdigest(),
        }

    def write(self) -> None:
        state = {
            "key": self.key(),
            "stage": self.stage,
            "step": self.step,
            "tuned": {s: self.course.tuned[s] for s in STAGES[: self.stage]},
            "now": self.now(),
            "best": self.best,
            "optimiser": self.optimiser.state_dict(),
        }
        aside = self.unfinished.with_name(f".{self.unfinished.name}.{os.getpid()}")
        self.out.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.save(state, aside)
            aside.replace(self.unfinished)
        finally:
            aside.unlink(missing_ok=True)
        self.saved = time.monotonic()

    def read(self) -> dict[str, Any] | None:
        """Where an unfinished training stands; one of other settings is an error, never silently begun anew."""
        if not self.unfinished.is_file():
            return None
        try:
            state = torch.load(self.unfinished, map_location=self.course.subject.device, weights_only=True)
            found = state["key"]
        except Exception as error:  # torch and pickle raise whatever they like about a foreign file
            raise PatchlightError(
                f"{self.unfinished} is no unfinished training ({type(error).__name__}). Move it away, or begin anew "
                "(restart=True, --restart)."
            ) from error
        if found != self.key():
            mine, theirs = self.key(), {**found, **found["recipe"]}
            other = [n for n, v in {**mine, **mine["recipe"]}.items() if n != "recipe" and theirs.get(n) != v]
            raise SettingError(
                f"{self.unfinished} is an unfinished training with other settings ({', '.join(other)}). "
                "Give the same ones to go on, another file, or begin anew (restart=True, --restart)."
            )
        return state
