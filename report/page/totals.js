// The resources of a run, as bars: bytes sent, the bubble of each pipeline rank, memory.

function traffic() {
  const groups = [...new Set(trained().flatMap(([run]) => Object.keys(run.bytes_sent)))]
    .filter(group => trained().some(([run]) => run.bytes_sent[group] > 0));
  if (!groups.length) return null;
  const rows = () => groups.flatMap(group => visible().map(([run, r]) => {
    const value = run.bytes_sent[group] || 0;
    return {label: several ? `${group}, ${run.label}` : group, segments: [{value, fill: colour(several ? r : 0), title: `${group}: ${value} bytes`}], text: bytes(value)};
  }));
  return barChart('traffic', 'Bytes sent by group', rows, {small: 'an iteration, all ranks'}).element;
}
function rankBubbles() {
  const list = of => of.filter(([run]) => run.pipeline > 1);
  if (!list(trained()).length) return null;
  const rows = () => list(visible()).flatMap(([run, r]) => run.rank_bubble.map((value, p) => ({
    label: several ? `${run.label}, rank ${p}` : `rank ${p}`, text: `${value.toFixed(1)}%`,
    segments: [{value: Math.max(0, value), fill: colour(several ? r : 0), title: `pipeline rank ${p}: ${value}%`}]})));
  return barChart('bubble-by-rank', 'Bubble of each pipeline rank', rows, {small: '% of an iteration, by CPU time'}).element;
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
  const {element} = barChart(`memory${several ? '-' + r : ''}`, 'Memory' + (several ? `: ${run.label}` : ''), () => rows,
    {legend: names.map((n, i) => [n, fills[i]]), small: 'of the largest rank, MiB', run: run.key});
  const cell = value => html('td', {}, value === undefined ? '' : mib(value));
  const line = (n, type) => html('tr', {class: type}, html('th', {scope: 'row'}, n), cell(measured[n] || 0), known ? cell(predicted[n] || 0) : null);
  element.append(html('details', {}, html('summary', {}, 'numbers'), html('table', {class: 'numbers'},
    html('thead', {}, html('tr', {}, html('td', {}, ''), html('td', {}, 'measured'), known ? html('td', {}, 'predicted') : null)),
    html('tbody', {}, ...names.map(n => line(n)), line('total', 'total')))),
    html('p', {class: 'note'}, 'Each category at its own peak; the total is the largest at one time, so it may be less than their sum.'));
  return element;
}
