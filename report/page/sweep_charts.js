// Charts of dots and lines over two numbers.

// More: dots [{x, y, i, hollow, title}], lines [{list of [x, y], i, dash}], where i is the colour and -1
// the dim colour; x and y: names of the axes; powers: x by powers of two; legend ([name, i] pairs),
// small. Returns nothing if all dots would coincide, as a single dot shows no relation.
const inked = i => i < 0 ? 'var(--dim)' : colour(i);
function dotChart(id, caption, more) {
  const {dots, lines, powers} = more, places = dots.filter(dot => !dot.hollow).map(dot => `${dot.x.toPrecision(3)} ${dot.y.toPrecision(3)}`);
  if (new Set(places).size < 2) return null;
  const xs = dots.map(dot => dot.x).concat(lines.flatMap(line => line.list.map(([x]) => x)));
  const ys = dots.map(dot => dot.y).concat(lines.flatMap(line => line.list.map(([, y]) => y)));
  const axis = (name, values, count) => {
    const to = 1.05 * most(values) || 1, list = ticks(0, to, count);
    return {from: Math.min(0, least(values)), to, ticks: list, texts: list.map(v => tickText(v, list)), name};
  };
  const byPowers = () => {
    const list = [...new Set(xs)].sort((a, b) => a - b), one = list.length === 1 ? 2 : 1.1;
    return {from: list[0] / one, to: list[list.length - 1] * one, log: true, ticks: list, texts: list.map(String), name: more.x};
  };
  const drawing = figure(id, caption, width => {
    const height = chartHeight(width), x = powers ? byPowers() : axis(more.x, xs, Math.max(2, Math.floor(width / 110)));
    const frame = chart(id, width, height, x, axis(more.y, ys, Math.max(3, Math.floor(height / 48))), caption);
    for (const {list, i, dash} of lines) {
      const path = list.map(([a, b], k) => `${k ? 'L' : 'M'}${frame.X(a).toFixed(1)} ${frame.Y(b).toFixed(1)}`).join('');
      frame.inside.append(svg('path', {class: 'mark', d: path, fill: 'none', stroke: inked(i), 'stroke-width': 1.8, 'stroke-dasharray': dash}));
    }
    for (const {x: a, y: b, i, hollow, title} of dots) {
      frame.inside.append(svg('circle', {class: 'mark', cx: frame.X(a).toFixed(1), cy: frame.Y(b).toFixed(1), r: 4.5,
        fill: hollow ? 'none' : inked(i), stroke: inked(i), 'stroke-width': 1.6}, svg('title', {}, title)));
    }
    return frame.picture;
  }, {small: more.small});
  drawing.legend.append(...more.legend.map(([name, i]) => key(name, inked(i), i < 0 ? 'dashed' : 'box dot')));
  return drawing.element;
}
const told = (p, x, y) => `${p.point}: ${brief(x)}, ${brief(y)}`;

function scaling() {
  if (!alike.length) return null;
  const base = alike[0], names = Object.keys(base.axes), ideal = n => n / base.processors * speed(base);
  const families = names.map(name => [`${name} alone`, p => names.every(a => a === name || p.axes[a] === 1)]);
  families.push(['best of all', () => true]);
  const series = families.map(([name, of], i) => {
    const best = new Map();
    for (const p of alike.filter(of)) if (!best.has(p.processors) || speed(p) > speed(best.get(p.processors))) best.set(p.processors, p);
    return [name, i, [...best.values()].sort((a, b) => a.processors - b.processors)];
  });
  const counts = [...new Set(alike.map(p => p.processors))].sort((a, b) => a - b);
  return dotChart('scaling', 'Speed by cores or GPUs', {
    x: 'cores or GPUs', y: 'tokens/s', powers: true, legend: [['ideal', -1], ...series.map(([name, i]) => [name, i])],
    dots: series.flatMap(([, i, list]) => list.map(p => ({x: p.processors, y: speed(p), i, title: told(p, p.processors, speed(p))}))),
    lines: [{list: counts.map(n => [n, ideal(n)]), i: -1, dash: '5 4'}, ...series.map(([, i, list]) => ({list: list.map(p => [p.processors, speed(p)]), i}))],
  });
}
// Dots that would all lie on the diagonal if the two numbers were equal.
function agreement(id, caption, list, x, y, names) {
  const end = most(list.flatMap(p => [x(p), y(p)]));
  return dotChart(id, caption, {x: names[0], y: names[1], legend: [['equal', -1]],
    dots: list.map(p => ({x: x(p), y: y(p), i: 0, title: told(p, x(p), y(p))})), lines: [{list: [[0, 0], [end, end]], i: -1, dash: '5 4'}]});
}
const inMib = count => count / MIB;
function memoryAgainstPlan() {
  return agreement('memory', 'Memory against the plan', points, p => inMib(p.planned_memory), p => inMib(p.peak_memory), ['planned, MiB of the largest rank', 'measured, MiB']);
}
function predictions() {
  if (!sweep.predicted_for) return null;
  const list = points.filter(p => p.predicted_ms !== undefined && p.compared_ms !== undefined);
  return agreement('predicted', `Predicted for ${sweep.predicted_for} and measured here`, list, p => p.predicted_ms, p => p.compared_ms, ['predicted ms a step', 'measured ms, median']);
}
function bubblesByDepth() {
  const depth = p => p.axes.pp || 1, list = points.filter(p => depth(p) > 1);
  const depths = [...new Set(list.map(depth))].sort((a, b) => a - b);
  const dot = (p, ratio, hollow) => ({x: p.micro_batches, y: 100 * ratio, i: depths.indexOf(depth(p)), hollow, title: told(p, p.micro_batches, 100 * ratio)});
  return dotChart('bubble', 'Bubble by micro-batches and pipeline size', {
    x: 'micro-batches', y: '% of an iteration', powers: true, lines: [], legend: depths.map((d, i) => [`pipeline ${d}`, i]),
    small: 'full: measured by CPU time; hollow: predicted by the schedule',
    dots: list.flatMap(p => [dot(p, p.bubble_ratio, false), dot(p, p.bubble_predicted, true)])});
}
function timeAndMemory() {
  const place = p => [inMib(p.peak_memory), 1e6 / speed(p)], front = [];
  for (const p of [...alike].sort((a, b) => a.peak_memory - b.peak_memory || speed(b) - speed(a))) {
    if (!front.length || speed(p) > speed(front[front.length - 1])) front.push(p);
  }
  return dotChart('pareto', 'Time and memory', {
    x: 'MiB of the largest rank', y: 'seconds a million tokens', legend: [['on the front', 1], ['others', 0]], lines: [{list: front.map(place), i: 1}],
    dots: alike.map(p => ({x: place(p)[0], y: place(p)[1], i: front.includes(p) ? 1 : 0, title: told(p, ...place(p))}))});
}
