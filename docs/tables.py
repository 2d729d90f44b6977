"""Write docs/methods.md from the registry: python docs/tables.py. A test keeps the two equal."""

from __future__ import annotations

from pathlib import Path

import patchlight as pl
from patchlight.core.registry import Method

PAGE = Path(__file__).parent / "methods.md"
HEAD = """# Methods

Made by `python docs/tables.py` from the signatures and docstrings in `src/patchlight/methods`. Cost is in passes for each
picture at the default settings. Notation: A attention after softmax, S before it, l block, h head, y the explained score,
X tokens.
"""


def page() -> str:
    return HEAD + "".join(section(m) for m in sorted(pl.methods().values(), key=lambda m: (m.family, m.name)))


def section(method: Method) -> str:
    defaults = {name: s.default for name, s in method.settings.items()}
    facts = [f"*{method.family}*", f"needs {', '.join(method.needs) or 'nothing'}", str(method.cost(defaults))]
    facts += ["class-blind"] * method.class_blind + ["draws at random"] * method.stochastic
    rows = "".join(f"| `{s.name}` | `{s.default}` | {s.described.replace('|', 'or')} |\n" for s in method.settings.values())
    table = f"\n| setting | default | takes |\n|---|---|---|\n{rows}" if rows else ""
    return f"\n## {method.name}\n\n{' · '.join(facts)}. {method.paper}.\n\n`{method.equation}`\n\n{method.description}\n{table}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
