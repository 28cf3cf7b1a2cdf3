"""The style sheet of the report; no style is set anywhere else, so that its policy can forbid all others."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

CSS = """
:root { color-scheme: light; --page: #f4f6f8; --card: #fff; --ink: #1c2733; --soft: #5b6875; --line: #e1e6eb;
  --grid: #eceff3; --accent: #2b6cb8; --completed: #2a7f6f; --failed: #c0392b; --cancelled: #d08a1d;
  --skipped: #9aa7b4; --other: #7d6bb0; --good-ink: #1d6a5b; --bad-ink: #a32a1e; --warn-ink: #8a5500;
  --note: #fff6e2; }
@media screen and (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --page: #12171d; --card: #1a2129; --ink: #e3e9ef; --soft: #98a5b2; --line:
    #2b343e;
    --grid: #252e37; --accent: #6aa5e6; --completed: #4fb39f; --failed: #e8705f; --cancelled: #e0a84a;
    --skipped: #66737f; --other: #a394d6; --good-ink: #74cbb9; --bad-ink: #f08e80; --warn-ink: #ebbd6d;
    --note: #2a2517; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { max-width: 1120px; margin: 0 auto; padding: 36px 24px 48px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
a { color: inherit; text-decoration-color: var(--soft); text-underline-offset: 2px; }
a:hover { color: var(--accent); text-decoration-color: currentColor; }
h1, h2, p, dl, dd, figure { margin: 0; }
h2 { font-size: 16px; font-weight: 650; line-height: 1.3; }
.over { color: var(--soft); overflow-wrap: anywhere; }
h1 { max-width: 30em; margin: 6px 0 8px; font-size: 30px; font-weight: 680; line-height: 1.22; letter-spacing:
  -.012em;
  text-wrap: balance; }
.mark { display: inline-block; margin-left: 8px; padding: 1px 10px; border: 1px solid currentColor;
  border-radius: 12px;
  font-size: 13px; font-weight: 600; }
.good .mark { color: var(--good-ink); } .bad .mark { color: var(--bad-ink); } .warn .mark { color:
  var(--warn-ink); }
.idle .mark { color: var(--soft); }
.lead { max-width: 46em; color: var(--soft); font-size: 17px; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 3px 18px; margin: 20px 0 24px; font-size:
  14px; }
.facts dt { color: var(--soft); }
.facts dd { overflow-wrap: anywhere; }
main { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; }
section { padding: 18px 20px 16px; background: var(--card); border: 1px solid var(--line); border-radius:
  10px; }
.wide { grid-column: 1 / -1; }
.sub { margin: 2px 0 12px; color: var(--soft); font-size: 14px; }
.dim { color: var(--soft); }
.mono { font: 12.5px/1.6 ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; }
.stats { display: flex; flex-wrap: wrap; gap: 4px 28px; margin: 10px 0 14px; }
.stats div { display: flex; flex-direction: column-reverse; }
.stats dt { color: var(--soft); font-size: 13px; }
.stats dd { font-size: 19px; font-weight: 600; font-variant-numeric: tabular-nums; }
svg { display: block; }
.histogram { width: calc(100% - 56px); margin: 10px 12px 0 44px; overflow: visible; }
.tick, .axis { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--grid); } .base { stroke: var(--skipped); }
.bar { fill: var(--accent); }
.share { height: 12px; border-radius: 3px; background: var(--grid); }
.outcomes > .share rect { stroke: var(--card); }
.outcomes > .share { height: 22px; margin: 14px 0 12px; border-radius: 5px; }
.completed { fill: var(--completed); } .failed { fill: var(--failed); } .cancelled { fill: var(--cancelled); }
.skipped { fill: var(--skipped); } .other { fill: var(--other); } .plain { fill: var(--accent); }
.key { display: flex; flex-wrap: wrap; gap: 8px 36px; }
.key div { display: grid; grid-template-columns: 10px auto; gap: 0 9px; align-items: center; }
.key svg { width: 10px; height: 10px; border-radius: 3px; }
.key dt { color: var(--soft); font-size: 14px; }
.key dd { grid-column: 2; font-size: 19px; font-weight: 600; font-variant-numeric: tabular-nums; line-height:
  1.3; }
.key small { color: var(--soft); font-size: 14px; font-weight: 400; }
table { width: 100%; margin-top: 10px; border-collapse: collapse; font-size: 14px; }
th { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); color: var(--soft); font-size: 13px;
  font-weight: 500;
  text-align: left; white-space: nowrap; }
td { padding: 7px 12px 7px 0; border-bottom: 1px solid var(--grid); vertical-align: top; overflow-wrap:
  anywhere; }
tr:last-child > td, .bars th { border-bottom: 0; }
th:last-child, td:last-child { padding-right: 0; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.bars th { width: 1%; padding-right: 14px; color: var(--ink); font-size: 14px; font-weight: 400; }
.bars td { padding-top: 6px; padding-bottom: 6px; border: 0; vertical-align: middle; }
.bars td.number { width: 1%; padding-left: 2px; }
.bars .dim { display: inline-block; min-width: 5.6em; }
.reasons td:nth-child(1) { width: 1%; }
.reasons td:nth-child(2) { width: 16%; padding-top: 12px; }
.reasons p { font-size: 13px; }
.failures td:nth-child(1) { width: 46%; }
.badge { margin-right: 6px; padding: 0 7px; border: 1px solid var(--line); border-radius: 8px; color:
  var(--soft);
  font-size: 12px; }
details { margin-top: 12px; padding: 8px 12px; background: var(--note); border-radius: 7px; font-size: 14px; }
summary { cursor: pointer; font-weight: 600; }
ul { margin: 6px 0 2px; padding-left: 20px; overflow-wrap: anywhere; }
footer { margin-top: 22px; color: var(--soft); font-size: 13px; }
@media screen and (max-width: 720px) {
  body { padding: 22px 14px 32px; }
  main { grid-template-columns: minmax(0, 1fr); gap: 12px; }
  h1 { font-size: 24px; } .lead { font-size: 16px; }
  section { padding: 15px 15px 13px; }
  .facts { column-gap: 12px; }
  .reasons td:nth-child(2), .reasons th:nth-child(2) { display: none; }
  .stats, .key { gap: 8px 24px; }
  .failures, .failures tbody { display: block; }
  .failures thead { display: none; }
  .failures tr { display: block; padding: 9px 0; border-bottom: 1px solid var(--grid); }
  .failures tr:last-child { border-bottom: 0; }
  .failures tbody td:nth-child(n) { display: block; width: auto; padding: 1px 0; border: 0;
    text-align: left; }
  .failures td.number::before { content: "Attempts: "; color: var(--soft); }
  .failures tbody td.number:empty:nth-child(n) { display: none; }
}
@media print {
  :root { --page: #fff; }
  body { max-width: none; padding: 0 1px; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  h1 { font-size: 22px; }
  section { break-inside: avoid; }
  section.long { break-inside: auto; }
  tr { break-inside: avoid; }
}
"""

POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(CSS.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'"
)
