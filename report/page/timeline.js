// An iteration: a row for each rank, with compute above and communication in thin lanes below.

const looks = {
  forward: ['forward', '#56b4e9'], backward: ['backward', '#e69f00'], backward_input: ['input gradient', '#f0e442'],
  backward_weight: ['weight gradient', '#2fb58a'], optimizer: ['optimizer', '#f0803c'], transfer: ['transfer', '#8a8a8a'],
  tensor_parallel: ['tensor parallel', '#3f8fd0'], gradient_reduction: ['gradient reduction', '#cc79a7'],
  weight_gather: ['weight gather', '#b05588'], all_reduce: ['other all-reduce', '#8478d8'],
  token_dispatch: ['token dispatch', '#44aa99'], token_combine: ['token combine', '#999933'],
  context_parallel: ['context parallel', '#6699cc'],
};
const computes = ['forward', 'backward', 'backward_input', 'backward_weight', 'optimizer'];

// The drawn contents of a timeline ({title, rows, events}), for any window.
function readTimeline(data) {
  const events = data.events.map(([row, category, start, duration, name, stage, microbatch, sent]) =>
    ({row, category, start, duration, name, stage, microbatch, sent, thin: !computes.includes(category)})).filter(e => looks[e.category]);
  const ranks = Math.max(data.rows.length, ...[most([0, ...events.map(e => e.row + 1)])]);
  const stages = Array.from({length: ranks}, () => []);
  for (const e of events) if (e.stage >= 0 && !stages[e.row].includes(e.stage)) stages[e.row].push(e.stage);
  stages.forEach(list => list.sort((a, b) => a - b));
  return {
    events, ranks, stages,
    first: least(events.map(e => e.start)), last: most(events.map(e => e.start + e.duration)),
    lanes: Object.keys(looks).filter(c => !computes.includes(c) && events.some(e => e.category === c)),
    name: row => data.rows[row] || `rank ${row}`,
  };
}
function timelineFrame(width, line, window) {
  const names = Array.from({length: line.ranks}, (_, r) => line.name(r)), longest = widest(names);
  const short = longest > width * 0.22;  // if true, only the rank's number is shown
  const frame = {width, left: short ? 34 : 14 + longest, right: width - 10, top: 4};
  frame.labels = short ? names.map((text, r) => (text.match(/\d+/) || [String(r)])[0]) : names;
  frame.lane = 5;
  frame.compute = line.ranks > 24 ? 12 : line.ranks > 8 ? 20 : 28;
  frame.height = frame.compute + frame.lane * line.lanes.length;
  frame.row = frame.height + 4;
  frame.bottom = frame.top + line.ranks * frame.row;
  const span = window.to - window.from;
  frame.X = us => frame.left + (us - window.from) / span * (frame.right - frame.left);
  frame.back = at => window.from + (at - frame.left) / (frame.right - frame.left) * span;
  frame.picture = svg('svg', {viewBox: `0 0 ${width} ${frame.bottom + 36}`, role: 'img'});
  return frame;
}
function drawRows({picture, left, right, top, bottom, labels, compute, height, row, X}, line, window) {
  labels.forEach((label, r) => picture.append(
    svg('rect', {class: 'idle', x: left, y: top + r * row, width: right - left, height}),
    svg('text', {x: left - 6, y: top + r * row + compute / 2 + 4, 'text-anchor': 'end'}, label)));
  const offset = (window.from - line.first) / 1000, span = (window.to - window.from) / 1000;
  ticks(offset, offset + span, Math.max(2, Math.floor((right - left) / 110) - 1)).forEach((v, i, list) => {
    const text = tickText(v, list), at = X(line.first + v * 1000), half = 3.6 * text.length;
    picture.append(svg('path', {class: 'grid', d: `M${at.toFixed(1)} ${top}V${bottom + 3}`}),
      svg('text', {x: Math.min(right - half, Math.max(left + half, at)).toFixed(1), y: bottom + 16, 'text-anchor': 'middle'}, text));
  });
  picture.append(svg('text', {class: 'dim', x: right, y: bottom + 32, 'text-anchor': 'end'}, 'ms'));
}
function drawEvent(frame, line, window, e) {
  const begin = Math.max(e.start, window.from), end = Math.min(e.start + e.duration, window.to);
  if (end < begin || e.start > window.to) return;
  const {picture, X, top, row, compute, lane} = frame;
  const x = X(begin), wide = Math.max(0.3, X(end) - x), y = top + e.row * row + (e.thin ? compute + lane * line.lanes.indexOf(e.category) : 0);
  const held = line.stages[e.row], chunk = held.length > 1 && !e.thin && e.stage >= 0 ? held.indexOf(e.stage) / (held.length - 1) : 0;
  const [, fill] = looks[e.category], ms = us => shown((us - line.first) / 1000);
  picture.append(svg('rect', {class: e.category, x: x.toFixed(2), y, width: wide.toFixed(2), height: e.thin ? lane : compute,
    style: `fill:${chunk > 0 ? `color-mix(in srgb, ${fill} ${Math.round(100 - 55 * chunk)}%, #fff)` : fill}`,
    stroke: wide >= 3 && !e.thin ? '#444' : null, 'stroke-width': 0.5},
    svg('title', {}, `${line.name(e.row)}: ${e.name}, ${e.sent >= 0 ? bytes(e.sent) + ' sent, ' : ''}${ms(e.start)} to ${ms(e.start + e.duration)} ms (${shown(e.duration / 1000)} ms)`)));
  if (!e.thin && e.microbatch >= 0 && compute > 11 && wide > 7 * String(e.microbatch).length + 3) {
    picture.append(svg('text', {class: 'box', x: (x + wide / 2).toFixed(1), y: y + compute / 2 + 4}, String(e.microbatch)));
  }
}
function timeline(id, data, run) {
  const [title, ...lines] = data.title.split('\n'), line = readTimeline(data);
  const window = {from: line.first, to: line.last};
  const see = (from, to) => { Object.assign(window, {from, to}); drawing.redraw(); };
  const drawing = figure(id, title, width => {
    const frame = timelineFrame(width, line, window);
    frame.picture.setAttribute('aria-label', title);
    drawRows(frame, line, window);
    for (const e of line.events) drawEvent(frame, line, window, e);
    picks(frame, see, () => see(line.first, line.last));
    return frame.picture;
  }, {wide: true, run});
  drawing.legend.append(...Object.keys(looks).filter(c => line.events.some(e => e.category === c)).map(c => key(looks[c][0], looks[c][1], 'box')),
    key('idle', 'var(--idle)', 'box'), ...(line.stages.some(list => list.length > 1) ? [html('span', {}, 'lighter: a later chunk of the rank')] : []));
  const zoom = factor => {
    const middle = (window.from + window.to) / 2, half = Math.max(0.5, (window.to - window.from) / 2 * factor);
    see(Math.max(line.first, middle - half), Math.min(line.last, middle + half));
  };
  const button = (text, factor, tells) => {
    const one = html('button', {type: 'button', 'aria-label': tells}, text);
    one.addEventListener('click', () => zoom(factor));
    return one;
  };
  drawing.element.insertBefore(html('div', {class: 'controls'}, button('+', 0.5, 'zoom in'), button('−', 2, 'zoom out'), button('whole', Infinity, 'the whole iteration')), drawing.canvas);
  for (const text of lines) drawing.element.insertBefore(html('p', {class: 'note'}, text), drawing.canvas);
  return drawing.element;
}
