// Figures of a model's auxiliary losses and of the statistics of its layers.

// The entry of a run with this name; undefined if there is none.
const entryOf = (run, kind, name) => run.model[kind].find(one => one.name === name);
const namesOf = kind => [...new Set(trained().flatMap(([run]) => run.model[kind].map(one => one.name)))];
const idOf = text => text.replace(/[^A-Za-z0-9]+/g, '-');
function statisticCurves(id, caption, kind, name, unit) {
  const series = trained().map(([run, r]) => [run, r, (entryOf(run, kind, name) || {}).curve]).filter(([, , c]) => c).map(([run, r, c]) => (
    {run, name: several ? run.label : caption, hides: several ? run.key : undefined, stroke: colour(r), dash: dashes(r),
      mean: c.mean, low: c.low, high: c.high, marks: c.not_finite}));
  return series.length ? lineChart(id, caption, series, {unit}) : null;
}
const auxiliaryLosses = () => namesOf('auxiliary_losses').map((name, i) =>
  statisticCurves(`auxiliary-${i}-${idOf(name)}`, `Auxiliary loss: ${name}`, 'auxiliary_losses', name, 'nats a token'));
function statistics() {
  return namesOf('statistics').flatMap((name, i) => {
    const id = `statistic-${i}-${idOf(name)}`;
    const maps = trained().map(([run, r]) => [run, r, (entryOf(run, 'statistics', name) || {}).frames]).filter(([, , frames]) => frames)
      .map(([run, r, frames]) => heatMap(`${id}${several ? '-' + r : ''}`, name, run, frames));
    return [statisticCurves(id, name, 'statistics', name, 'mean over layers'), ...maps];
  });
}
// A row for each layer, a cell for each value; darker is larger. A slider chooses the iteration; the
// shades are those of the largest value of all iterations.
function heatMap(id, name, run, frames) {
  const rowsOf = frame => frame.layers.map((values, layer) => [layer, values]).filter(([, values]) => values.length);
  const all = frames.flatMap(rowsOf);
  const largest = most([0, ...all.map(([, values]) => most([0, ...values.filter(isNumber)]))]);
  const columns = most([1, ...all.map(([, values]) => values.length)]);
  const time = html('input', {type: 'range', min: 0, max: frames.length - 1, step: 1, value: frames.length - 1, id: `${id}-iteration`});
  const caption = `${name} by layer` + (several ? `: ${run.label}` : '');
  const drawing = figure(id, caption, (width, self) => {
    const frame = frames[+time.value], rows = rowsOf(frame);
    const left = 12 + widest([`layer ${frame.layers.length}`]), wide = (width - left - 4) / columns;
    const high = Math.max(4, Math.min(18, 420 / rows.length)), labelled = Math.ceil(14 / high);
    const picture = svg('svg', {viewBox: `0 0 ${width} ${Math.ceil(rows.length * high + 8)}`, role: 'img', 'aria-label': caption});
    rows.forEach(([layer, values], i) => {
      if (i % labelled === 0) picture.append(svg('text', {x: left - 6, y: (i * high + Math.max(high, 14) - 2).toFixed(1), 'text-anchor': 'end'}, `layer ${layer}`));
      values.forEach((value, k) => picture.append(svg('rect', {class: 'cell', x: (left + k * wide).toFixed(1), y: (i * high).toFixed(1),
        width: Math.max(0.5, wide - (wide > 4 ? 1 : 0)).toFixed(1), height: (high - (high > 6 ? 1 : 0)).toFixed(1),
        fill: 'var(--c0)', 'fill-opacity': isNumber(value) ? (0.06 + 0.94 * Math.max(0, value) / (largest || 1)).toFixed(3) : 0},
      svg('title', {}, `layer ${layer}, ${k}: ${shown(value)}`))));
    });
    self.note.textContent = `iteration ${frame.iteration}; darkest: ${shown(largest)}`;
    return picture;
  }, {small: 'of an iteration', run: run.key});
  time.addEventListener('input', () => drawing.redraw());
  if (frames.length > 1) drawing.legend.append(html('label', {}, 'iteration', time));
  return drawing.element;
}
