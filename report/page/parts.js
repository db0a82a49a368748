// The parts of the step time, stacked, along the same axis as the curves.

const partNames = {products: 'matrix products', kernels: 'other kernels', waiting: 'waiting for other stages', rest: 'collectives, messages, host'};
// The visible parts of a run. A spike counts only up to the height at which it is drawn.
function partsSeen(run, names, sums, x) {
  const {places, own, seen} = curveSeen({run, mean: sums}, x, {});
  const limit = view.cut ? cutOfRun(run, own, sums) : null, part = (n, i) => run.curves.parts[n][i] || 0;
  const window = Math.max(1, Math.floor(own.length / 40)), drawn = i => limit === null ? 1 : Math.min(1, limit / sums[i]);
  const values = names.map(n => rolling(seen.map(i => part(n, i) * drawn(i)), window));
  const top = limit ?? most([1e-9, ...seen.map((_, k) => values.reduce((sum, list) => sum + list[k], 0))]);
  return {places, own, seen, values, window, limit, top, spikes: limit === null ? [] : own.filter(i => sums[i] > limit)};
}
function parts(run, r) {
  const all = run.curves.parts, names = Object.keys(partNames).filter(n => all[n] && all[n].some(v => v > 0));
  if (!names.length) return null;
  const sums = run.curves.iteration.map((_, i) => names.reduce((sum, n) => sum + (all[n][i] || 0), 0));
  const id = `parts${several ? '-' + r : ''}`;
  const drawing = figure(id, 'Step time by part' + (several ? `: ${run.label}` : ''), (width, self) => {
    const x = seenAlong(width), it = partsSeen(run, names, sums, x), {places, own, seen, spikes} = it;
    const list = ticks(0, it.top, 5), y = {from: 0, to: it.top / 0.96, ticks: list, texts: list.map(v => tickText(v, list)), name: 'ms'};
    const frame = chart(id, width, chartHeight(width), x, y, 'step time by part');
    for (const interval of intervalsOf(seen.keys(), k => paused(run, seen[k]))) {
      drawAreas(frame, interval.map(k => places[seen[k]]), it.values.map(part => interval.map(k => part[k])), sums.length === 1);
    }
    markSpikes(frame, spikes.map(i => places[i]), 'var(--ink)');
    const restarts = resumptionsSeen(resumptions.filter(one => one.run === run), x);
    markResumptions(frame, restarts);
    const longest = spikes.reduce((a, b) => sums[b] > sums[a] ? b : a, spikes[0]);
    self.note.textContent = [it.window > 1 ? `mean over ${it.window * run.curves.interval} iterations` : '',
      spikes.length ? cutWords(it.limit, spikes.length, sums[longest], run, longest, 'ms') : ''].filter(text => text).join('; ');
    hover(self, frame, (at, pixels) => {
      if (!own.length) return null;
      const i = own.reduce((best, k) => Math.abs(places[k] - at) < Math.abs(places[best] - at) ? k : best);
      return {x: places[i], lines: [`${placeText(places[i])}: ${shown(sums[i], 'ms')}`,
        ...names.map(n => `${partNames[n]}: ${shown(all[n][i], 'ms')} (${(100 * all[n][i] / (sums[i] || 1)).toFixed(0)}%)`), ...resumedNear(frame, restarts, pixels)]};
    });
    picksRange(frame);
    return frame.picture;
  }, {run: run.key, viewed: true});
  drawing.legend.append(...names.map((n, k) => key(partNames[n], colour(k), 'box')));
  return drawing.element;
}
// Stacked areas. `alone`: the only iteration fills the frame.
function drawAreas(frame, places, values, alone) {
  const {X, Y, left, right, inside} = frame, below = places.map(() => 0);
  const at = alone ? () => [left, right] : i => [X(places[i])];
  values.forEach((list, k) => {
    const edge = () => places.flatMap((_, i) => at(i).map(x => `${x.toFixed(1)} ${Y(below[i]).toFixed(1)}`));
    const lower = edge().reverse();
    list.forEach((value, i) => { below[i] += value; });
    inside.append(svg('path', {class: 'part', fill: colour(k), 'fill-opacity': 0.8, d: `M${edge().concat(lower).join('L')}Z`}));
  });
}
