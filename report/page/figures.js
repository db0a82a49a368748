// Figures. Each figure redraws itself when the window's width or the shown selection changes. Here is
// their common part: legends, tips under the pointer, selected intervals, frames with two axes.

// More: wide; small: text next to the caption; run: the only run that the figure shows; viewed: it
// follows the reader's view.
const drawings = [];
function figure(id, caption, draw, more = {}) {
  const canvas = html('div'), legend = html('div', {class: 'legend'});
  const tip = html('div', {class: 'tip', hidden: ''}), note = html('p', {class: 'note'});
  const element = html('figure', {id, class: more.wide ? 'wide' : null},
    html('figcaption', {}, caption, more.small ? html('small', {}, ' ' + more.small) : null), legend, canvas, note, tip);
  const drawing = {
    element, canvas, legend, tip, note, run: more.run, viewed: more.viewed, leave: () => { tip.hidden = true; },
    redraw() {
      element.hidden = isHidden(drawing.run);
      if (element.hidden) return;
      drawing.leave();
      const style = getComputedStyle(element);
      const room = element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
      canvas.replaceChildren(draw(Math.max(200, Math.floor(room)), drawing));
      note.hidden = !note.textContent;
    },
  };
  drawings.push(drawing);
  return drawing;
}
function redraw(which = () => true) {
  for (const drawing of drawings.filter(which)) drawing.redraw();
}
function redrawOnResize() {
  let known = document.documentElement.clientWidth;
  addEventListener('resize', () => {
    if (document.documentElement.clientWidth === known) return;
    known = document.documentElement.clientWidth;
    redraw();
  });
}

// ---- hiding runs, and curves of a run ----

const hidden = new Set();
const isHidden = what => hidden.has(what);
function toggle(what) {
  if (!hidden.delete(what)) hidden.add(what);
  for (const button of document.querySelectorAll('button[data-hides]')) {
    button.setAttribute('aria-pressed', String(!hidden.has(button.dataset.hides)));
  }
  redraw(drawing => drawing.viewed || drawing.run === undefined || drawing.run === what);
}
// A name with its colour. `hides`: makes it a button that hides the named item and shows it again.
function key(name, stroke, kind, hides) {
  const swatch = html('i', {class: kind, style: kind.startsWith('box') ? `background:${stroke}` : `border-color:${stroke}`});
  if (hides === undefined) return html('span', {}, swatch, name);
  const button = html('button', {type: 'button', 'data-hides': hides, 'aria-pressed': 'true', title: 'hide or show'}, swatch, html('span', {}, name));
  button.addEventListener('click', () => toggle(hides));
  return button;
}

// ---- under the pointer ----

function showTip(drawing, event, text) {
  const box = drawing.element.getBoundingClientRect(), tip = drawing.tip;
  tip.textContent = text;
  tip.hidden = false;
  const left = event.clientX - box.left, top = event.clientY - box.top;
  tip.style.top = `${Math.min(top + 12, Math.max(0, box.height - tip.offsetHeight - 4))}px`;
  tip.style.left = `${Math.max(4, left + 14 + tip.offsetWidth > box.width ? left - 14 - tip.offsetWidth : left + 14)}px`;
}
// `describe` returns, for a place along x, {x: the nearest place, lines}, or null. A tip opened by a
// finger stays until the finger touches another place.
function hover(drawing, frame, describe) {
  const {picture} = frame, cursor = svg('path', {class: 'cursor', d: ''});
  picture.append(cursor);
  drawing.leave = () => { drawing.tip.hidden = true; cursor.setAttribute('d', ''); };
  const show = event => {
    const box = picture.getBoundingClientRect(), at = (event.clientX - box.left) * frame.width / box.width;
    const told = at < frame.left || at > frame.right ? null : describe(frame.back(at), at);
    if (!told) { drawing.leave(); return; }
    cursor.setAttribute('d', `M${frame.X(told.x).toFixed(1)} ${frame.top}V${frame.bottom}`);
    showTip(drawing, event, told.lines.filter(line => line).join('\n'));
  };
  picture.addEventListener('pointerdown', show);
  picture.addEventListener('pointermove', show);
  picture.addEventListener('pointerleave', event => { if (event.pointerType !== 'touch') drawing.leave(); });
}
addEventListener('pointerdown', event => {
  for (const drawing of drawings) if (!drawing.element.contains(event.target)) drawing.leave();
});

// Dragging over a picture selects an interval of it. A double click shows everything again.
function picks(frame, pick, whole) {
  const {picture} = frame;
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
    if (event.type === 'pointerup' && Math.abs(to - begin) > 6) pick(frame.back(Math.min(begin, to)), frame.back(Math.max(begin, to)));
  };
  picture.addEventListener('pointerup', end);
  picture.addEventListener('pointercancel', end);
  picture.addEventListener('dblclick', whole);
}

// ---- a frame with two axes ----

const chartHeight = width => Math.round(Math.min(340, Math.max(220, width * 0.42)));
// An axis: {from, to, ticks, texts of the ticks, name, log}. `back` converts pixels to x, which must not
// be logarithmic then. Shapes in `inside` are clipped at the frame.
function chart(id, width, height, x, y, label) {
  const frame = {width, left: 16 + Math.max(20, widest(y.texts)), right: width - 10, top: 22, bottom: height - 24};
  const scale = (axis, begin, end) => {
    const flat = axis.log ? Math.log : v => v, low = flat(axis.from), high = flat(axis.to);
    return v => begin + (flat(v) - low) / (high - low) * (end - begin);
  };
  frame.X = scale(x, frame.left, frame.right);
  frame.Y = scale(y, frame.bottom, frame.top);
  frame.back = at => x.from + (at - frame.left) / (frame.right - frame.left) * (x.to - x.from);
  frame.picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label});
  frame.inside = svg('g', {'clip-path': `url(#clip-${id})`});
  const {picture, left, right, top, bottom} = frame;
  y.ticks.forEach((v, i) => picture.append(
    svg('path', {class: 'grid', d: `M${left} ${frame.Y(v).toFixed(1)}H${right}`}),
    svg('text', {x: left - 6, y: (frame.Y(v) + 4).toFixed(1), 'text-anchor': 'end'}, y.texts[i])));
  let free = left;
  x.ticks.forEach((v, i) => {
    const half = widest([x.texts[i]]) / 2, at = Math.min(right - half, Math.max(left + half, frame.X(v)));
    if (at - half < free) return;
    free = at + half + 8;
    picture.append(svg('text', {x: at.toFixed(1), y: height - 8, 'text-anchor': 'middle'}, x.texts[i]));
  });
  picture.append(svg('text', {class: 'dim', x: 4, y: 13}, y.name || ''),
    svg('text', {class: 'dim', x: right, y: 13, 'text-anchor': 'end'}, x.name),
    svg('clipPath', {id: `clip-${id}`}, svg('rect', {x: left - 3, y: top - 2, width: right - left + 6, height: bottom - top + 4})), frame.inside);
  return frame;
}
