"""What metrics cost, as a ratio to the bare forward passes of the pictures that they ask for, at the best batch.

python benchmarks/metrics.py [--model deit_tiny_patch16_224] [--device cpu] [--precision float32] [--rounds 5] [--json]

Two rows for one picture: deletion and insertion in 28 steps against 58 bare forwards, and the whole faithfulness family against
the forwards of its distinct pictures. All rows are measured in turn within each round and medians are compared. The best batch
for the bare forwards is found first, by trying; the metrics find theirs by themselves.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import timm
import torch
from torch import Tensor

import patchlight as pl
from patchlight.core.scoring import Scorer

PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
BATCHES = {"cpu": (1, 4, 16, 29), "cuda": (16, 29, 58, 128, 256)}
STEPS = 58


def bare(model: torch.nn.Module, images: Tensor, batch: int) -> Callable[[], None]:
    """Every picture once, in batches that lie ready on the device."""

    def work() -> None:
        with torch.no_grad():
            for part in images.split(batch):
                model(part)

    return work


def seconds(work: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def best_batch(model: torch.nn.Module, images: Tensor, device: str) -> int:
    batches = [b for b in BATCHES[device] if b <= len(images)]
    found: dict[int, list[float]] = {b: [] for b in batches}
    for turn in range(3):
        for batch in batches:
            took = seconds(bare(model, images, batch), device)
            found[batch] += [took] if turn else []
    return min(batches, key=lambda b: statistics.median(found[b]))


def asked(work: Callable[[], object]) -> int:
    """How many pictures a call scores."""
    seen: list[int] = []
    call = Scorer.__call__

    def counting(self: Scorer, images: Tensor) -> Tensor:
        seen.append(len(images))
        return call(self, images)

    Scorer.__call__ = counting
    try:
        work()
    finally:
        Scorer.__call__ = call
    return sum(seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="deit_tiny_patch16_224")
    parser.add_argument("--device", default="cpu", choices=BATCHES)
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(0)
    model = timm.create_model(given.model, pretrained=False).eval().requires_grad_(requires_grad=False)
    subject = pl.load(model.to(given.device, PRECISIONS[given.precision]))
    image = torch.randn(1, 3, *subject.preprocess.size).to(subject.device, subject.dtype)
    e = pl.explain(subject, image, "transformer_mm")
    every = [m.name for m in pl.metrics().values() if m.family == "faithfulness"]
    todo = {
        "deletion + insertion": lambda: pl.evaluate_many(subject, image, e, ["deletion", "insertion"]),
        "faithfulness family": lambda: pl.evaluate_many(subject, image, e, every, labels=0),
    }
    counts = {name: asked(work) for name, work in todo.items()}
    forwards = {"deletion + insertion": STEPS, "faithfulness family": counts["faithfulness family"]}
    pictures = {n: torch.randn(n, *image.shape[1:]).to(image) for n in set(forwards.values())}
    batch = best_batch(model, pictures[STEPS], given.device)
    took: dict[str, list[float]] = {name: [] for name in (*todo, *(f"bare {n}" for n in todo))}
    for turn in range(given.rounds + 1):  # the first round warms up
        for name, work in todo.items():
            for row, what in ((name, work), (f"bare {name}", bare(model, pictures[forwards[name]], batch))):
                one = seconds(what, given.device)
                took[row] += [one] if turn else []
    found = {name: statistics.median(t) for name, t in took.items()}
    ratios = {name: statistics.median(a / b for a, b in zip(took[name], took[f"bare {name}"], strict=True)) for name in todo}
    record = {"run": vars(given), "torch": torch.__version__, "bare batch": batch, "pictures": counts, "seconds": found}
    if given.json:
        print(json.dumps({**record, "ratios": ratios, "batches": [str(s) for s in subject.scorer.sizes.items()]}))  # noqa: T201
        return
    where = torch.cuda.get_device_name() if given.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{given.model}, {given.precision}, {where}, torch {torch.__version__}, {given.rounds} rounds, bare batch {batch}")  # noqa: T201
    print(f"{'':24s} {'ratio':>6s} {'seconds':>8s} {'bare':>8s} {'pictures':>9s} {'forwards':>9s}")  # noqa: T201
    for name in todo:
        row = f"{ratios[name]:6.2f} {found[name]:8.3f} {found[f'bare {name}']:8.3f} {counts[name]:9d} {forwards[name]:9d}"
        print(f"{name:24s} {row}")  # noqa: T201


if __name__ == "__main__":
    main()
