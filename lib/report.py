"""The browsable report: one HTML file with figures, claims, verdicts and provenance; it opens from disk."""

import base64
import csv
import html
import json
import math
from pathlib import Path

from lib import claims, files
from lib.notebook import ROOT
from lib.train import provenance

PAPERS = {
    "000": "Iso-depth scaling laws",
    "001": "Parcae: scaling laws for stable looped language models",
    "002": "Residual scaling of looped Transformers",
    "003": "Looped nanochat",
    "004": "Looped mixture of experts with early exit",
}

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; } figure { margin: 1.5rem 0; }
img { max-width: 100%; height: auto; } figcaption, footer, .where { color: #666; font-size: .85rem; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; } code { font-size: .85em; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid #e3e3e3; }
.verdict { white-space: nowrap; font-weight: 600; } .reproduced { color: #00664b; } .contradicted { color: #a03f00; }
details > summary { cursor: pointer; margin: .5rem 0; } pre { white-space: pre-wrap; font-size: .8rem; }
"""


def build(outputs: Path, profile: str) -> Path:
    """Writes outputs/report/index.html from the figures and findings of a profile, and returns its path."""
    ledger = claims.ledger(ROOT / "params" / "claims.yaml")
    found = claims.findings(outputs / "claims" / profile)
    figures = sorted((outputs / "figures" / profile).glob("*.png"))
    tables = sorted((outputs / "tables" / profile).glob("*.csv"))
    reported = [claim for claim in ledger.values() if claim.id in found]
    opened = [claim for claim in ledger.values() if claim.id not in found]
    counted = {v: sum(f.verdict == v for f in found.values()) for v in sorted({f.verdict for f in found.values()})}
    counts = ", ".join(f"{number} {verdict}" for verdict, number in counted.items())
    parts = [
        f"<h1>Looped language models: the {profile} profile</h1>",
        f"<p>{len(figures)} figures; {len(ledger)} claims, of which {len(reported)} are measured"
        f"{f' ({counts})' if counts else ''} and {len(opened)} open.</p>",
        "<h2>Claims that were measured</h2>",
        _table(
            ("Claim", "Measured (95 % interval of the mean)", "Verdict"),
            [(_statement(c), _measured(found[c.id]), _verdict(found[c.id].verdict)) for c in reported],
        ),
        "<h2>Figures</h2>",
        *(_figure(path) for path in figures),
        "<h2>Tables</h2>",
        *(_table_of(path) for path in tables),
        "<h2>Claims without a measurement yet</h2>",
        f"<details><summary>{len(opened)} claims</summary>",
        _table(("Claim", "Verdict"), [(_statement(c), _verdict(claims.OPEN)) for c in opened]),
        "</details>",
        "<h2>Provenance of this report</h2>",
        f"<pre>{html.escape(json.dumps(provenance(), indent=1))}</pre>",
    ]
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Looped language models ({profile})</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )
    path = outputs / "report" / "index.html"
    with files.replacing(path) as draft:
        draft.write_text(page, encoding="utf-8")
    return path


def _statement(claim: claims.Claim) -> str:
    where = f"{PAPERS[claim.paper]} ({claim.paper}), {claim.where}"
    return (
        f'{html.escape(claim.statement)}<br><span class="where">{html.escape(where)} · <code>{claim.id}</code></span>'
    )


def _measured(finding: claims.Finding) -> str:
    spread = ", ".join(f"{value:.3g}" for value in finding.measured)
    bounds = f" [{finding.low:.3g}, {finding.high:.3g}]" if math.isfinite(finding.high - finding.low) else ""
    note = f"<br>{html.escape(finding.note)}" if finding.note else ""
    seeds = ", ".join(map(str, finding.seeds))
    detail = f"each {finding.per}: {spread} (seeds {seeds})"
    return (
        f"{finding.mean:.3g}{bounds} {html.escape(finding.unit)}{note}"
        f'<br><span class="where">{html.escape(detail)}</span>'
    )


def _verdict(verdict: str) -> str:
    return f'<span class="verdict {verdict.split()[0]}">{html.escape(verdict)}</span>'


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in header)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


def _figure(path: Path) -> str:
    image = base64.b64encode(path.read_bytes()).decode()
    alt = html.escape(path.stem)
    return f'<figure><img alt="{alt}" src="data:image/png;base64,{image}">{_caption(path)}</figure>'


def _table_of(path: Path) -> str:
    header, *rows = csv.reader(path.read_text().splitlines())
    escaped = [tuple(map(html.escape, row)) for row in rows]
    return f"<figure>{_table(tuple(map(html.escape, header)), escaped)}{_caption(path)}</figure>"


def _caption(path: Path) -> str:
    """Where a figure or table came from, from the JSON beside it."""
    stamp = json.loads(path.with_suffix(".json").read_text())
    summary = f"{path.stem} · notebook {stamp['notebook']} · commit {stamp['commit']} · {stamp['device']}"
    return (
        f"<figcaption>{html.escape(summary)}<details><summary>provenance</summary>"
        f"<pre>{html.escape(json.dumps(stamp, indent=1))}</pre></details></figcaption>"
    )
