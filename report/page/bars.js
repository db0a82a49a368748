// Bar charts, with the values next to the bars.

// `rows` returns {label, segments: [{value, fill, title}], text} of the rows that aren't hidden. More:
// legend ([name, fill] pairs), small (text next to the caption), run.
function barChart(id, caption, rows, more = {}) {
  const drawing = figure(id, caption, width => {
    const list = rows();
    const largest = most([1e-9, ...list.map(row => row.segments.reduce((sum, s) => sum + s.value, 0))]);
    const values = widest(list.map(row => row.text)), labels = widest(list.map(row => row.label));
    const above = labels > width * 0.3;  // the labels are then above their bars
    const row = above ? 40 : 26, bar = 16;
    const left = above ? 4 : 12 + labels, room = width - left - 12 - values;
    const picture = svg('svg', {viewBox: `0 0 ${width} ${list.length * row + 6}`, role: 'img', 'aria-label': caption});
    list.forEach((one, i) => {
      const y = i * row + 4 + (above ? 16 : 0);
      picture.append(svg('text', {x: above ? left : left - 6, y: above ? y - 4 : y + 13, 'text-anchor': above ? 'start' : 'end'}, fitted(one.label, width - 8), svg('title', {}, one.label)));
      let x = left;
      for (const segment of one.segments) {
        const wide = segment.value / largest * room;
        if (wide <= 0) continue;
        picture.append(svg('rect', {class: 'bar', x: x.toFixed(1), y, width: Math.max(0.5, wide).toFixed(1), height: bar, fill: segment.fill}, svg('title', {}, segment.title)));
        x += wide;
      }
      picture.append(svg('text', {x: (x + 5).toFixed(1), y: y + 13}, one.text));
    });
    return picture;
  }, more);
  drawing.legend.append(...(more.legend || []).map(([name, fill]) => key(name, fill, 'box')));
  return drawing;
}
