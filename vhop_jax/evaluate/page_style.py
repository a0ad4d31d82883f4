"""Holds the style sheet of the report's HTML page."""

PAGE_STYLE = """
:root{--ink:#1c2128;--faint:#5a6270;--paper:#fff;--card:#f5f6f8;
--line:#d9dde3;--accent:#2f62c9;--good:#147a43;--bad:#c62f3a}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--faint:#a3abb8;
--paper:#14171c;--card:#1d2128;--line:#343b46;--accent:#6b9bff;
--good:#4cc585;--bad:#f0727b}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px 20px 80px}
h1{font-size:clamp(26px,5vw,40px);line-height:1.15;margin:16px 0 12px;
letter-spacing:-.02em}
h2{font-size:22px;margin:0 0 12px;letter-spacing:-.01em}
h3{font-size:16px;margin:0 0 4px}
h4{font-size:13px;font-weight:600;margin:14px 0 6px;color:var(--faint)}
p{margin:0 0 12px;max-width:75ch}
section{margin-top:48px}
.lead{font-size:18px}
.small,small{font-size:13px;color:var(--faint)}
.tiles{display:grid;gap:12px;
grid-template-columns:repeat(auto-fit,minmax(150px,1fr))}
.tile{background:var(--card);border-radius:10px;padding:14px 16px}
.tile span{display:block;font-size:13px;color:var(--faint)}
.tile b{font-size:34px;font-weight:650;line-height:1.2;
font-variant-numeric:tabular-nums}
.tile small{font-size:16px;font-weight:400}
.charts{display:grid;gap:28px 40px;margin-bottom:20px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr))}
.charts svg{width:100%;max-width:520px;height:auto;display:block}
.scroll{overflow-x:auto;margin-bottom:12px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;
min-width:100%}
th,td{padding:7px 10px;text-align:right;vertical-align:top;
border-bottom:1px solid var(--line)}
thead th{font-size:13px;font-weight:600;color:var(--faint);
vertical-align:bottom;line-height:1.3}
tbody th,.run th{text-align:left;font-weight:500;position:sticky;left:0;
background:var(--paper);min-width:130px}
tbody th i{font-weight:400;color:var(--faint)}
td small{display:block;white-space:nowrap}
td b{font-weight:750}
.bar,thead th.bar{text-align:left}
.bar{min-width:190px;white-space:nowrap}
.track{display:inline-block;width:120px;height:12px;margin-right:8px}
.track div{height:12px;border-radius:2px;background:var(--accent)}
.run td{text-align:left;overflow-wrap:anywhere}
code{font:13px/1.5 ui-monospace,Menlo,Consolas,monospace}
article{background:var(--card);border-radius:12px;padding:16px 18px 18px;
margin-bottom:18px;border-left:5px solid var(--line)}
article.right{border-color:var(--good)}
article.wrong{border-color:var(--bad)}
.ask{font-size:15px;margin:0}
.strip{display:grid;gap:12px;
grid-template-columns:repeat(auto-fill,minmax(150px,1fr))}
figure{margin:0;min-width:0}
.tag,.key{background:var(--kind);color:#fff;font-size:13px;font-weight:600}
.tag{border-radius:6px 6px 0 0;padding:1px 8px;white-space:nowrap;
overflow:hidden;text-overflow:ellipsis}
figure.rejected img{border-style:dashed;opacity:.75}
figure img{display:block;width:100%;border:4px solid var(--kind);
border-top:0;border-radius:0 0 6px 6px;background:var(--line)}
figcaption{font-size:12.5px;line-height:1.35;color:var(--faint);
margin-top:5px}
.legend{display:flex;flex-wrap:wrap;gap:8px}
.key{border-radius:6px;padding:1px 9px}
dl{display:grid;grid-template-columns:minmax(120px,220px) 1fr;gap:8px 20px;
margin:0}
dt{font-weight:600}dd{margin:0;max-width:75ch}
@media(max-width:560px){main{padding:12px 14px 60px}
.strip{grid-template-columns:repeat(2,1fr)}
article{padding:12px}dl{display:block}dd{margin-bottom:10px}
section{margin-top:36px}
th,td{padding:6px;font-size:14px}tbody th{min-width:88px}
td small{font-size:11.5px}.track{width:56px}.bar{min-width:0}}
@media print{body{background:#fff}article,figure{break-inside:avoid}}
"""
