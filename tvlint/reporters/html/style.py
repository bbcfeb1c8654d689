"""The style sheet of the HTML page: system fonts, light and dark, printable."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --soft: #59636e; --line: #d5dae0; --page: #f6f7f9; --card: #fff;
  --good: #1a7f37; --bad: #c2232d; --doubt: #9a6700; --note: #0969da; --forward: #7db4e8; --backward: #f0b37e;
  --other: #b9c0c8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaef; --soft: #9aa4af; --line: #363d46; --page: #12161b;
  --card: #1b2027;
  --good: #4cc26a; --bad: #ff6b70; --doubt: #e0ad3a; --note: #66aaff; --forward: #2f6ea8; --backward: #a8652a;
  --other: #4a525c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 2rem 1.5rem; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
header { display: flex; flex-wrap: wrap; gap: 0 1rem; align-items: baseline; border-bottom: 1px solid var(--line);
  margin-bottom: 1.5rem; }
h1 { font-size: 1.5rem; margin: 0; flex: none; max-width: 100%; } h2 { font-size: 1.1rem; margin: 2rem 0 .75rem; }
h3 { font-size: 1rem; margin: 0 0 .5rem; }
h4 { font-size: .95rem; margin: 0 0 .5rem; font-weight: 600; }
header p, footer, .soft { color: var(--soft); } footer { margin-top: 2rem; font-size: .85rem; }
code, pre, svg text { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .88em; }
code { display: inline-block; max-width: 100%; }
article { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--edge, var(--line));
  border-radius: 6px; padding: 1rem 1.25rem; margin: 0 0 1rem; }
details { margin-top: .75rem; }
article article { margin: 1rem 0 0; background: var(--page); }
.good { --edge: var(--good); } .bad { --edge: var(--bad); } .doubt { --edge: var(--doubt); }
.note { --edge: var(--note); }
.badge { display: inline-block; color: var(--card); background: var(--edge); border-radius: 4px; padding: 0 .5em;
  margin-right: .5em;
  font-size: .8rem; font-weight: 600; text-transform: uppercase; letter-spacing: .04em; }
.rule { color: var(--soft); white-space: nowrap; }
svg.bar { border-radius: 3px; background: var(--other); margin: .75rem 0 .25rem; }
.bar rect { stroke: none; } 
.bar .good { fill: var(--good); } .bar .bad { fill: var(--bad); } .bar .doubt { fill: var(--doubt); }
pre { margin: .5rem 0; padding: .5rem .75rem; border: 1px solid var(--line); border-radius: 4px;
  background: var(--page); overflow-x: auto; }
article article pre { background: var(--card); }
pre .number { color: var(--soft); user-select: none; } mark { background: none; color: var(--edge); font-weight: 700;
  text-decoration: underline wavy; text-underline-offset: .25em; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)); gap: .75rem; margin: .75rem 0; }
.pair > div { border: 1px solid var(--edge); border-radius: 4px; padding: .5rem .75rem; background: var(--card); }
.pair b { display: block; font-size: .8rem; color: var(--edge); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .5rem 0; }
dt { color: var(--soft); } dd { margin: 0; }
ol.trail { padding-left: 1.2rem; margin: .5rem 0; } .trail .first { color: var(--bad); font-weight: 600; }
.scroll { overflow-x: auto; } svg { display: block; margin: .5rem 0; } svg text { fill: var(--ink); font-size: 11px; }
svg .axis { fill: var(--soft); } svg rect { fill: var(--other); stroke: var(--card); } svg .wrong { fill: var(--bad); }
svg text.on { fill: #fff; font-weight: 700; } svg .forward { fill: var(--forward); }
svg .backward { fill: var(--backward); } svg .refuted { fill: var(--bad); } svg .unknown { fill: var(--doubt); }
.scene table { border-collapse: collapse; margin: .75rem 0; font-size: .85rem; }
.scene caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
.scene th, .scene td { border-top: 1px solid var(--line); padding: .4rem .9rem .4rem .7rem; text-align: left;
  white-space: nowrap; }
.scene .blamed th { color: var(--bad); box-shadow: inset 3px 0 var(--bad); }
.scene figure { display: inline-flex; gap: .5rem; align-items: center; margin: 0 1.2rem 0 0; vertical-align: middle; }
.scene figcaption { line-height: 1.3; } .scene svg { margin: 0; } .scene .arrow { margin-right: .9rem; }
.scene .lacks { color: var(--doubt); font-weight: 600; } .scene .blamed .lacks { color: var(--bad); }
svg .whole { fill: none; stroke: var(--soft); } svg .held { fill: var(--forward); } svg .lacking { fill: var(--doubt); }
svg .blamed .lacking, .blamed svg .lacking { fill: var(--bad); }
.key.held { background: var(--forward); } .key.lacking { background: var(--doubt); }
table.change { border-collapse: collapse; } .change th, .change td { text-align: left; padding: .2rem 1.5rem .2rem 0; }
.change th { color: var(--soft); font-weight: 400; padding-top: .6rem; } .change td:last-child { font-weight: 600; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .35em 0 1em; }
.key.forward { background: var(--forward); } .key.backward { background: var(--backward); }
.key.other { background: var(--other); }
.key.wrong, .key.refuted { background: var(--bad); } .key.unknown { background: var(--doubt); }
.key:first-child { margin-left: 0; }
@media (max-width: 40rem) { body { padding: 1rem .75rem; } article { padding: .75rem; }
  .scene table, .scene tbody, .scene tr, .scene th, .scene td { display: block; } .scene caption { display: block; }
  .scene th, .scene td { border: 0; padding: .2rem .5rem; white-space: normal; }
  .scene tr { border-top: 1px solid var(--line); }
  .scene figure { display: flex; margin: .3rem 0; } .scene .blamed { box-shadow: inset 3px 0 var(--bad); }
  .scene .blamed th { box-shadow: none; } }
@media print { body { max-width: none; background: none; } article { break-inside: avoid; } }
"""
