// A sweep as one page: its document lies in it, a script draws it. Needs no network.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/escape_xml.h"
#include "core/units.h"
#include "training/lab/sweep.h"

namespace trident {
namespace {

constexpr const char* sweep_style = R"css(
:root{color-scheme:light dark;--back:#fff;--text:#1c1c1c;--dim:#5c5c5c;--line:#d4d4d4;--card:#fafafa;
--c0:#0072b2;--c1:#b04a00;--c2:#00795a;--c3:#a8447f;--c4:#946200;--c5:#2a7fb0;--bad:#b00020}
@media (prefers-color-scheme:dark){:root{--back:#15171a;--text:#e8e8e8;--dim:#a8a8a8;--line:#3a3d42;
--card:#1c1f23;--c0:#56b4e9;--c1:#f08a4b;--c2:#35c79a;--c3:#e39ac5;--c4:#e6b54a;--c5:#8fd0ff;
--bad:#ff7b8a}}
@media print{:root{--back:#fff;--text:#000;--dim:#444;--line:#bbb;--card:#fff;--c0:#0072b2;
--c1:#b04a00;--c2:#00795a;--c3:#a8447f;--c4:#946200;--c5:#2a7fb0;--bad:#b00020}
.screen{display:none}figure,tr{break-inside:avoid}.table,.wide{overflow:visible}
.table table{font-size:8px;white-space:normal}.table td,.table th{padding:2px 3px}.wide svg{min-width:0}}
*{box-sizing:border-box}
body{font:15px/1.45 Helvetica,Arial,sans-serif;color:var(--text);background:var(--back);margin:0 auto;
padding:16px;max-width:1500px}
h1{font-size:22px;margin:0 0 4px}h2{font-size:17px;margin:26px 0 8px}p{margin:4px 0}.dim{color:var(--dim)}
.loud{color:var(--bad);font-weight:bold}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:14px}
figure{margin:0;padding:10px;border:1px solid var(--line);border-radius:6px;background:var(--card);
min-width:0}
figcaption{font-weight:bold;margin-bottom:2px}figure p{font-size:13px}
svg{display:block;width:100%;height:auto}svg text{fill:var(--text);font-size:12px}
.wide{overflow-x:auto}.wide svg{min-width:640px;background:#fff}.wide svg text{fill:revert}
input{font:inherit;padding:5px 8px;width:min(100%,420px);color:inherit;background:var(--card);
border:1px solid var(--line);border-radius:5px}
.table{overflow-x:auto;margin-top:8px}table{border-collapse:collapse;font-size:13px;white-space:nowrap}
th,td{padding:4px 9px;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--back)}
#table td:first-child{white-space:normal;min-width:110px;max-width:max(40vw,110px)}
@media print,(min-width:900px){#table td:first-child{white-space:nowrap;max-width:none}}
th button{font:inherit;font-weight:bold;color:inherit;background:none;border:0;padding:0;cursor:pointer}
td.text{white-space:normal;text-align:left;min-width:220px}
)css";

constexpr const char* sweep_script = R"js(
'use strict';
const sweep = JSON.parse(document.getElementById('data').textContent);
const points = sweep.points.filter(p => p.step_ms !== undefined);
const alike = points.filter(p => p.efficiency !== undefined);  // of the same work
const colour = i => `var(--c${i % 6})`;
const escape = s => String(s).replace(/[&<>"]/g, c => ({'&':'&amp;','<':'&lt;','>':'&gt;','"':'&quot;'}[c]));
const number = v => v === null || v === undefined ? '' : Number.isInteger(v) ? String(v) : Math.abs(v) >= 1000 ? v.toFixed(0)
  : Math.abs(v) >= 10 ? v.toFixed(1) : v.toPrecision(3);
const mib = bytes => bytes / 1048576;
const speed = p => p.tokens_per_second.all;
// Without what all points share.
const words = p => p.point.split(' '), first = sweep.points.find(p => p.point.includes('='));
const shared = new Set(first ? words(first).filter(w => sweep.points.every(p => !p.point.includes('=') || words(p).includes(w))) : []);
const short = p => {
  const named = words(p).filter(w => !shared.has(w)).join(' ') || p.point;
  const text = named.replace('schedule=', '').replace('micro_batch_size', 'mbs').replace('global_batch_size', 'gbs');
  return text.length > 46 ? text.slice(0, 45) + '…' : text;
};

// --- the table ---
const columns = [
  ['point', p => p.point, 'text'], ['ranks', p => p.ranks], ['ms a step', p => p.step_ms],
  ...(sweep.predicted_for ? [['predicted ms', p => p.predicted_ms], ['median ms', p => p.median_ms]] : []),
  ['tokens/s', p => p.tokens_per_second && speed(p)],
  ['± %', p => p.tokens_per_second && 50 * (p.tokens_per_second.most - p.tokens_per_second.least) / speed(p)],
  ['efficiency', p => p.efficiency], ['MFU %', p => p.mfu && 100 * p.mfu],
  ['bubble %', p => p.bubble_ratio !== undefined ? 100 * p.bubble_ratio : undefined],
  ['by the clock %', p => p.bubble_ratio_wall !== undefined ? 100 * p.bubble_ratio_wall : undefined],
  ['predicted bubble %', p => p.bubble_predicted !== undefined ? 100 * p.bubble_predicted : undefined],
  ['MiB a rank', p => p.peak_memory && mib(p.peak_memory)], ['planned MiB', p => mib(p.planned_memory)],
  ...[...new Set(points.flatMap(p => Object.keys(p.bytes_sent)))].map(group => [`MiB sent, ${group}`, p => p.bytes_sent && mib(p.bytes_sent[group] || 0)]),
  ['loss', p => p.loss], ['', p => p.loss_differs ? 'LOSS DIFFERS' : p.status === 'ok' ? (p.not_compared ? `not held against the prediction: ${p.not_compared}` : '') : `${p.status}: ${p.reason}`, 'text']];
let sorted = 2, up = true;
function table() {
  const wanted = document.getElementById('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = sweep.points.filter(p => {
    const text = `${p.point} ${p.schedule} ${p.status}`.toLowerCase();
    return wanted.every(word => text.includes(word));
  });
  const key = columns[sorted][1];
  rows.sort((a, b) => {
    const x = key(a), y = key(b);
    if (x === undefined || x === null) return 1;
    if (y === undefined || y === null) return -1;
    return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
  });
  const head = columns.map(([name], i) =>
    `<th${i === sorted ? ` aria-sort="${up ? 'ascending' : 'descending'}"` : ''}><button data-i="${i}">${escape(name)}${i === sorted ? (up ? ' ▲' : ' ▼') : ''}</button></th>`).join('');
  const body = rows.map(p => '<tr>' + columns.map(([name, of, kind]) => {
    const value = of(p);
    const loud = value === 'LOSS DIFFERS' ? ' loud' : '';
    return kind === 'text' ? `<td class="${name === '' ? 'text' : ''}${loud}">${escape(value)}</td>`
      : `<td>${name === 'loss' && value !== undefined && value !== null ? value.toFixed(5) : number(value)}</td>`;
  }).join('') + '</tr>').join('');
  document.getElementById('table').innerHTML = `<table><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table>`;
}
document.getElementById('filter').addEventListener('input', table);
document.getElementById('table').addEventListener('click', event => {
  const button = event.target.closest('button');
  if (!button) return;
  const i = Number(button.dataset.i);
  up = i === sorted ? !up : true;
  sorted = i;
  table();
});

// --- charts ---
const W = 560, H = 320, L = 62, R = 14, T = 12, B = 42;
const extent = (values, zero) => {
  let low = Math.min(...values), high = Math.max(...values);
  if (zero) low = Math.min(0, low);
  if (high === low) high = low + (Math.abs(low) || 1);
  return [low, high + 0.04 * (high - low)];
};
function ticks(low, high, count) {
  const power = 10 ** Math.floor(Math.log10((high - low) / count));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => (high - low) / s <= count);
  const list = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * step; v += step) list.push(Math.abs(v) < 1e-9 * step ? 0 : v);
  return list;
}
// A frame with axes; `log`: powers of two along x.
function frame(xs, ys, xName, yName, log) {
  const f = log ? Math.log2 : v => v;
  let [x0, x1] = extent(xs.map(f), !log);
  if (log && new Set(xs).size === 1) [x0, x1] = [f(xs[0]) - 1, f(xs[0]) + 1];
  const [y0, y1] = extent(ys, true);
  const x = v => L + (f(v) - x0) / (x1 - x0) * (W - L - R), y = v => H - B - (v - y0) / (y1 - y0) * (H - T - B);
  let svg = '';
  for (const v of ticks(y0, y1, 6)) svg += `<path d="M${L} ${y(v)}H${W - R}" stroke="var(--line)"/><text x="${L - 6}" y="${y(v) + 4}" text-anchor="end">${number(v)}</text>`;
  const along = log ? [...new Set(xs)] : ticks(x0, x1, 7);
  for (const v of along) svg += `<text x="${x(v)}" y="${H - B + 16}" text-anchor="middle">${log ? v : number(v)}</text>`;
  svg += `<text x="${(L + W - R) / 2}" y="${H - 6}" text-anchor="middle">${escape(xName)}</text><text x="14" y="${(T + H - B) / 2}" text-anchor="middle" transform="rotate(-90 14 ${(T + H - B) / 2})">${escape(yName)}</text>`;
  return {x, y, svg};
}
const mark = (at, p, x, y, i, hollow) => `<circle class="mark" cx="${at.x(x)}" cy="${at.y(y)}" r="4.5" fill="${hollow ? 'none' : colour(i)}" stroke="${colour(i)}" stroke-width="1.6"><title>${escape(p.point)}: ${number(x)}, ${number(y)}</title></circle>`;
const line = (at, list, i, dash) => `<path class="mark" d="${list.map(([x, y], k) => `${k ? 'L' : 'M'}${at.x(x)} ${at.y(y)}`).join('')}" fill="none" stroke="${i < 0 ? 'var(--dim)' : colour(i)}" stroke-width="1.8" stroke-dasharray="${dash || 'none'}"/>`;
const legend = names => '<p>' + names.map(([name, i]) => `<span style="color:${i < 0 ? 'var(--dim)' : colour(i)}">${i < 0 ? '┄' : '●'} ${escape(name)}</span>`).join(' &nbsp; ') + '</p>';
const svgOf = (inner, height) => `<svg viewBox="0 0 ${W} ${height || H}" role="img">${inner}</svg>`;
function draw(id, make) {
  const figure = document.getElementById(id);
  const body = make();
  figure.insertAdjacentHTML('beforeend', body || '<p class="dim">No point tells anything of this.</p>');
  figure.dataset.drawn = body ? 'yes' : 'empty';
}

draw('scaling', () => {
  if (!alike.length) return '';
  const points = alike, base = points[0], axes = Object.keys(base.axes);
  const families = axes.map(axis => [axis + ' alone', p => axes.every(a => a === axis || p.axes[a] === 1)]);
  families.push(['best of all', () => true]);
  const series = families.map(([name, of]) => {
    const best = new Map();
    for (const p of points) if (of(p)) { const old = best.get(p.processors); if (!old || speed(p) > speed(old)) best.set(p.processors, p); }
    return [name, [...best.values()].sort((a, b) => a.processors - b.processors)];
  });
  const at = frame(points.map(p => p.processors), points.map(speed).concat(Math.max(...points.map(p => p.processors)) / base.processors * speed(base)), 'cores or GPUs', 'tokens/s', true);
  const ns = [...new Set(points.map(p => p.processors))].sort((a, b) => a - b);
  let svg = at.svg + line(at, ns.map(n => [n, n / base.processors * speed(base)]), -1, '5 4');
  series.forEach(([name, list], i) => { svg += line(at, list.map(p => [p.processors, speed(p)]), i); for (const p of list) svg += mark(at, p, p.processors, speed(p), i); });
  return legend([['ideal', -1], ...series.map(([name], i) => [name, i])]) + svgOf(svg);
});

draw('parts', () => {
  const all = points.filter(p => p.parts_ms), most_rows = 30;
  const list = all.length > most_rows ? [...all].sort((a, b) => speed(b) - speed(a)).slice(0, most_rows) : all;
  if (!list.length) return '';
  const names = ['products', 'kernels', 'waiting', 'rest'], row = 18;
  const label = 14 + 6.8 * Math.max(...list.map(p => short(p).length));
  const total = p => names.reduce((sum, n) => sum + (p.parts_ms[n] || 0), 0), most = Math.max(...list.map(total));
  let svg = '';
  list.forEach((p, k) => {
    let x = label;
    svg += `<text x="${label - 6}" y="${k * row + 13}" text-anchor="end" style="font-size:11px">${escape(short(p))}</text>`;
    names.forEach((n, i) => { const w = (p.parts_ms[n] || 0) / most * (W - label - 50); svg += `<rect class="mark" x="${x}" y="${k * row + 3}" width="${w}" height="${row - 5}" fill="${colour(i)}"><title>${escape(p.point)}: ${n} ${number(p.parts_ms[n] || 0)} ms</title></rect>`; x += w; });
    svg += `<text x="${x + 4}" y="${k * row + 13}" style="font-size:11px">${number(total(p))}</text>`;
  });
  const timed = list.some(p => p.parts_ms.kernels);
  const told = timed ? [['products', 0], ['other kernels', 1], ['waiting for the pipeline', 2], ['communication and the rest', 3]]
    : [['waiting for the pipeline', 2], ['kernels, communication and the rest, not told apart on a GPU', 3]];
  return legend(told) + `<p class="dim">ms of a step, mean over ranks, by the wall clock${list.length < all.length ? `; the ${list.length} fastest of ${all.length} points` : ''}</p>` + svgOf(svg, list.length * row + 6);
});

draw('memory', () => {
  if (!points.length) return '';
  const all = points.flatMap(p => [mib(p.peak_memory), mib(p.planned_memory)]);
  const at = frame(all, all, 'planned, MiB of the largest rank', 'measured, MiB');
  const most = Math.max(...all);
  return legend([['equal', -1]]) + svgOf(at.svg + line(at, [[0, 0], [most, most]], -1, '5 4') + points.map(p => mark(at, p, mib(p.planned_memory), mib(p.peak_memory), 0)).join(''));
});

draw('bubble', () => {
  const depth = p => p.axes.pp || 1, list = points.filter(p => depth(p) > 1);
  if (!list.length) return '';
  const depths = [...new Set(list.map(depth))].sort((a, b) => a - b);
  const at = frame(list.map(p => p.micro_batches), list.flatMap(p => [100 * p.bubble_ratio, 100 * p.bubble_predicted]), 'micro-batches m', '% of an iteration', true);
  let svg = at.svg;
  for (const p of list) { const i = depths.indexOf(depth(p)); svg += mark(at, p, p.micro_batches, 100 * p.bubble_ratio, i) + mark(at, p, p.micro_batches, 100 * p.bubble_predicted, i, true); }
  return legend(depths.map((d, i) => [`p = ${d}`, i])) + '<p class="dim">full: measured by CPU time; hollow: predicted by the schedule</p>' + svgOf(svg);
});

draw('pareto', () => {
  const points = alike;
  if (!points.length) return '';
  const at = frame(points.map(p => mib(p.peak_memory)), points.map(p => 1e6 / speed(p)), 'MiB of the largest rank', 'seconds a million tokens');
  const ordered = [...points].sort((a, b) => a.peak_memory - b.peak_memory || speed(b) - speed(a)), front = [];
  for (const p of ordered) if (!front.length || speed(p) > speed(front[front.length - 1])) front.push(p);
  return legend([['on the front', 1], ['others', 0]]) + svgOf(at.svg + line(at, front.map(p => [mib(p.peak_memory), 1e6 / speed(p)]), 1) + points.map(p => mark(at, p, mib(p.peak_memory), 1e6 / speed(p), front.includes(p) ? 1 : 0)).join(''));
});

if (sweep.predicted_for) draw('predicted', () => {
  const list = points.filter(p => p.predicted_ms !== undefined && p.compared_ms !== undefined);
  if (!list.length) return '';
  const all = list.flatMap(p => [p.predicted_ms, p.compared_ms]), at = frame(all, all, 'predicted ms a step', 'measured ms, median'), most = Math.max(...all);
  return legend([['equal', -1]]) + svgOf(at.svg + line(at, [[0, 0], [most, most]], -1, '5 4') + list.map(p => mark(at, p, p.predicted_ms, p.compared_ms, 0)).join(''));
});
table();
document.documentElement.dataset.ready = 'yes';
)js";

std::string sweep_figure(const std::string& id, const std::string& caption) {
  return fmt::format("<figure id=\"{}\"><figcaption>{}</figcaption></figure>\n", id,
                     escape_xml(caption));
}

// A text that a script element may hold: no "<" is a part of JSON's own syntax.
std::string embedded(const std::string& json) {
  std::string text;
  for (const char c : json) text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return text;
}

std::string head_of(const nlohmann::ordered_json& sweep) {
  const auto& model = sweep["model"];
  std::string text = fmt::format(
      "<p>{} scaling: {}, {} not valid; {} of {} each, after {} that count not: means over all "
      "of them</p>\n<p class=\"dim\">{}, {} layers, hidden size {}, {} tokens a sequence, "
      "{}</p>\n",
      sweep["scaling"].get<std::string>(),
      counted(static_cast<std::int64_t>(sweep["points"].size()), "point"), sweep["invalid"].size(),
      counted(sweep["repeats"], "run"), counted(sweep["iterations"], "iteration"),
      sweep["warm_up"].get<int>(), escape_xml(model["architecture"].get<std::string>()),
      model["num_layers"].dump(), model["hidden_size"].dump(), model["sequence_length"].dump(),
      escape_xml(model["dtype"].get<std::string>()));
  int differing = 0, failed = 0;
  for (const auto& point : sweep["points"]) {
    differing += point.value("loss_differs", false) ? 1 : 0;
    failed += point["status"] != "ok" && point["status"] != "not run" ? 1 : 0;
  }
  if (differing > 0) {
    text += fmt::format(
        "<p class=\"loud\">The loss of {} differs from that of others that "
        "train the same model on the same samples.</p>\n",
        counted(differing, "point"));
  }
  if (failed > 0)
    text += fmt::format("<p class=\"loud\">{} failed.</p>\n", counted(failed, "point"));
  if (sweep["base_line"].is_string()) {
    text += fmt::format("<p class=\"dim\">efficiency is against {}</p>\n",
                        escape_xml(sweep["base_line"].get<std::string>()));
  }
  if (!sweep["complete"].get<bool>()) {
    text += "<p class=\"loud\">The sweep was stopped before its end.</p>\n";
  }
  return text;
}

// By reason, the most frequent first.
std::string invalid_of(const nlohmann::ordered_json& invalid) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const auto& point : invalid) by_reason[point["reason"]].push_back(point["point"]);
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons(by_reason.begin(),
                                                                        by_reason.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string rows;
  for (const auto& [reason, points] : reasons) {
    std::string names;
    for (const std::string& point : points) names += (names.empty() ? "" : "; ") + point;
    rows += fmt::format(
        "<tr><td>{}</td><td class=\"text\">{}<br><span class=\"dim\">{}</span>"
        "</td></tr>",
        counted(static_cast<std::int64_t>(points.size()), "point"), escape_xml(reason),
        escape_xml(names));
  }
  return rows;
}

std::string machine_of(const nlohmann::ordered_json& machine) {
  std::string rows;
  for (const auto& [name, value] : machine.items()) {
    rows += fmt::format("<tr><td>{}</td><td class=\"text\">{}</td></tr>", escape_xml(name),
                        escape_xml(value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return "<div class=\"table\"><table>" + rows + "</table></div>\n";
}

}  // namespace

std::string sweep_report(const nlohmann::ordered_json& sweep) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<title>Trident sweep</title><style>{}</style></head>\n<body><h1>Trident sweep</h1>\n{}",
      sweep_style, head_of(sweep));
  html += "<div class=\"figures\">\n";
  html += sweep_figure("scaling", "Speed by cores or GPUs");
  html += sweep_figure("parts", "Where a step goes");
  html += sweep_figure("memory", "Memory against the plan");
  html += sweep_figure("bubble", "Bubble by micro-batches and pipeline size");
  html += sweep_figure("pareto", "Time and memory");
  if (!sweep["predicted_for"].is_null()) {
    html += sweep_figure("predicted", "Predicted for " + sweep["predicted_for"].get<std::string>() +
                                          " and measured here");
  }
  html +=
      "</div>\n<h2>Points</h2>\n<input id=\"filter\" class=\"screen\" type=\"search\" "
      "aria-label=\"Filter\" placeholder=\"Filter: words that a point's name has\">\n"
      "<div id=\"table\" class=\"table\"></div>\n";
  if (!sweep["invalid"].empty()) {
    html += "<h2>Not valid</h2>\n<div class=\"table\"><table>";
    html += invalid_of(sweep["invalid"]) + "</table></div>\n";
  }
  for (const auto& timeline : sweep["timelines"]) {
    html += fmt::format(
        "<h2>An iteration of the point that is {}: {}</h2>\n<div class=\"wide\">{}</div>\n",
        timeline["what"].get<std::string>(), escape_xml(timeline["point"].get<std::string>()),
        timeline["svg"].get<std::string>());
  }
  html += "<h2>Machine and versions</h2>\n" + machine_of(sweep["machine"]);
  nlohmann::ordered_json data = sweep;
  data.erase("timelines");
  html += fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n",
                      embedded(data.dump()));
  return html + "<script>" + sweep_script + "</script></body></html>\n";
}

}  // namespace trident
