"""The report's style sheet: light and dark, on screen and on paper."""

STYLE = """
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2430; --soft: #5d6b7c; --line: #e2e7ed;
  --track: #eef1f5; --blue: #2f6fde; --teal: #12998a; --violet: #7a5cd6; --green: #1c8a4c;
  --red: #c8372d; --amber: #b07208; --red-back: #fdeeec; --amber-back: #fdf4e3;
  --green-back: #e9f7ef; }
@media (prefers-color-scheme: dark) { :root {
  --page: #10151c; --card: #18202a; --ink: #e6ebf1; --soft: #93a1b2; --line: #2a3542;
  --track: #212b37; --blue: #6aa0ff; --teal: #3cc7b6; --violet: #a48cff; --green: #4cc783;
  --red: #ff7a70; --amber: #eab54d; --red-back: #3a1f1e; --amber-back: #362b16;
  --green-back: #16301f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 32px 20px 64px; }
header { margin-bottom: 24px; }
h1 { font-size: 24px; margin: 0 0 2px; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 0; overflow-wrap: anywhere; }
h3 { font-size: 13px; margin: 22px 0 8px; color: var(--soft); font-weight: 600;
  text-transform: uppercase; letter-spacing: .04em; }
p { margin: 4px 0; } .soft { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(110px, 1fr)); gap: 12px;
  margin: 0 0 20px; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 12px 10px; } .tile b { display: block; font-size: 21px; line-height: 1.25;
  font-variant-numeric: tabular-nums; } .tile span { color: var(--soft); font-size: 13px; }
.tile b { overflow-wrap: anywhere; } .tile b.long { font-size: 14px; line-height: 1.9; }
.tile.good b { color: var(--green); } .tile.bad b { color: var(--red); }
.tile.warn b { color: var(--amber); }
.card { padding: 20px 22px; margin: 0 0 20px; }
.head { display: flex; flex-wrap: wrap; gap: 4px 16px; align-items: baseline;
  justify-content: space-between; }
.scroll { overflow-x: auto; }
:focus-visible { outline: 2px solid var(--blue); outline-offset: 2px; border-radius: 3px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { font-size: 12px; color: var(--soft); font-weight: 600; }
tr:last-child td { border-bottom: 0; }
.n { text-align: right; } td.wide { white-space: normal; overflow-wrap: anywhere;
  min-width: 16ch; } .scroll > svg { min-width: 520px; }
.bar { display: inline-block; width: 110px; height: 8px; border-radius: 4px; overflow: hidden;
  background: var(--track); vertical-align: middle; }
.bar i { display: block; height: 100%; background: var(--blue); border-radius: 4px; }
.tag { display: inline-block; border-radius: 999px; padding: 1px 9px; font-size: 12px;
  font-weight: 600; } .tag.error { color: var(--red); background: var(--red-back); }
.tag.warning { color: var(--amber); background: var(--amber-back); }
.tag.fine { color: var(--green); background: var(--green-back); }
.two { display: grid; gap: 0 28px;
  grid-template-columns: repeat(auto-fit, minmax(min(340px, 100%), 1fr)); }
svg { display: block; width: 100%; height: auto; }
.tick { font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; }
/* On a phone the charts shrink, and their words with them. */
@media (max-width: 520px) { .tick { font-size: 17px; } svg { overflow: visible; } }
.row { fill: var(--track); } .grid { stroke: var(--line); stroke-width: 1; }
.sealed { fill: var(--blue); } .active { fill: var(--teal); }
.records { fill: var(--blue); } .stored { fill: var(--teal); } .sizes { fill: var(--violet); }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin: 0 5px 0 12px; }
footer { color: var(--soft); font-size: 13px; }
@media print { body { background: #fff; } .card { break-inside: avoid; } }
"""
