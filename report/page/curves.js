// Curves of one run or of several: loss, speed and similar numbers.

// A series: {run, name, hides, stroke, dash, mean, low, high, marks}. With `at` (iterations) it is a
// series of points, otherwise it goes along its run. `rolls`: it is drawn as a rolling mean.
function curveSeen(s, x, options) {
  const places = s.at ? s.at.map(iteration => place(s.run, iteration)) : along(s.run);
  const inside = i => places[i] >= x.from && places[i] <= x.to;
  const own = [], seen = [];  // a curve that leaves the window is drawn to its edge
  places.forEach((_, i) => {
    if (inside(i)) own.push(i);
    if (inside(i) || (i > 0 && inside(i - 1)) || (i + 1 < places.length && inside(i + 1))) seen.push(i);
  });
  const window = s.rolls ? Math.max(1, Math.floor(own.length / 40)) : 1;
  const main = options.smooth && view.smooth > 0 && !s.at ? smoothed(s.mean, view.smooth) : window > 1 ? rolling(s.mean, window) : s.mean;
  return {s, places, own, seen, main, window, faint: main !== s.mean && !s.low};
}
const highs = ({s}) => s.high || s.mean;

// The limit of the axis if spikes are cut: {limit, words}, or null.
function cutOf(curves, unit) {
  const limit = most(curves.map(c => cutOfRun(c.s.run, c.own, highs(c)) ?? most(c.own.map(i => highs(c)[i]).filter(isNumber))));
  const above = curves.flatMap(c => c.own.map(i => [highs(c)[i], c, i])).filter(([value]) => isNumber(value) && value > limit);
  if (!above.length) return null;
  const [value, c, i] = above.reduce((a, b) => b[0] > a[0] ? b : a);
  if (value < 1.6 * limit) return null;  // the values of another run are nearly as large
  return {limit, words: cutWords(limit, above.length, value, c.s.run, i, unit)};
}
function cutWords(limit, count, value, run, i, unit) {
  const where = `${several ? run.label + ', ' : ''}${run.curves.interval > 1 ? 'near ' : ''}iteration ${Math.round(run.curves.iteration[i])}`;
  const with3 = number => `${+number.toPrecision(3)}${unit === '%' || !unit ? '' : ' '}${unit}`;
  return `cut above ${with3(limit)}: ${count > 1 ? `${count} spikes, ` : ''}up to ${with3(value)} (${where})`;
}

function heightOf(curves, height, options) {
  const values = curves.flatMap(({s, own, main, faint}) => own.flatMap(i =>
    [main[i], faint ? s.mean[i] : null, s.low ? s.low[i] : null, s.low ? s.high[i] : null])).filter(isNumber);
  const cut = options.spiky !== undefined && view.cut && values.length && !(options.log && view.log) ? cutOf(curves, options.spiky) : null;
  let [low, high] = values.length ? [least(values), cut ? cut.limit : most(values)] : [0, 1];
  if (low > high) low = high;
  const log = Boolean(options.log && view.log && low > 0), constant = high === low;
  const margin = constant ? Math.abs(high) * 0.05 || 1 : (high - low) * 0.04;
  const from = log ? low / (high / low) ** 0.04 : low >= 0 && options.zero ? 0 : low - margin;
  const to = log && !constant ? high * (high / low) ** 0.04 : high + margin;
  const list = constant ? (from === 0 && low > 0 ? [0, low] : [low]) : log ? logTicks(low, high) : ticks(from, to, Math.max(3, Math.floor(height / 48)));
  const texts = list.map(v => log || constant ? String(+v.toPrecision(log ? 3 : 4)) : tickText(v, list));
  return {from: log && constant ? low / 1.1 : from, to, log, ticks: list, texts, name: options.unit, cut};
}

function drawCurve(frame, y, {s, places, own, seen, main, faint}) {
  const {X, Y, inside} = frame, fits = v => isNumber(v) && (!y.log || v > 0);
  const line = values => {
    let d = '', down = false;
    for (const i of seen) {
      if (!s.at && paused(s.run, i)) down = false;
      if (fits(values[i])) d += `${down ? 'L' : 'M'}${X(places[i]).toFixed(1)} ${Y(values[i]).toFixed(1)}`;
      down = fits(values[i]);
    }
    return d;
  };
  if (s.low) {
    const edge = (list, values) => list.map(i => `${X(places[i]).toFixed(1)} ${Y(values[i]).toFixed(1)}`);
    const good = seen.filter(i => fits(s.low[i]));
    const both = edge(good, s.high).concat(edge([...good].reverse(), s.low));
    if (both.length) inside.append(svg('path', {class: 'range', d: `M${both.join('L')}Z`, fill: s.stroke, 'fill-opacity': 0.22, stroke: s.stroke, 'stroke-opacity': 0.5}));
  }
  if (faint) inside.append(svg('path', {d: line(s.mean), fill: 'none', stroke: s.stroke, 'stroke-opacity': 0.3}));
  inside.append(svg('path', {class: 'series', d: line(main), fill: 'none', stroke: s.stroke, 'stroke-width': 1.7, 'stroke-linejoin': 'round', 'stroke-dasharray': s.dash}));
  const dots = own.filter(i => fits(main[i]));
  if (s.at || dots.length <= 30) {
    for (const i of dots) inside.append(svg('circle', {cx: X(places[i]).toFixed(1), cy: Y(main[i]).toFixed(1), r: dots.length === 1 ? 5 : 2.6, fill: s.stroke}));
  }
  if (y.cut) markSpikes(frame, own.filter(i => (s.high || s.mean)[i] > y.cut.limit).map(i => places[i]), s.stroke);
}
// Arrows at the upper edge, at the places of values beyond it.
function markSpikes(frame, places, fill) {
  const {X, top} = frame;
  frame.picture.append(svg('path', {class: 'spikes', fill, d: places.map(x => `M${(X(x) - 4).toFixed(1)} ${top + 5}h8l-4 -7z`).join('')}));
}

function curveTip(frame, restarts, curves, at, pixels) {
  let nearest = null;
  const rows = curves.map(({s, places, seen, main}) => {
    const i = seen.reduce((best, k) => best === null || Math.abs(places[k] - at) < Math.abs(places[best] - at) ? k : best, null);
    if (i === null) return '';
    if (nearest === null || Math.abs(places[i] - at) < Math.abs(nearest - at)) nearest = places[i];
    const value = shown(s.mean[i]) + (main[i] !== s.mean[i] ? ` (mean ${shown(main[i])})` : '');
    const range = s.low && s.low[i] !== s.high[i] ? `, ${shown(s.low[i])} to ${shown(s.high[i])}` : '';
    const where = s.at || view.along !== 'iteration' ? ` at iteration ${shown(s.at ? s.at[i] : s.run.curves.iteration[i])}` : '';
    return `${curves.length > 1 || several ? s.name + ': ' : ''}${value}${range}${where}`;
  });
  return nearest === null ? null : {x: nearest, lines: [placeText(nearest), ...rows, ...resumedNear(frame, restarts, pixels)]};
}

// Options: unit, wide; zero: the axis begins at 0; log, smooth: the reader may choose them; spiky:
// spikes shall not set the axis, and the unit for saying so; dashed: the meaning of dashed curves.
function lineChart(id, caption, series, options = {}) {
  series = series.filter(s => s.mean.length > 0);
  const drawing = figure(id, caption, (width, self) => {
    const height = chartHeight(width), x = seenAlong(width);
    const curves = series.filter(s => !isHidden(s.run.key) && !isHidden(s.hides)).map(s => curveSeen(s, x, options));
    const y = heightOf(curves, height, options);
    const frame = chart(id, width, height, x, y, `${caption} over ${axes[view.along].title}`);
    for (const curve of curves) drawCurve(frame, y, curve);
    const gaps = [...new Set(curves.flatMap(({s}) => (s.marks || []).map(iteration => place(s.run, iteration))))].filter(v => v >= x.from && v <= x.to);
    if (gaps.length) frame.picture.append(svg('path', {class: 'not-finite', d: gaps.map(v => `M${frame.X(v).toFixed(1)} ${frame.bottom - 8}v8`).join('')}));
    const restarts = resumptionsSeen(resumptions, x);
    markResumptions(frame, restarts);
    self.note.textContent = notesOf(curves, y).join('; ');
    hover(self, frame, (at, pixels) => curveTip(frame, restarts, curves, at, pixels));
    picksRange(frame);
    return frame.picture;
  }, {wide: options.wide, viewed: true});
  drawing.legend.append(...legendOf(series, options.dashed));
  if (series.some(s => s.marks)) drawing.legend.append(key('not finite', 'var(--bad)', ''));
  return drawing.element;
}
// A legend entry for each curve; with several runs, for each run.
function legendOf(series, dashed) {
  if (!several) return series.length > 1 ? series.map(s => key(s.name, s.stroke, s.dash ? 'dashed' : '', s.hides)) : [];
  const own = runs.map(run => series.find(s => s.run === run)).filter(s => s);
  const more = dashed && series.length > own.length ? [key(dashed, 'var(--dim)', 'dashed')] : [];
  return own.map(s => key(s.run.label, s.stroke, s.dash ? 'dashed' : '', s.hides)).concat(more);
}
function notesOf(curves, y) {
  const notes = [], interval = most([1, ...trained().map(([run]) => run.curves.interval)]);
  if (!curves.length) notes.push('all of it is hidden');
  if (curves.some(({s}) => s.low)) notes.push(`line and shade: mean and range of ${interval} iterations`);
  const window = most([1, ...curves.map(c => c.window)]);
  if (window > 1) notes.push(`mean over ${window * interval} iterations; faint: each`);
  if (y.cut) notes.push(y.cut.words);
  return notes;
}

// ---- the curves of the page ----

function seriesOf(run, r, name, more = {}) {
  const c = run.curves[name];
  return {run, name: several ? run.label : name, hides: several ? run.key : undefined, stroke: colour(r), dash: dashes(r),
    mean: c.mean, low: c.low, high: c.high, marks: c.not_finite, ...more};
}
function curveOf(id, caption, name, options = {}) {
  const list = trained().filter(([run]) => run.curves[name].mean.some(v => v !== null && (!options.unless0 || v !== 0)));
  if (!list.length) return null;
  return lineChart(id, caption, list.map(([run, r]) => seriesOf(run, r, name)), options);
}
// On a page of one run, each of its curves can be hidden; on a page of several, each run.
function losses() {
  const hides = (run, name) => several ? run.key : `loss ${name}`;
  const series = [];
  for (const [run, r] of trained()) {
    series.push(seriesOf(run, r, 'loss', {name: several ? run.label : 'training', hides: hides(run, 'training')}));
    Object.entries(run.validation).forEach(([set, list], k) => series.push({
      run, name: (several ? run.label + ' ' : '') + 'validation' + (set ? ' ' + set : ''), hides: hides(run, `validation ${set}`),
      stroke: several ? colour(r) : colour(k + 1), dash: '6 4', at: list.map(p => p[0]), mean: list.map(p => p[1]),
    }));
  }
  return lineChart('loss', 'Loss', series, {unit: 'nats a token', smooth: true, log: true, wide: true, dashed: 'validation'});
}
function bubbles() {
  const series = [];
  for (const [run, r] of trained()) {
    if (run.pipeline < 2) continue;
    const of = (name, label, more) => seriesOf(run, r, name,
      {name: (several ? run.label + ' ' : '') + label, hides: several ? run.key : `bubble ${name}`, rolls: true, ...more});
    const alone = {low: undefined, high: undefined};
    series.push(of('bubble', 'by CPU time', {}));
    if (!several) series.push(of('bubble_wall', 'by the clock', {...alone, stroke: colour(1)}));
    series.push(of('bubble_predicted', 'predicted', {...alone, stroke: colour(several ? r : 2), dash: '6 4'}));
  }
  return series.length ? lineChart('bubble', 'Pipeline bubble', series, {unit: '% of an iteration', dashed: 'predicted'}) : null;
}
