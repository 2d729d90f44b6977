"""The log of a run: lines of JSON, each with the means since the last."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from patchlight.core.errors import SettingError


@dataclass
class Log:
    path: Path
    quiet: bool = False
    since: list[Mapping[str, Tensor]] = field(default_factory=list)
    pictures: int = 0
    started: float = field(default_factory=time.perf_counter)

    def cut(self, begin: int) -> None:
        """Keep what the checkpoint of step `begin` knows of: what came behind it is learned again."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        kept = [line for line in lines if json.loads(line)["step"] <= begin]
        self.path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")

    def add(self, values: Mapping[str, Tensor], pictures: int) -> None:
        self.since.append({name: v.detach() for name, v in values.items()})
        self.pictures += pictures

    def write(self, step: int, steps: int) -> None:
        means = {name: float(torch.stack([v[name] for v in self.since]).mean()) for name in self.since[0]}
        speed = self.pictures / (time.perf_counter() - self.started)
        if not torch.tensor(list(means.values())).isfinite().all():
            raise SettingError(
                f"before step {step} the loss was no longer finite ({told(means)}). Lower the rates of the recipe; the last "
                "checkpoint is sound."
            )
        with self.path.open("a", encoding="utf-8") as file:
            rounded = {name: round(v, 5) for name, v in means.items()}
            file.write(json.dumps({"step": step, **rounded, "pictures_per_second": round(speed, 1)}) + "\n")
        if not self.quiet:
            line = f"step {step} of {steps}: {told(means)}; {speed:.0f} pictures/s"
            Console(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)
        self.since, self.pictures, self.started = [], 0, time.perf_counter()


def told(means: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in means.items())
