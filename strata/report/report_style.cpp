#include "strata/report/report_parts.h"

namespace strata::report {

// Kinds of work wear the colours of Okabe and Ito, which people with any colour vision tell apart.
const char* style_sheet() {
  return R"css(
:root {
  --ground: #f5f6f8; --card: #fff; --ink: #161a21; --soft: #5c6573; --line: #e4e7ec; --track: #f0f2f5;
  --forward: #0072b2; --recompute: #56b4e9; --backward: #e69f00; --update: #009e73; --send: #a3507f;
  --on-forward: #fff; --hatch: #c3cad4; --validation: #d55e00; --bar: #8590a0; --shadow: 0 1px 2px #161a2112, 0 4px 16px #161a210a;
  --k0: #0072b2; --k1: #e69f00; --k2: #009e73; --k3: #cc79a7; --k4: #56b4e9; --k5: #d55e00; --k6: #8c7bc6; --k7: #b5a642;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0e1116; --card: #171b22; --ink: #e9ecf1; --soft: #98a2b1; --line: #2a303b; --track: #1f252e;
    --forward: #3d9cdb; --recompute: #93d3f7; --backward: #f0b030; --update: #2bbd92; --send: #d68bb4;
    --on-forward: #04131f; --hatch: #414a58; --validation: #f58b4a; --bar: #7d899a; --shadow: none;
    --k0: #3d9cdb; --k1: #f0b030; --k2: #2bbd92; --k3: #d68bb4; --k4: #93d3f7; --k5: #f58b4a; --k6: #a99ae0; --k7: #cfc05a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; -webkit-font-smoothing: antialiased;
}
main { max-width: 1240px; margin: 0 auto; padding: 36px 24px 64px; display: grid; gap: 20px; }
main > * { min-width: 0; }
h1 { font-size: 30px; line-height: 1.2; letter-spacing: -.02em; margin: 0; font-weight: 650; }
h2 { font-size: 17px; letter-spacing: -.01em; margin: 0; font-weight: 620; }
p { margin: 2px 0 0; color: var(--soft); font-size: 14px; }
.brand { display: flex; align-items: center; gap: 8px; margin: 0 0 18px; color: var(--ink); font-weight: 620; letter-spacing: .01em; }
.brand path { fill: var(--forward); }
.brand .second, .brand .third { fill: none; stroke: var(--recompute); stroke-width: 2; stroke-linejoin: round; }
.brand .third { stroke: var(--backward); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 10px 28px; margin: 20px 0 4px; }
dt { color: var(--soft); font-size: 13px; }
dd { margin: 0; overflow-wrap: anywhere; }
.card, .tile { background: var(--card); border: 1px solid var(--line); border-radius: 12px; box-shadow: var(--shadow); }
.card { padding: 20px 24px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 14px; }
.tile { padding: 14px 18px; }
.tile .name, .tile .note { color: var(--soft); font-size: 13px; }
.tile .value { font-size: 27px; line-height: 1.35; font-weight: 620; letter-spacing: -.02em; white-space: nowrap; }
.tile small { font-size: 15px; font-weight: 500; letter-spacing: 0; color: var(--soft); }
.head { display: flex; justify-content: space-between; gap: 16px; align-items: flex-start; }
.tools { display: flex; gap: 6px; flex: none; }
[hidden] { display: none !important; }
button {
  font: inherit; font-size: 13px; color: var(--ink); background: var(--track); border: 1px solid var(--line);
  border-radius: 7px; padding: 3px 11px; cursor: pointer;
}
button:hover { border-color: var(--soft); }
:focus-visible { outline: 2px solid var(--forward); outline-offset: 2px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 14px 0 10px; font-size: 13px; color: var(--soft); }
.key { display: inline-flex; align-items: center; gap: 7px; }
.hint { margin-left: auto; }
.plot svg { display: block; width: 100%; height: auto; }
svg text { font-size: 12px; fill: var(--soft); dominant-baseline: central; }
.axis line { stroke: var(--line); }
.axis text { text-anchor: middle; }
.axis .left { text-anchor: end; }
#timeline .plot svg { user-select: none; touch-action: pan-y; cursor: crosshair; }
#timeline .rank { fill: var(--ink); font-weight: 600; font-size: 13px; }
#timeline .side { text-anchor: end; }
.track { fill: var(--track); }
.forward rect { fill: var(--forward); } .recompute rect { fill: var(--recompute); } .backward rect { fill: var(--backward); }
.update rect { fill: var(--update); } .send rect { fill: var(--send); } .wait rect { fill: url(#hatch); }
.hatch-ground { fill: var(--track); } .hatch-line { fill: var(--hatch); }
.span text { text-anchor: middle; font-size: 11px; font-weight: 600; pointer-events: none; fill: var(--on-forward); }
.span.recompute text, .span.backward text { fill: #1b1300; }
.predicted .span rect { fill-opacity: .45; }
.predicted .wait rect { fill-opacity: .6; }
.predicted .span text { fill: var(--ink); }
.span:hover rect { stroke: var(--ink); stroke-width: 1.5; }
.end line { stroke: var(--ink); stroke-width: 1.25; }
.end.predicted line { stroke-dasharray: 4 3; }
.end text { text-anchor: end; fill: var(--ink); font-size: 11.5px; }
.brush { fill: var(--forward); fill-opacity: .16; pointer-events: none; }
.columns { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 20px; }
#loss path { fill: none; stroke-linejoin: round; stroke-linecap: round; }
.raw { stroke: var(--forward); stroke-opacity: .3; stroke-width: 1; }
path.train { stroke: var(--forward); stroke-width: 2.2; }
path.validation { stroke: var(--validation); stroke-width: 2; }
circle.validation { fill: var(--card); stroke: var(--validation); stroke-width: 2; }
.cursor { stroke: var(--soft); stroke-dasharray: 3 3; visibility: hidden; }
.line { width: 18px; height: 3px; border-radius: 2px; } .line.train { background: var(--forward); } .line.validation { background: var(--validation); }
.box { width: 14px; height: 14px; border-radius: 3px; }
blockquote {
  margin: 16px 0 0; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 372px; overflow: auto;
  font: 16px/1.6 ui-serif, Charter, "Iowan Old Style", Georgia, "Times New Roman", serif;
}
.memory { display: grid; grid-template-columns: max-content minmax(0, 1fr) max-content; gap: 18px 18px; align-items: center; margin-top: 16px; }
.memory .rank { font-weight: 600; font-size: 13px; }
.bars { position: relative; display: grid; gap: 4px; }
.bar { display: flex; height: 22px; background: var(--track); border-radius: 4px; overflow: hidden; }
.bar + .bar { height: 10px; }
.segment { flex: none; box-shadow: inset -1px 0 0 var(--card); } .segment:hover { filter: brightness(1.12); }
.measured.segment, .box.measured { background: var(--bar); } .rest { background: var(--hatch); }
.kind0 { background: var(--k0); } .kind1 { background: var(--k1); } .kind2 { background: var(--k2); } .kind3 { background: var(--k3); }
.kind4 { background: var(--k4); } .kind5 { background: var(--k5); } .kind6 { background: var(--k6); } .kind7 { background: var(--k7); }
#idle .memory { gap: 12px 18px; } #idle .bar, #idle .bar + .bar { height: 16px; } #idle .predicted .segment { opacity: .6; }
.use0 { background: var(--forward); } .use1 { background: var(--update); } .use2 { background: var(--hatch); } .use3 { background: var(--k5); }
.use4 { background: var(--k3); } .use5 { background: var(--k6); } .use6 { background: var(--k7); } .use7 { background: var(--bar); }
.budget { position: absolute; top: -6px; bottom: -6px; border-left: 2px dashed var(--ink); }
.figures { display: grid; font-size: 13px; text-align: right; } .figures em { font-style: normal; color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin-top: 12px; font-size: 14px; }
th, td { text-align: right; padding: 8px 0 8px 28px; border-top: 1px solid var(--line); white-space: nowrap; }
thead th, thead td { border-top: 0; color: var(--soft); font-weight: 500; padding-top: 0; }
tbody th { text-align: left; font-weight: 500; padding-left: 0; width: 99%; }
summary { cursor: pointer; font-weight: 620; }
pre { overflow-x: auto; margin: 14px 0 0; font: 12.5px/1.55 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
#tip {
  position: fixed; z-index: 9; pointer-events: none; white-space: pre-line; max-width: 320px; padding: 8px 11px;
  border-radius: 8px; background: var(--ink); color: var(--ground); font-size: 13px; line-height: 1.45; box-shadow: 0 4px 18px #0004;
}
#tip::first-line { font-weight: 600; }
@media (max-width: 860px) {
  main { padding: 24px 14px 48px; } .columns { grid-template-columns: minmax(0, 1fr); } .card { padding: 16px; } .hint { margin-left: 0; } th, td { padding-left: 14px; }
  .memory { grid-template-columns: max-content minmax(0, 1fr); } .figures { grid-column: 2; text-align: left; margin-top: -10px; }
}
@media print { body { background: none; } .tools, .hint { display: none; } .card, .tile { box-shadow: none; break-inside: avoid; } }
)css";
}

}  // namespace strata::report
