"""The API as a page: made from its own OpenAPI description, without anything from outside."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

from patchlight.render.page import style

EXAMPLE = """curl --data-binary @cat.jpg -H 'content-type: image/jpeg' http://127.0.0.1:8000/pictures
curl -H 'content-type: application/json' http://127.0.0.1:8000/explain \\
  -d '{"picture": "ID", "methods": ["transformer_mm", "vtranm"], "target": null}'"""


def page_of(described: Mapping[str, Any]) -> str:
    """Every route with what it takes; for programs, /openapi.json has the same."""
    info = described["info"]
    routes = [route(path, verb, one) for path, verbs in described["paths"].items() for verb, one in verbs.items()]
    schemas = [schema(name, one) for name, one in described["components"]["schemas"].items()]
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>patchlight API</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<style>{style()}</style></head><body><header id="bar"><h1>patchlight API {html.escape(info["version"])}</h1></header>
<main class="guide"><section><p>{html.escape(info["description"])} Programs read <a href="/openapi.json">openapi.json</a>.
With a token, send <code>Authorization: Bearer TOKEN</code>.</p><pre>{html.escape(EXAMPLE)}</pre>
<h2>Routes</h2>{"".join(routes)}<h2>What they take</h2>{"".join(schemas)}</section></main></body></html>"""


def route(path: str, verb: str, one: Mapping[str, Any]) -> str:
    body = next(iter(one.get("requestBody", {}).get("content", {}).values()), {}).get("schema", {})
    takes = body.get("$ref", "").rpartition("/")[2]
    query = ", ".join(p["name"] for p in one.get("parameters", []))
    facts = ", ".join(t for t in (f"takes {takes}" if takes else "", f"parameters: {query}" if query else "") if t)
    text = html.escape(one.get("description", ""))
    return f"<h3><code>{verb.upper()} {html.escape(path)}</code></h3><p>{text} {html.escape(facts)}</p>"


def schema(name: str, one: Mapping[str, Any]) -> str:
    return f"<h3>{html.escape(name)}</h3><pre>{html.escape(json.dumps(one.get('properties', one), indent=1))}</pre>"
