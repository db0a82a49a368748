'use strict';
// Draws the page from the JSON in it: an SVG for each figure, as wide as the window lets it be.

const json = id => JSON.parse(document.getElementById(id).textContent);
const runs = json('runs');
json('timelines').forEach((list, i) => { runs[i].timelines = list; });
const page = document.getElementById('page');
const several = runs.length > 1;
// The last parts of their paths, where these tell them apart.
const lasts = runs.map(run => run.name.split('/').pop());
runs.forEach((run, r) => { run.label = new Set(lasts).size === runs.length ? lasts[r] : run.name; });

// ---- elements ----

const SVG = 'http://www.w3.org/2000/svg';
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}
const html = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
const pen = document.createElement('canvas').getContext('2d');
pen.font = '12px Helvetica, Arial, sans-serif';
const widest = texts => Math.max(0, ...texts.map(text => pen.measureText(text).width));
const colour = i => `var(--c${i % 6})`;

// ---- numbers ----

function shown(value, unit) {
  if (value === null || value === undefined) return 'not finite';
  const size = Math.abs(value);
  let text;
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) text = value.toExponential(3);
  else if (size >= 1000) text = value.toFixed(0);
  else text = String(+value.toPrecision(5));
  return unit ? `${text} ${unit}` : text;
}
const MIB = 1024 * 1024;
const mib = bytes => bytes / MIB >= 100 ? (bytes / MIB).toFixed(0) : (bytes / MIB).toFixed(2);
function bytes(count) {
  for (const [power, unit] of [[4, 'TiB'], [3, 'GiB'], [2, 'MiB'], [1, 'KiB']]) {
    const size = 1024 ** power;
    if (count >= size) return `${(count / size).toFixed(2)} ${unit}`;
  }
  return `${count} B`;
}

// Round places on an axis from low to high, about `count` of them, and two at least.
function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= raw * 0.999);
  const list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) list.push(i * step);
  return list.length > 1 || count > 8 ? list : ticks(low, high, count + 1);
}
function logTicks(low, high) {
  const list = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e) {
    for (const f of [1, 2, 5]) {
      const value = f * 10 ** e;
      if (value >= low * 0.999 && value <= high * 1.001) list.push(value);
    }
  }
  return list.length >= 2 ? list : ticks(low, high, 5);
}
// As many digits as neighbours need to differ.
function tickText(value, list) {
  const step = list.length > 1 ? Math.min(...list.slice(1).map((v, i) => v - list[i])) : Math.abs(value);
  if (value === 0 || Math.abs(value) < step * 1e-6) return '0';
  if (Math.abs(value) >= 1e7 || step < 1e-6) {
    return value.toExponential(Math.min(4, Math.max(0, Math.ceil(Math.log10(Math.abs(value) / step) - 1e-9))));
  }
  if (list.length < 2) return String(+value.toPrecision(4));
  return value.toFixed(Math.min(8, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9))));
}

// ---- figures ----

const drawings = [];  // what is drawn anew when the window's width changes
function figure(id, caption, draw, wide, note) {
  const canvas = html('div'), legend = html('div', {class: 'legend'});
  const tip = html('div', {class: 'tip', hidden: ''});
  const element = html('figure', {id, class: wide ? 'wide' : null},
    html('figcaption', {}, caption, note ? html('small', {}, ' ' + note) : null), legend, canvas, tip);
  const drawing = {
    element, canvas, legend, tip,
    redraw() {
      const style = getComputedStyle(element);
      const room = element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
      canvas.replaceChildren(draw(Math.max(200, Math.floor(room)), drawing));
    },
  };
  drawings.push(drawing);
  return drawing;
}
function showTip(drawing, event, text) {
  const box = drawing.element.getBoundingClientRect(), tip = drawing.tip;
  tip.textContent = text;
  tip.hidden = false;
  const left = event.clientX - box.left, top = event.clientY - box.top;
  tip.style.top = `${Math.min(top + 12, Math.max(0, box.height - tip.offsetHeight - 4))}px`;
  tip.style.left = `${Math.max(4, left + 14 + tip.offsetWidth > box.width ? left - 14 - tip.offsetWidth : left + 14)}px`;
}
const key = (name, stroke, kind) => html('span', {},
  html('i', {class: kind, style: kind === 'box' ? `background:${stroke}` : `border-color:${stroke}`}), name);

// Dragging over a picture picks a stretch of it; the whole comes back with a double click.
function picks(picture, frame, pick, whole) {
  let from = null, mark = null;
  const place = event => {
    const box = picture.getBoundingClientRect();
    return Math.min(frame.right, Math.max(frame.left, (event.clientX - box.left) * frame.width / box.width));
  };
  picture.addEventListener('pointerdown', event => {
    if (event.pointerType === 'mouse' && event.button !== 0) return;
    from = place(event);
    mark = svg('rect', {class: 'pick', x: from, y: frame.top, width: 0, height: frame.bottom - frame.top});
    picture.append(mark);
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener('pointermove', event => {
    if (from === null) return;
    const to = place(event);
    mark.setAttribute('x', Math.min(from, to));
    mark.setAttribute('width', Math.abs(to - from));
  });
  const end = event => {
    if (from === null) return;
    const to = place(event), begin = from;
    mark.remove();
    from = null;
    if (event.type === 'pointerup' && Math.abs(to - begin) > 6) pick(Math.min(begin, to), Math.max(begin, to));
  };
  picture.addEventListener('pointerup', end);
  picture.addEventListener('pointercancel', end);
  picture.addEventListener('dblclick', whole);
}

// ---- curves ----

const view = {from: null, to: null, smooth: 0, log: false};  // of all curves
function redrawCurves() {
  for (const drawing of drawings) if (drawing.isCurve) drawing.redraw();
}
// An exponential moving average whose beginning isn't drawn to 0.
function smoothed(values, weight) {
  let sum = 0, count = 0;
  return values.map(value => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    count = weight * count + (1 - weight);
    return sum / count;
  });
}
function rolling(values, window) {
  const half = Math.floor(window / 2);
  return values.map((value, i) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, i - half), i + half + 1).filter(v => v !== null);
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
}

// A series: {name, stroke, dashed, x, mean, low, high, marks, points, faint}.
function lineChart(id, caption, series, unit, options = {}) {
  series = series.filter(s => s.x.length > 0);
  const drawing = figure(id, caption, (width, self) => {
    const height = Math.round(Math.min(340, Math.max(220, width * 0.42)));
    const all = series.flatMap(s => s.x);
    const first = Math.min(...all.length ? [all.reduce((a, b) => Math.min(a, b))] : [0]);
    const last = all.length ? all.reduce((a, b) => Math.max(a, b)) : 1;
    let from = view.from === null ? first : Math.max(view.from, first);
    let to = view.to === null ? last : Math.min(view.to, last);
    if (!(to > from)) [from, to] = [first - 0.5, last + 0.5];
    if (!(to > from)) [from, to] = [from - 0.5, to + 0.5];
    const inside = x => x >= from && x <= to;
    // Of what is seen; a curve that leaves the window goes on to its edge.
    let low = Infinity, high = -Infinity;
    const take = value => { if (value !== null && value !== undefined) { low = Math.min(low, value); high = Math.max(high, value); } };
    const curves = series.map(s => {
      const seen = s.x.map((x, i) => i).filter(i => inside(s.x[i]) || (i + 1 < s.x.length && inside(s.x[i + 1])) || (i > 0 && inside(s.x[i - 1])));
      const main = options.smooth && view.smooth > 0 && !s.points ? smoothed(s.mean, view.smooth)
        : s.window > 1 ? rolling(s.mean, s.window) : s.mean;
      const faint = main !== s.mean && !s.low;
      for (const i of seen) {
        if (!inside(s.x[i])) continue;
        take(main[i]);
        if (faint) take(s.mean[i]);
        if (s.low) { take(s.low[i]); take(s.high[i]); }
      }
      return {s, seen, main, faint};
    });
    const log = options.log && view.log && low > 0;
    if (!(high >= low)) [low, high] = [0, 1];
    const constant = high === low;
    const margin = constant ? Math.abs(high) * 0.05 || 1 : (high - low) * 0.04;
    const bottomY = log ? low / (high / low) ** 0.04 : low >= 0 && options.zero ? 0 : low - margin;
    const topY = log ? high * (high / low) ** 0.04 : high + margin;
    const yTicks = constant ? (bottomY === 0 && low > 0 ? [0, low] : [low]) : log ? logTicks(low, high) : ticks(bottomY, topY, Math.max(3, Math.floor(height / 48)));
    const labels = yTicks.map(v => log || constant ? String(+v.toPrecision(log ? 3 : 4)) : tickText(v, yTicks));
    const frame = {width, left: 16 + Math.max(20, widest(labels)), right: width - 10, top: 22, bottom: height - 24};
    const flat = v => log ? Math.log(v) : v;
    const X = x => frame.left + (x - from) / (to - from) * (frame.right - frame.left);
    const Y = y => frame.bottom - (flat(y) - flat(bottomY)) / (flat(topY) - flat(bottomY)) * (frame.bottom - frame.top);
    const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `${id} over the iterations`});
    yTicks.forEach((v, i) => picture.append(
      svg('path', {class: 'grid', d: `M${frame.left} ${Y(v).toFixed(1)}H${frame.right}`}),
      svg('text', {x: frame.left - 6, y: (Y(v) + 4).toFixed(1), 'text-anchor': 'end'}, labels[i])));
    const xTicks = ticks(from, to, Math.max(2, Math.floor(width / 110))).filter(v => Number.isInteger(v) || to - from < 2 && false);
    for (const v of xTicks.length ? xTicks : [Math.round((from + to) / 2)]) {
      const text = v >= 1e7 ? v.toExponential(1) : String(v);
      const half = 3.6 * text.length;
      picture.append(svg('text', {x: Math.min(frame.right - half, Math.max(frame.left + half, X(v))).toFixed(1), y: height - 8, 'text-anchor': 'middle'}, text));
    }
    picture.append(svg('text', {class: 'dim', x: 4, y: 13}, unit || ''),
      svg('text', {class: 'dim', x: frame.right, y: 13, 'text-anchor': 'end'}, 'iteration'));
    const clip = `clip-${id}`;
    picture.append(svg('clipPath', {id: clip}, svg('rect', {x: frame.left, y: frame.top - 2, width: frame.right - frame.left, height: frame.bottom - frame.top + 4})));
    const lines = svg('g', {'clip-path': `url(#${clip})`});
    const path = (seen, xs, values) => {
      let d = '', down = false;
      for (const i of seen) {
        const fits = values[i] !== null && (!log || values[i] > 0);
        if (fits) d += `${down ? 'L' : 'M'}${X(xs[i]).toFixed(1)} ${Y(values[i]).toFixed(1)}`;
        down = fits;
      }
      return d;
    };
    for (const {s, seen, main, faint} of curves) {
      if (s.low) {
        const good = seen.filter(i => s.low[i] !== null && (!log || s.low[i] > 0));
        const up = good.map(i => `${X(s.x[i]).toFixed(1)} ${Y(s.high[i]).toFixed(1)}`);
        const down = good.map(i => `${X(s.x[i]).toFixed(1)} ${Y(s.low[i]).toFixed(1)}`).reverse();
        if (up.length) lines.append(svg('path', {class: 'range', d: `M${up.concat(down).join('L')}Z`, fill: s.stroke, 'fill-opacity': 0.22, stroke: s.stroke, 'stroke-opacity': 0.5}));
      }
      if (faint) lines.append(svg('path', {d: path(seen, s.x, s.mean), fill: 'none', stroke: s.stroke, 'stroke-opacity': 0.3}));
      lines.append(svg('path', {class: 'series', d: path(seen, s.x, main), fill: 'none', stroke: s.stroke, 'stroke-width': 1.7, 'stroke-linejoin': 'round', 'stroke-dasharray': s.dashed ? '6 4' : null}));
      const marked = seen.filter(i => inside(s.x[i]) && main[i] !== null);
      if (s.points || marked.length <= 30) {
        for (const i of marked) {
          if (!log || main[i] > 0) lines.append(svg('circle', {cx: X(s.x[i]).toFixed(1), cy: Y(main[i]).toFixed(1), r: marked.length === 1 ? 5 : 2.6, fill: s.stroke}));
        }
      }
    }
    picture.append(lines);
    const gaps = [...new Set(series.flatMap(s => s.marks || []))].filter(inside);
    if (gaps.length) {
      picture.append(svg('path', {class: 'not-finite', d: gaps.map(x => `M${X(x).toFixed(1)} ${frame.bottom - 8}v8`).join('')}));
    }
    self.legend.replaceChildren(...(series.length > 1 || several ? series.map(s => key(s.name, s.stroke, s.dashed ? 'dashed' : '')) : []),
      ...(series.some(s => s.marks) ? [key('not finite', 'var(--bad)', '')] : []));
    const cursor = svg('path', {class: 'cursor', d: ''});
    picture.append(cursor);
    picture.addEventListener('pointermove', event => {
      const box = picture.getBoundingClientRect();
      const at = from + ((event.clientX - box.left) * width / box.width - frame.left) / (frame.right - frame.left) * (to - from);
      if (at < from || at > to) { self.tip.hidden = true; cursor.setAttribute('d', ''); return; }
      let nearest = null;
      const rows = curves.map(({s, seen, main}) => {
        const i = seen.reduce((best, k) => best === null || Math.abs(s.x[k] - at) < Math.abs(s.x[best] - at) ? k : best, null);
        if (i === null) return '';
        if (nearest === null || Math.abs(s.x[i] - at) < Math.abs(nearest - at)) nearest = s.x[i];
        const value = shown(s.mean[i]) + (main[i] !== s.mean[i] ? ` (mean ${shown(main[i])})` : '');
        const range = s.low && s.low[i] !== s.high[i] ? `, ${shown(s.low[i])} to ${shown(s.high[i])}` : '';
        return `${series.length > 1 ? s.name + ': ' : ''}${value}${range}${s.points ? ` at ${s.x[i]}` : ''}`;
      });
      if (nearest === null) return;
      cursor.setAttribute('d', `M${X(nearest).toFixed(1)} ${frame.top}V${frame.bottom}`);
      showTip(self, event, [`iteration ${shown(nearest)}`, ...rows.filter(r => r)].join('\n'));
    });
    picture.addEventListener('pointerleave', () => { self.tip.hidden = true; cursor.setAttribute('d', ''); });
    const back = x => from + (x - frame.left) / (frame.right - frame.left) * (to - from);
    picks(picture, frame, (a, b) => { view.from = back(a); view.to = back(b); redrawCurves(); },
      () => { view.from = view.to = null; redrawCurves(); });
    return picture;
  }, options.wide);
  drawing.isCurve = true;
  const stretch = Math.max(1, ...runs.filter(r => r.curves).map(r => r.curves.stretch));
  const notes = [];
  if (series.some(s => s.low)) notes.push(`line and shade: mean and range of ${stretch} iterations`);
  const window = Math.max(1, ...series.map(s => s.window || 1));
  if (window > 1) notes.push(`mean over ${window * stretch} iterations; faint: each`);
  if (notes.length) drawing.element.append(html('p', {class: 'note'}, notes.join('; ')));
  return drawing.element;
}

// Of each run one curve, or of one run some.
function seriesOf(run, r, name, more = {}) {
  const c = run.curves[name];
  return {name: several ? run.label : name, stroke: colour(r), x: run.curves.x, mean: c.mean, low: c.low, high: c.high, marks: c.not_finite, ...more};
}
const trained = () => runs.map((run, r) => [run, r]).filter(([run]) => run.curves);
function curveOf(id, caption, name, unit, options = {}) {
  const list = trained().filter(([run]) => run.curves[name].mean.some(v => v !== null && (!options.unless || v !== options.unless)));
  if (!list.length) return null;
  return lineChart(id, caption, list.map(([run, r]) => seriesOf(run, r, name)), unit, options);
}
function losses() {
  const series = [];
  for (const [run, r] of trained()) {
    series.push(seriesOf(run, r, 'loss', {name: several ? run.label : 'training'}));
    Object.entries(run.validation).forEach(([set, list], k) => series.push({
      name: (several ? run.label + ' ' : '') + 'validation' + (set ? ' ' + set : ''),
      stroke: several ? colour(r) : colour(k + 1), dashed: true, points: true,
      x: list.map(p => p[0]), mean: list.map(p => p[1]),
    }));
  }
  return lineChart('loss', 'Loss', series, 'nats a token', {smooth: true, log: true, wide: true});
}
function bubbles() {
  const series = [];
  for (const [run, r] of trained()) {
    if (run.pipeline < 2) continue;
    const window = Math.max(1, Math.floor(run.curves.x.length / 40));
    const of = (name, label, more) => seriesOf(run, r, name, {name: (several ? run.label + ' ' : '') + label, window, ...more});
    series.push(of('bubble', 'by CPU time', {}));
    if (!several) series.push(of('bubble_wall', 'by the clock', {stroke: colour(1), low: undefined, high: undefined}));
    series.push(of('bubble_predicted', 'predicted', {stroke: colour(several ? r : 2), dashed: true, low: undefined, high: undefined}));
  }
  return series.length ? lineChart('bubble', 'Pipeline bubble', series, '% of an iteration', {}) : null;
}

// ---- where a step goes ----

const partNames = {products: 'matrix products', kernels: 'other kernels', waiting: 'waiting for other stages', rest: 'collectives, messages, host'};
function parts(run, r) {
  const names = ['products', 'kernels', 'waiting', 'rest'].filter(n => run.curves.parts[n] && run.curves.parts[n].some(v => v > 0));
  if (!names.length) return null;
  return figure(`parts${several ? '-' + r : ''}`, 'Step time by part' + (several ? `: ${run.label}` : ''), (width, self) => {
    const height = Math.round(Math.min(340, Math.max(220, width * 0.42))), x = run.curves.x;
    const window = Math.max(1, Math.floor(x.length / 40));
    const values = names.map(n => rolling(run.curves.parts[n].map(v => v === null ? 0 : v), window));
    const sums = x.map((_, i) => values.reduce((sum, list) => sum + list[i], 0));
    const largest = sums.reduce((a, b) => Math.max(a, b), 1e-9);
    // A first iteration that warms up would flatten all others and is cut then.
    const later = sums.slice(Math.floor(window / 2) + 1).reduce((a, b) => Math.max(a, b), 1e-9);
    const first = names.reduce((sum, n) => sum + (run.curves.parts[n][0] || 0), 0);
    const cut = sums.length > Math.floor(window / 2) + 1 && largest > 4 * later, most = cut ? later : largest;
    const yTicks = ticks(0, most, 5), labels = yTicks.map(v => tickText(v, yTicks));
    const frame = {left: 16 + Math.max(20, widest(labels)), right: width - 10, top: 22, bottom: height - 24};
    const from = x[0], to = x[x.length - 1] > from ? x[x.length - 1] : from + 1;
    const X = v => frame.left + (v - from) / (to - from) * (frame.right - frame.left);
    const Y = v => frame.bottom - v / most * (frame.bottom - frame.top) * 0.96;
    const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'step time by part'});
    const clip = `clip-${self.element.id}`;
    picture.append(svg('clipPath', {id: clip}, svg('rect', {x: frame.left, y: frame.top, width: frame.right - frame.left, height: frame.bottom - frame.top})));
    const areas = svg('g', {'clip-path': `url(#${clip})`});
    picture.append(areas);
    const below = x.map(() => 0);
    names.forEach((name, k) => {
      const upper = x.map((v, i) => [X(v), Y(below[i] + values[k][i])]);
      const lower = x.map((v, i) => [X(v), Y(below[i])]).reverse();
      if (x.length === 1) { upper.push([frame.right, upper[0][1]]); lower.unshift([frame.right, lower[0][1]]); }
      areas.append(svg('path', {class: 'part', fill: colour(k), 'fill-opacity': 0.8, d: 'M' + upper.concat(lower).map(p => p.map(v => v.toFixed(1)).join(' ')).join('L') + 'Z'}));
      x.forEach((_, i) => { below[i] += values[k][i]; });
    });
    yTicks.forEach((v, i) => picture.append(svg('path', {class: 'grid', d: `M${frame.left} ${Y(v).toFixed(1)}H${frame.right}`, 'stroke-opacity': 0.6}),
      svg('text', {x: frame.left - 6, y: (Y(v) + 4).toFixed(1), 'text-anchor': 'end'}, labels[i])));
    const xTicks = x.length > 1 ? ticks(from, to, Math.max(2, Math.floor(width / 110))).filter(Number.isInteger) : [from];
    for (const v of xTicks) {
      const half = 3.6 * String(v).length;
      picture.append(svg('text', {x: Math.min(frame.right - half, Math.max(frame.left + half, X(v))).toFixed(1), y: height - 8, 'text-anchor': 'middle'}, String(v)));
    }
    picture.append(svg('text', {class: 'dim', x: 4, y: 13}, 'ms'), svg('text', {class: 'dim', x: frame.right, y: 13, 'text-anchor': 'end'}, 'iteration'));
    self.legend.replaceChildren(...names.map((n, k) => key(partNames[n], colour(k), 'box')),
      ...(cut ? [html('span', {}, `cut above ${+most.toPrecision(3)} ms; iteration ${x[0]}: ${+first.toPrecision(3)} ms`)] : []));
    picture.addEventListener('pointermove', event => {
      const box = picture.getBoundingClientRect(), at = (event.clientX - box.left) * width / box.width;
      const i = x.reduce((best, v, k) => Math.abs(X(v) - at) < Math.abs(X(x[best]) - at) ? k : best, 0);
      showTip(self, event, [`iteration ${shown(x[i])}: ${shown(sums[i], 'ms')}`, ...names.map((n, k) => `${partNames[n]}: ${shown(values[k][i], 'ms')} (${(100 * values[k][i] / (sums[i] || 1)).toFixed(0)}%)`)].join('\n'));
    });
    picture.addEventListener('pointerleave', () => { self.tip.hidden = true; });
    return picture;
  }).element;
}

// ---- bars ----

// Rows of {label, segments: [{value, fill, title}], text}.
function barChart(id, caption, rows, legend, note) {
  const most = Math.max(...rows.map(row => row.segments.reduce((sum, s) => sum + s.value, 0)), 1e-9);
  return figure(id, caption, (width, self) => {
    const labels = widest(rows.map(row => row.label)), values = widest(rows.map(row => row.text));
    const above = labels > width * 0.3;  // then labels stand over their bars
    const row = above ? 40 : 26, bar = 16;
    const left = above ? 4 : 12 + labels, room = width - left - 12 - values;
    const picture = svg('svg', {viewBox: `0 0 ${width} ${rows.length * row + 6}`, role: 'img', 'aria-label': caption});
    rows.forEach((one, i) => {
      const y = i * row + 4 + (above ? 16 : 0);
      picture.append(svg('text', {x: above ? left : left - 6, y: above ? y - 4 : y + 13, 'text-anchor': above ? 'start' : 'end'}, one.label));
      let x = left;
      for (const segment of one.segments) {
        const wide = segment.value / most * room;
        if (wide <= 0) continue;
        picture.append(svg('rect', {class: 'bar', x: x.toFixed(1), y, width: Math.max(0.5, wide).toFixed(1), height: bar, fill: segment.fill}, svg('title', {}, segment.title)));
        x += wide;
      }
      picture.append(svg('text', {x: (x + 5).toFixed(1), y: y + 13}, one.text));
    });
    self.legend.replaceChildren(...(legend || []).map(([name, fill]) => key(name, fill, 'box')));
    return picture;
  }, false, note).element;
}
function traffic() {
  const list = trained(), groups = [...new Set(list.flatMap(([run]) => Object.keys(run.bytes_sent)))]
    .filter(group => list.some(([run]) => run.bytes_sent[group] > 0));
  if (!groups.length) return null;
  const rows = groups.flatMap(group => list.map(([run, r]) => {
    const value = run.bytes_sent[group] || 0;
    return {label: several ? `${group}, ${run.label}` : group, segments: [{value, fill: colour(several ? r : 0), title: `${group}: ${value} bytes`}], text: bytes(value)};
  }));
  return barChart('traffic', 'Bytes sent by group', rows, null, 'an iteration, all ranks');
}
function rankBubbles() {
  const list = trained().filter(([run]) => run.pipeline > 1);
  if (!list.length) return null;
  const rows = list.flatMap(([run, r]) => run.rank_bubble.map((value, p) => ({
    label: several ? `${run.label}, rank ${p}` : `rank ${p}`, text: `${value.toFixed(1)}%`,
    segments: [{value: Math.max(0, value), fill: colour(several ? r : 0), title: `pipeline rank ${p}: ${value}%`}]})));
  return barChart('bubble-by-rank', 'Bubble of each pipeline rank', rows, null, '% of an iteration, by CPU time');
}
function memory(run, r) {
  const {measured, predicted} = run.memory;
  const names = Object.keys({...measured, ...predicted}).filter(n => n !== 'total' && ((measured[n] || 0) + (predicted[n] || 0)) > 0);
  if (!names.length) return null;
  const fills = names.map((_, i) => i < 6 ? colour(i) : `color-mix(in srgb, ${colour(i)} 55%, var(--dim))`);
  const row = (label, of) => ({label, text: `total ${mib(of.total || 0)} MiB`,
    segments: names.map((n, i) => ({value: of[n] || 0, fill: fills[i], title: `${label}: ${n} ${mib(of[n] || 0)} MiB`}))});
  const rows = [row('measured', measured)], known = predicted.total > 0;
  if (known) rows.push(row('predicted', predicted));
  const element = barChart(`memory${several ? '-' + r : ''}`, 'Memory' + (several ? `: ${run.label}` : ''), rows, names.map((n, i) => [n, fills[i]]), 'of the largest rank, MiB');
  const cell = value => html('td', {}, value === undefined ? '' : mib(value));
  const line = (n, type) => html('tr', {class: type}, html('th', {scope: 'row'}, n), cell(measured[n] || 0), known ? cell(predicted[n] || 0) : null);
  element.append(html('details', {}, html('summary', {}, 'numbers'), html('table', {class: 'numbers'},
    html('thead', {}, html('tr', {}, html('td', {}, ''), html('td', {}, 'measured'), known ? html('td', {}, 'predicted') : null)),
    html('tbody', {}, ...names.map(n => line(n)), line('total', 'total')))),
    html('p', {class: 'note'}, 'Each category at its own peak; the total is the largest at one time, so it may be less than their sum.'));
  return element;
}

// ---- timelines ----

const looks = {
  forward: ['forward', '#56b4e9'], backward: ['backward', '#e69f00'], backward_input: ['input gradient', '#f0e442'],
  backward_weight: ['weight gradient', '#2fb58a'], optimizer: ['optimizer', '#f0803c'], transfer: ['transfer', '#8a8a8a'],
  tensor_parallel: ['tensor parallel', '#3f8fd0'], gradient_reduction: ['gradient reduction', '#cc79a7'],
  weight_gather: ['weight gather', '#b05588'], all_reduce: ['other all-reduce', '#8478d8'],
};
const computes = ['forward', 'backward', 'backward_input', 'backward_weight', 'optimizer'];
function timeline(id, data) {
  const [title, ...lines] = data.title.split('\n');
  const events = data.events.map(([row, category, start, duration, name, stage, microbatch, sent]) =>
    ({row, category, start, duration, name, stage, microbatch, sent, thin: !computes.includes(category)})).filter(e => looks[e.category]);
  const ranks = Math.max(data.rows.length, ...[events.reduce((most, e) => Math.max(most, e.row + 1), 0)]);
  const first = events.reduce((least, e) => Math.min(least, e.start), Infinity);
  const last = events.reduce((most, e) => Math.max(most, e.start + e.duration), -Infinity);
  const lanes = Object.keys(looks).filter(c => !computes.includes(c) && events.some(e => e.category === c));
  const stages = Array.from({length: ranks}, () => []);
  for (const e of events) if (e.stage >= 0 && !stages[e.row].includes(e.stage)) stages[e.row].push(e.stage);
  stages.forEach(list => list.sort((a, b) => a - b));
  const window = {from: first, to: last};
  const name = row => data.rows[row] || `rank ${row}`;
  const drawing = figure(id, title, (width, self) => {
    const longest = widest(Array.from({length: ranks}, (_, r) => name(r)));
    const short = longest > width * 0.22;  // then only the number
    const label = row => short ? (name(row).match(/\d+/) || [String(row)])[0] : name(row);
    const left = short ? 34 : 14 + longest, right = width - 10;
    const lane = 5, compute = ranks > 24 ? 12 : ranks > 8 ? 20 : 28, height = compute + lane * lanes.length, row = height + 4;
    const top = 4, bottom = top + ranks * row, span = window.to - window.from;
    const X = us => left + (us - window.from) / span * (right - left);
    const picture = svg('svg', {viewBox: `0 0 ${width} ${bottom + 36}`, role: 'img', 'aria-label': title});
    const marks = ticks(0, span / 1000, Math.max(2, Math.floor((right - left) / 110)));
    for (let r = 0; r < ranks; ++r) {
      picture.append(svg('rect', {x: left, y: top + r * row, width: right - left, height, style: 'fill:var(--idle)'}),
        svg('text', {x: left - 6, y: top + r * row + compute / 2 + 4, 'text-anchor': 'end'}, label(r)));
    }
    const offset = (window.from - first) / 1000;
    ticks(offset, offset + span / 1000, marks.length > 2 ? marks.length - 1 : 2).forEach((v, i, list) => {
      const text = tickText(v, list), at = X(first + v * 1000), half = 3.6 * text.length;
      picture.append(svg('path', {class: 'grid', d: `M${at.toFixed(1)} ${top}V${bottom + 3}`}),
        svg('text', {x: Math.min(right - half, Math.max(left + half, at)).toFixed(1), y: bottom + 16, 'text-anchor': 'middle'}, text));
    });
    for (const e of events) {
      const begin = Math.max(e.start, window.from), end = Math.min(e.start + e.duration, window.to);
      if (end < begin || e.start > window.to) continue;
      const x = X(begin), wide = Math.max(0.3, X(end) - x), y = top + e.row * row + (e.thin ? compute + lane * lanes.indexOf(e.category) : 0);
      const held = stages[e.row], chunk = held.length > 1 && !e.thin && e.stage >= 0 ? held.indexOf(e.stage) / (held.length - 1) : 0;
      picture.append(svg('rect', {class: e.category, x: x.toFixed(2), y, width: wide.toFixed(2), height: e.thin ? lane : compute,
        style: `fill:${chunk > 0 ? `color-mix(in srgb, ${looks[e.category][1]} ${Math.round(100 - 55 * chunk)}%, #fff)` : looks[e.category][1]}`,
        stroke: wide >= 3 && !e.thin ? '#444' : null, 'stroke-width': 0.5},
        svg('title', {}, `${name(e.row)}: ${e.name}, ${e.sent >= 0 ? bytes(e.sent) + ' sent, ' : ''}${shown((e.start - first) / 1000)} to ${shown((e.start + e.duration - first) / 1000)} ms (${shown(e.duration / 1000)} ms)`)));
      if (!e.thin && e.microbatch >= 0 && compute > 11 && wide > 7 * String(e.microbatch).length + 2) {
        picture.append(svg('text', {class: 'box', x: (x + wide / 2).toFixed(1), y: y + compute / 2 + 4}, String(e.microbatch)));
      }
    }
    picture.append(svg('text', {class: 'dim', x: right, y: bottom + 32, 'text-anchor': 'end'}, 'ms'));
    self.legend.replaceChildren(...Object.keys(looks).filter(c => events.some(e => e.category === c)).map(c => key(looks[c][0], looks[c][1], 'box')),
      key('idle', 'var(--idle)', 'box'), ...(stages.some(list => list.length > 1) ? [html('span', {}, 'lighter: a later chunk of the rank')] : []));
    const back = x => window.from + (x - left) / (right - left) * span;
    picks(picture, {width, left, right, top, bottom}, (a, b) => { [window.from, window.to] = [back(a), back(b)]; self.redraw(); },
      () => { [window.from, window.to] = [first, last]; self.redraw(); });
    return picture;
  }, true);
  const zoom = factor => {
    const middle = (window.from + window.to) / 2, half = Math.max(0.5, (window.to - window.from) / 2 * factor);
    [window.from, window.to] = factor === Infinity ? [first, last] : [Math.max(first, middle - half), Math.min(last, middle + half)];
    drawing.redraw();
  };
  const button = (text, factor, tells) => {
    const one = html('button', {type: 'button', 'aria-label': tells}, text);
    one.addEventListener('click', () => zoom(factor));
    return one;
  };
  drawing.element.insertBefore(html('div', {class: 'controls'}, button('+', 0.5, 'zoom in'), button('−', 2, 'zoom out'), button('whole', Infinity, 'the whole iteration')), drawing.canvas);
  for (const line of lines) drawing.element.insertBefore(html('p', {class: 'note'}, line), drawing.canvas);
  return drawing.element;
}

// ---- the page ----

function facts() {
  if (!several) {
    return html('dl', {id: 'facts'}, ...runs[0].facts.map(([name, value]) => html('div', {}, html('dt', {}, name), html('dd', {}, value))));
  }
  const names = [];
  for (const run of runs) for (const [name] of run.facts) if (!names.includes(name)) names.push(name);
  const cell = (run, name) => html('td', {}, (run.facts.find(f => f[0] === name) || ['', ''])[1]);
  const body = html('tbody', {}, ...names.map(name => html('tr', {}, html('th', {scope: 'row'}, name), ...runs.map(run => cell(run, name)))));
  const head = html('thead', {}, html('tr', {}, html('td', {}, ''), ...runs.map((run, r) => html('td', {}, html('span', {class: 'legend'}, key(run.name, colour(r), ''))))));
  return html('div', {class: 'scroll', id: 'facts'}, html('table', {style: `--runs:${runs.length}`}, head, body));
}
function controls() {
  const smooth = html('input', {type: 'range', min: 0, max: 0.99, step: 0.01, value: 0, id: 'smooth'});
  const log = html('input', {type: 'checkbox', id: 'log'});
  const whole = html('button', {type: 'button'}, 'whole run');
  smooth.addEventListener('input', () => { view.smooth = +smooth.value; redrawCurves(); });
  log.addEventListener('change', () => { view.log = log.checked; redrawCurves(); });
  whole.addEventListener('click', () => { view.from = view.to = null; redrawCurves(); });
  return html('div', {class: 'controls'}, html('label', {}, 'smooth the loss', smooth), html('label', {}, log, 'logarithmic loss'), whole,
    html('span', {}, 'drag over a curve to zoom in'));
}
function build() {
  page.append(facts());
  if (!trained().length) {
    page.append(html('p', {}, 'No iteration was run.'));
  } else {
    page.append(controls());
    const figures = html('div', {class: 'figures'});
    const varies = name => trained().some(([run]) => new Set(run.curves[name].mean).size > 1);
    const list = [losses(), curveOf('gradient-norm', 'Gradient norm', 'grad_norm', 'before clipping', {log: true}),
      curveOf('learning-rate', 'Learning rate', 'learning_rate', '', {}),
      varies('batch_size') ? curveOf('batch-size', 'Batch', 'batch_size', 'sequences', {zero: true}) : null,
      varies('loss_scale') ? curveOf('loss-scale', 'Loss scale', 'loss_scale', '', {}) : null,
      curveOf('speed', 'Speed', 'tokens_per_second', 'tokens/s', {zero: true}),
      curveOf('mfu', 'Model FLOPs utilisation', 'mfu', '%', {zero: true, unless: 0}),
      ...trained().map(([run, r]) => parts(run, r)), bubbles(), rankBubbles(), traffic(), ...trained().map(([run, r]) => memory(run, r))];
    figures.append(...list.filter(one => one));
    runs.forEach((run, r) => (run.timelines || []).forEach((data, k) => {
      if (data.events.length) figures.append(timeline(`timeline-${r}-${k}`, several ? {...data, title: `${run.label}: ${data.title}`} : data));
    }));
    page.append(figures);
  }
  for (const run of runs) {
    const of = several ? `: ${run.label}` : '';
    if (run.sample) page.append(html('details', {open: ''}, html('summary', {}, `A text that the weights have made${of}`), html('pre', {}, run.sample)));
    page.append(html('details', {}, html('summary', {}, `Config${of}`), html('pre', {}, run.config)));
  }
}

build();
const redraw = () => { for (const drawing of drawings) drawing.redraw(); };
redraw();
let known = document.documentElement.clientWidth;
addEventListener('resize', () => {
  if (document.documentElement.clientWidth === known) return;
  known = document.documentElement.clientWidth;
  redraw();
});
