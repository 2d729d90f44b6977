"""What masking costs beside its forward passes: seconds of each method / (its passes x the bare pass at the best batch).

python benchmarks/masking.py [--model vit_base_patch16_224] [--device cpu] [--pictures 1] [--rounds 5] [--json]

Everything is measured in turn within each round and the medians are compared, so that what else the machine does falls on all
alike. The bare pass is `model(images)` in the batch that the scorer found, on pictures that are there already, in the precision
of the scores (autocast on CUDA). The settings are smaller than the defaults where a method takes thousands of passes: the work
beside the passes grows with them. Weights are random, so the number of ViT-CX's masks says nothing unless --weights is given.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import timm
import torch
from torch import Tensor

import patchlight as pl
from patchlight.methods.masking import _cluster

METHODS: dict[str, dict[str, Any]] = {
    "occlusion": {"window": 64, "stride": 32},
    "patch_intervention": {"grid": (7, 7)},
    "rise": {"samples": 64},
    "rise, errors looked at": {"method": "rise", "samples": 64, "until": 1e-9},
    "score_cam": {"top": 64},
    "vit_cx": {},
    "vit_cx, no noise": {"method": "vit_cx", "sigma": 0.0},
    "shapley": {"grid": (4, 4), "samples": 64},
    "shapley, dropping": {"method": "shapley", "grid": (4, 4), "samples": 64, "remove": "drop"},
    "lime": {"samples": 64},
}


def bare(subject: pl.Subject, count: int) -> Callable[[], None]:
    """`count` passes of the model as it is, in the scorer's batch and precision."""
    size = subject.scorer.sizes or {(): 8}
    batch = min(count, max(size.values()))
    images = torch.randn(batch, 3, *subject.preprocess.size).to(subject.device, subject.dtype)
    half = subject.device.type == "cuda"

    def work() -> None:
        with torch.no_grad(), torch.autocast(subject.device.type, enabled=half):
            for start in range(0, count, batch):
                subject.model(images[: min(batch, count - start)])

    return work


def clustering(subject: pl.Subject, images: Tensor) -> Callable[[], object]:
    """The clustering of ViT-CX alone, on the distances of these pictures."""
    distances = pl.explain(subject, images, "vit_cx", sigma=0.0, insides=True).insides["distances"]
    return lambda: _cluster.partition(distances, 0.1)


def timed(work: Callable[[], object], device: str) -> float:
    sync = torch.cuda.synchronize if device == "cuda" else lambda: None
    sync()
    began = time.perf_counter()
    work()
    sync()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit_base_patch16_224")
    parser.add_argument("--weights")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pictures", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(0)
    made = timm.create_model(given.model, pretrained=False, checkpoint_path=given.weights or "")
    subject = pl.load(made.eval().requires_grad_(requires_grad=False).to(given.device))
    images = torch.randn(given.pictures, 3, *subject.preprocess.size).to(subject.device)
    subject.layout()
    passes: dict[str, int] = {}
    ratios: dict[str, list[float]] = {name: [] for name in METHODS}
    seconds: dict[str, list[float]] = {name: [] for name in [*METHODS, "clustering"]}
    cluster = clustering(subject, images)
    for turn in range(given.rounds + 1):  # the first round warms up, finds the batch and counts
        for name, settings in METHODS.items():
            chosen = {"method": name, **settings}
            found: list[pl.Explanation] = []
            took = timed(lambda c=chosen, f=found: f.append(pl.explain(subject, images, **c)), given.device)
            passes[name] = given.pictures + taken(subject, found[0])
            base = timed(bare(subject, passes[name]), given.device)
            if turn:
                ratios[name].append(took / base)
                seconds[name].append(took)
        seconds["clustering"].append(timed(cluster, given.device))
    report(given, passes, ratios, seconds, subject)


def taken(subject: pl.Subject, found: pl.Explanation) -> int:
    """Forward passes beside the first of each picture: as counted by the method, or as it claims."""
    if found.samples is not None:
        return int(found.samples.sum())
    return len(found) * int(pl.methods()[found.method].cost(found.settings, subject.layout()).forwards - 1)


def report(given: Any, passes: dict[str, int], ratios: Any, seconds: Any, subject: pl.Subject) -> None:
    rows = {n: (statistics.median(ratios[n]), statistics.median(seconds[n]), passes[n]) for n in METHODS}
    cluster = statistics.median(seconds["clustering"])
    if given.json:
        print(json.dumps({"run": vars(given), "torch": torch.__version__, "rows": rows, "clustering": cluster}))  # noqa: T201
        return
    where = torch.cuda.get_device_name() if given.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    batch = max(subject.scorer.sizes.values(), default=8)
    print(f"{given.model}, {given.pictures} pictures, batch {batch}, {where}, torch {torch.__version__}, {given.rounds} rounds")  # noqa: T201
    print(f"{'':26s} {'ratio':>6s} {'passes':>7s} {'seconds':>8s} {'pictures/s':>11s}")  # noqa: T201
    for name, (ratio, took, count) in rows.items():
        print(f"{name:26s} {ratio:6.3f} {count:7d} {took:8.2f} {given.pictures / took:11.3f}")  # noqa: T201
    share = cluster / rows["vit_cx"][1]
    print(f"clustering: {cluster * 1e3:.1f} ms, {100 * share:.2f} % of vit_cx")  # noqa: T201


if __name__ == "__main__":
    main()
