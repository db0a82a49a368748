// The reader's choices for the curves: the x axis, the visible interval of it, and the way of drawing.

const view = {along: 'iteration', from: null, to: null, smooth: 0, log: false, cut: true};
// The possible x axes, by the name of a curve of each run, with units from small to large.
const axes = {
  iteration: {title: 'iteration', units: [[1, 'iteration']], pad: 0.5},
  tokens: {title: 'tokens', units: [[1, 'tokens'], [1e3, 'thousand tokens'], [1e6, 'million tokens'], [1e9, 'billion tokens'], [1e12, 'trillion tokens']], pad: 1},
  seconds: {title: 'time', units: [[1, 'seconds'], [60, 'minutes'], [3600, 'hours'], [86400, 'days']], pad: 1, since: ' since the start'},
};
const runs = json('runs');
const several = runs.length > 1;
// The last parts of the run's paths, if these are unique.
const lasts = runs.map(run => run.name.split('/').pop());
runs.forEach((run, r) => {
  run.label = new Set(lasts).size === runs.length ? lasts[r] : run.name;
  run.key = `run ${r}`;
});
const trained = () => runs.map((run, r) => [run, r]).filter(([run]) => run.curves);
const visible = () => trained().filter(([run]) => !isHidden(run.key));
const has = axis => trained().every(([run]) => run.curves[axis]);

const along = run => run.curves[view.along];
// The place of an iteration along x: between or beyond its neighbours among the places of a curve.
function place(run, iteration) {
  const from = run.curves.iteration, to = along(run);
  if (to === from) return iteration;
  if (from.length === 1) return to[0];
  let low = 0, high = from.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle] <= iteration) low = middle;
    else high = middle;
  }
  return to[low] + (iteration - from[low]) / (from[high] - from[low]) * (to[high] - to[low]);
}
// The visible interval, the same in all figures, as an axis of `width` pixels.
function seenAlong(width) {
  const axis = axes[view.along], all = visible().map(([run]) => along(run));
  const first = all.length ? least(all.map(x => x[0])) : 0, last = all.length ? most(all.map(x => x[x.length - 1])) : 1;
  let from = view.from === null ? first : Math.max(view.from, first), to = view.to === null ? last : Math.min(view.to, last);
  if (!(to > from)) [from, to] = [first, last];
  if (!(to > from)) [from, to] = [from - axis.pad, to + axis.pad];
  const [size, unit] = unitOf(to);
  let list = ticks(from / size, to / size, Math.max(2, Math.floor(width / 110)));
  if (view.along === 'iteration') list = list.filter(Number.isInteger);
  if (!list.length) list = [Math.round((from + to) / 2 / size)];
  const texts = list.map(v => view.along === 'iteration' ? (v >= 1e7 ? v.toExponential(1) : String(v)) : tickText(v, list));
  return {from, to, ticks: list.map(v => v * size), texts, name: unit + (axis.since || '')};
}
const unitOf = value => axes[view.along].units.filter(([size]) => size === 1 || value >= 2 * size).pop();
function placeText(x) {
  const [size, unit] = unitOf(x);
  return size === 1 && view.along === 'iteration' ? `iteration ${shown(x)}` : `${shown(x / size)} ${unit}${axes[view.along].since || ''}`;
}
function look(change) {
  Object.assign(view, change);
  redraw(drawing => drawing.viewed);
}
const whole = {from: null, to: null};
const picksRange = frame => picks(frame, (from, to) => look({from, to}), () => look(whole));

// ---- resumptions of runs ----

const resumptions = trained().flatMap(([run, r]) => (run.resumptions || []).map(one => ({...one, run, r})));
resumptions.forEach((one, i) => {
  const told = ([name, now, before]) => `${name}${name === 'layout' ? '' : ':'} ${now} (before: ${before})`;
  const of = name => one.changes.filter(change => (change[0] === 'layout') === (name === 'layout')).map(told);
  one.number = i + 1;
  one.moved = of('layout').length > 0;
  const where = one.moved ? of('layout')[0] : `the same layout${one.layout ? ', ' + one.layout : ''}`;
  one.words = [`resumed after iteration ${one.after} in ${where}`, ...of('rest')].join('; ');
});
const resumedAt = one => view.along === 'seconds' ? one.seconds : place(one.run, one.after + 0.5);
function resumptionsSeen(list, x) {
  const inside = at => at >= x.from && at <= x.to;
  return list.filter(one => !isHidden(one.run.key) && inside(resumedAt(one))).sort((a, b) => resumedAt(a) - resumedAt(b));
}
function markResumptions(frame, list) {
  let free = frame.left;
  for (const one of list) {
    const at = frame.X(resumedAt(one)), text = String(one.number), half = widest([text]) + 6;
    frame.picture.append(svg('path', {class: one.moved ? 'resumed moved' : 'resumed', d: `M${at.toFixed(1)} ${frame.top}V${frame.bottom}`, style: several ? `stroke:${colour(one.r)}` : null}));
    if (at < free || at + half > frame.right) continue;
    free = at + half + 4;
    frame.picture.append(svg('text', {class: 'resumption', x: (at + 3).toFixed(1), y: frame.top + 10}, text));
  }
}
// Texts about the resumptions near a place in pixels.
const resumedNear = (frame, list, at) => list.filter(one => Math.abs(frame.X(resumedAt(one)) - at) < 8)
  .map(one => `${one.number}: ${several ? one.run.label + ' ' : ''}${one.words}`);
// Whether the run was resumed before its i-th place.
function restartedAt(run, i) {
  const {iteration} = run.curves;
  return i > 0 && resumptions.some(one => one.run === run && iteration[i - 1] <= one.after && one.after < iteration[i]);
}
// The run stood still there, so no line leads to that place.
const paused = (run, i) => view.along === 'seconds' && restartedAt(run, i);
// Indices of a run's places, split into intervals that end where `ends` is true.
function intervalsOf(list, ends) {
  const intervals = [[]];
  for (const i of list) {
    if (ends(i) && intervals[intervals.length - 1].length) intervals.push([]);
    intervals[intervals.length - 1].push(i);
  }
  return intervals;
}
// Each layout has its own speed, so spikes are found separately for each start.
const cutOfRun = (run, own, values) => cutAbove(intervalsOf(own, i => restartedAt(run, i)).map(interval => interval.map(i => values[i])));
