"""What relevance costs, as a ratio to one bare forward pass plus backward pass to the input in the same precision.

python benchmarks/relevance.py [--model vit_base_patch16_224] [--batch 8] [--device cpu] [--precision float64] [--rounds 5]

All rows are measured in turn within each round, and the medians over rounds are compared, so that what else the machine does
falls on all of them alike; the ratio of the time that the processors worked is stated too, which other work hardly moves.
The model and the pictures have the precision of the row, frozen parameters. Memory is the peak of what PyTorch holds (CUDA),
or of the process above what it held before (CPU, each row in a process of its own).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import timm
import torch

import patchlight as pl

BARE = "bare forward + backward to the input"
ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "transformer_attribution": ("transformer_attribution", {}),
    "relevance_rollout": ("relevance_rollout", {}),
    "partial_lrp": ("partial_lrp", {}),
    "lrp (separate)": ("lrp", {}),
    "lrp (joint)": ("lrp", {"rules": "joint"}),
    "deep_taylor": ("deep_taylor", {}),
    "conservative_lrp": ("conservative_lrp", {}),
    "conservative_lrp (gamma)": ("conservative_lrp", {"gamma_conv": 0.25, "gamma_linear": 0.05}),
    "attn_lrp": ("attn_lrp", {}),
}
PRECISIONS = {"float64": torch.float64, "float32": torch.float32}


def rows(given: argparse.Namespace) -> dict[str, Callable[[], object]]:
    torch.manual_seed(0)
    model = timm.create_model(given.model, pretrained=False).eval().requires_grad_(requires_grad=False)
    subject = pl.load(model.to(given.device, PRECISIONS[given.precision]))
    images = torch.randn(given.batch, 3, *subject.preprocess.size).to(subject.device, subject.dtype)
    subject.layout()

    def bare() -> object:
        leaf = images.clone().requires_grad_()
        return torch.autograd.grad(model(leaf).amax(-1).sum(), leaf)

    def explain(method: str, settings: dict[str, object]) -> Callable[[], object]:
        chosen = {"precision": given.precision, **settings}
        return lambda: pl.explain(subject, images, method, batch_size=given.batch, **chosen)

    wanted = given.rows.split(",") if given.rows else list(ROWS)
    return {BARE: bare, **{name: explain(*ROWS[name]) for name in wanted}}


def measure(todo: dict[str, Callable[[], object]], given: argparse.Namespace) -> dict[str, tuple[float, float, float]]:
    """Median seconds, median processor seconds and peak memory in GiB of each row."""
    cuda = given.device == "cuda"
    sync = torch.cuda.synchronize if cuda else lambda: None
    seconds: dict[str, list[float]] = {name: [] for name in todo}
    worked: dict[str, list[float]] = {name: [] for name in todo}
    peak = dict.fromkeys(todo, 0.0)
    for turn in range(given.rounds + 1):  # the first round warms up
        for name, work in todo.items():
            sync()
            if cuda:
                torch.cuda.reset_peak_memory_stats()
            started, busy = time.perf_counter(), time.process_time()
            work()
            sync()
            if turn:
                seconds[name].append(time.perf_counter() - started)
                worked[name].append(time.process_time() - busy)
            if cuda:
                peak[name] = torch.cuda.max_memory_allocated() / 2**30
    if not cuda and given.memory:
        peak = {name: peak_of(name) for name in todo}
    return {name: (statistics.median(seconds[name]), statistics.median(worked[name]), peak[name]) for name in todo}


def peak_of(name: str) -> float:
    """The most that one row adds to a process of its own, in GiB."""
    command = [sys.executable, __file__, *sys.argv[1:], "--only", name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def grown(todo: dict[str, Callable[[], object]], name: str) -> float:
    before = highest()
    todo[name]()
    return highest() - before


def highest() -> float:
    """The most memory that this process ever held, in GiB (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit_base_patch16_224")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float64", choices=PRECISIONS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", default="", help="some of: " + ", ".join(ROWS))
    parser.add_argument("--memory", action="store_true", help="on a CPU too: each row once more in a process of its own")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    todo = rows(given)
    if given.only:
        print(grown(todo, given.only))  # noqa: T201
        return
    found = measure(todo, given)
    base, work = found[BARE][:2]
    if given.json:
        print(json.dumps({"run": vars(given), "torch": torch.__version__, "rows": found}))  # noqa: T201
        return
    where = torch.cuda.get_device_name() if given.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{given.model}, batch {given.batch}, {given.precision}, {where}, torch {torch.__version__}, {given.rounds} rounds")  # noqa: T201
    print(f"{'':40s} {'ratio':>6s} {'work':>6s} {'ms':>9s} {'pictures/s':>11s} {'peak GiB':>9s}")  # noqa: T201
    for name, (seconds, busy, peak) in found.items():
        ratios = f"{seconds / base:6.2f} {busy / work:6.2f}"
        print(f"{name:40s} {ratios} {seconds * 1e3:9.1f} {given.batch / seconds:11.1f} {peak:9.2f}")  # noqa: T201


if __name__ == "__main__":
    main()
