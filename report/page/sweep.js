// The page of a sweep.

const sweep = json('sweep'), timelines = json('timelines');
const points = sweep.points.filter(p => p.step_ms !== undefined);
const alike = points.filter(p => p.efficiency !== undefined);  // points with the same work
const speed = p => p.tokens_per_second.all;
// A point's name without the words that all points share.
const words = p => p.point.split(' '), first = sweep.points.find(p => p.point.includes('='));
const shared = new Set(first ? words(first).filter(w => sweep.points.every(p => !p.point.includes('=') || words(p).includes(w))) : []);
function short(p) {
  const named = words(p).filter(w => !shared.has(w)).join(' ') || p.point;
  return named.replace('schedule=', '').replace('micro_batch_size', 'mbs').replace('global_batch_size', 'gbs');
}

// The mean step of the table; its parts add up to it.
const partNames = {products: 'products', kernels: 'other kernels', waiting: 'waiting for the pipeline', rest: 'communication and the rest'};
const partFills = {products: colour(0), kernels: colour(1), waiting: colour(2), rest: colour(3)};
function stepParts() {
  const limit = 30, sum = p => Object.values(p.parts_ms || {}).reduce((total, ms) => total + ms, 0);
  const all = points.filter(p => sum(p) > 0), list = [...all].sort((a, b) => speed(b) - speed(a)).slice(0, limit);
  if (!list.length) return null;
  const names = Object.keys(partNames).filter(name => list.some(p => p.parts_ms[name] > 0));
  const rows = all.filter(p => list.includes(p)).map(p => ({label: short(p), text: brief(p.step_ms), segments: names.map(name => {
    const value = p.parts_ms[name] || 0;
    return {value, fill: partFills[name], title: `${p.point}: ${partNames[name]} ${brief(value)} ms of ${brief(p.step_ms)} ms`};
  })}));
  const words = ["ms a step, ranks' mean, by the clock"];
  if (!list.some(p => p.parts_ms.kernels)) words.push('kernels on a GPU are in the rest');
  if (list.length < all.length) words.push(`the ${list.length} fastest of ${all.length} points`);
  return barChart('parts', 'Where a step goes', () => rows,
    {wide: true, legend: names.map(name => [partNames[name], partFills[name]]), small: words.join('; ')}).element;
}

// ---- the table ----

const percent = ratio => isNumber(ratio) ? 100 * ratio : undefined;
const columns = [
  ['point', p => p.point], ['ranks', p => p.ranks], ['ms a step', p => p.step_ms],
  ...(sweep.predicted_for ? [['predicted ms', p => p.predicted_ms], ['median ms', p => p.median_ms]] : []),
  ['tokens/s', p => p.tokens_per_second && speed(p)],
  ['± %', p => p.tokens_per_second && 50 * (p.tokens_per_second.most - p.tokens_per_second.least) / speed(p)],
  ['efficiency', p => p.efficiency], ['MFU %', p => percent(p.mfu)], ['bubble %', p => percent(p.bubble_ratio)],
  ['by the clock %', p => percent(p.bubble_ratio_wall)], ['predicted bubble %', p => percent(p.bubble_predicted)],
  ['MiB a rank', p => p.peak_memory && inMib(p.peak_memory)], ['planned MiB', p => inMib(p.planned_memory)],
  ...[...new Set(points.flatMap(p => Object.keys(p.bytes_sent)))].map(group => [`MiB sent, ${group}`, p => p.bytes_sent && inMib(p.bytes_sent[group] || 0)]),
  ['loss', p => p.loss, value => isNumber(value) ? value.toFixed(5) : ''],
  ['', p => p.loss_differs ? 'LOSS DIFFERS' : p.status === 'ok' ? (p.not_compared ? `not compared with the prediction: ${p.not_compared}` : '') : `${p.status}: ${p.reason}`, String, 'text']];
function tableOfPoints() {
  let sorted = 2, up = true;
  const body = html('tbody'), filter = document.getElementById('filter');
  const head = columns.map(([name], i) => {
    const button = html('button', {type: 'button'}, name), cell = html('th', {scope: 'col'}, button);
    button.addEventListener('click', () => { up = i === sorted ? !up : true; sorted = i; show(); });
    return {name, button, cell};
  });
  const row = p => html('tr', {}, ...columns.map(([, of, text, kind], i) => {
    const value = of(p);
    if (i === 0) return html('th', {scope: 'row'}, value);
    return html('td', {class: kind ? `${kind}${value === 'LOSS DIFFERS' ? ' loud' : ''}` : null}, (text || brief)(value));
  }));
  function show() {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean), of = columns[sorted][1];
    const list = sweep.points.filter(p => wanted.every(word => `${p.point} ${p.schedule} ${p.status}`.toLowerCase().includes(word)));
    list.sort((a, b) => {
      const x = of(a), y = of(b);
      if (!isNumber(x)) return 1;
      if (!isNumber(y)) return -1;
      return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
    });
    body.replaceChildren(...list.map(row));
    head.forEach(({name, button, cell}, i) => {
      button.textContent = name + (i === sorted ? (up ? ' ▲' : ' ▼') : '');
      if (i === sorted) cell.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      else cell.removeAttribute('aria-sort');
    });
  }
  filter.addEventListener('input', show);
  show();
  return scrolling('the points', html('table', {}, html('thead', {}, html('tr', {}, ...head.map(({cell}) => cell))), body));
}

// ---- the page ----

const charts = {speed: scaling, memory: memoryAgainstPlan, 'time and memory': timeAndMemory, bubble: bubblesByDepth,
  ...(sweep.predicted_for ? {predictions} : {}), parts: stepParts};
const drawn = Object.entries(charts).map(([name, make]) => ({name, element: make()})), leftOut = drawn.filter(({element}) => !element);
document.getElementById('figures').append(...drawn.map(({element}) => element).filter(one => one));
if (leftOut.length) document.getElementById('figures').after(html('p', {class: 'dim'}, `Left out, as fewer than two dots would be in them: ${leftOut.map(({name}) => name).join(', ')}.`));
document.getElementById('table').append(tableOfPoints());
timelines.forEach(({what, point, list}, i) => {
  const figures = list.filter(data => data.events.length).map((data, k) => timeline(`timeline-${i}-${k}`, data));
  if (figures.length) document.getElementById('iterations').append(html('h2', {}, `An iteration of the point that is ${what}: ${point}`), html('div', {class: 'figures'}, ...figures));
});
redraw();
redrawOnResize();
document.documentElement.dataset.ready = 'yes';
