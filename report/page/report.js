// The page of a run, or of several runs next to each other.

json('timelines').forEach((list, i) => { runs[i].timelines = list; });
const page = document.getElementById('page');

function facts() {
  if (!several) {
    return html('dl', {id: 'facts'}, ...runs[0].facts.map(([name, value]) => html('div', {}, html('dt', {}, name), html('dd', {}, value))));
  }
  const names = [...new Set(runs.flatMap(run => run.facts.map(([name]) => name)))];
  const row = name => {
    const values = runs.map(run => (run.facts.find(f => f[0] === name) || ['', ''])[1]);
    const same = values.every(value => value === values[0]);  // shown once if there is little room
    return html('tr', {class: same ? 'same' : null}, html('th', {scope: 'row'}, name),
      ...values.map((value, r) => html('td', {'data-run': runs[r].label, style: `--run:${colour(r)}`}, value)));
  };
  const head = html('thead', {}, html('tr', {}, html('td', {}, ''), ...runs.map((run, r) => html('td', {}, html('span', {class: 'legend'}, key(run.name, colour(r), ''))))));
  return fill(scrolling('facts of the runs', html('table', {}, head, html('tbody', {}, ...names.map(row)))), {id: 'facts'}, []);
}
function startedAgain() {
  if (!resumptions.length) return null;
  const list = html('ol', {}, ...resumptions.map(one => html('li', {}, several ? html('b', {}, one.run.label + ' ') : null, one.words)));
  const text = `${resumptions.length === 1 ? 'Started again' : `Started again ${resumptions.length} times`} (lines in the curves; heavier ones where the layout changed)`;
  return html('details', {id: 'resumptions', open: resumptions.length > 8 ? null : ''}, html('summary', {}, text), list);
}
function choice(name, title) {
  const input = html('input', {type: 'radio', name: 'along', value: name, checked: name === view.along ? '' : null, disabled: has(name) ? null : ''});
  input.addEventListener('change', () => look({along: name, ...whole}));
  return html('label', {}, input, title);
}
function check(id, text, name) {
  const input = html('input', {type: 'checkbox', id, checked: view[name] ? '' : null});
  input.addEventListener('change', () => look({[name]: input.checked}));
  return html('label', {}, input, text);
}
function controls() {
  const smooth = html('input', {type: 'range', min: 0, max: 0.99, step: 0.01, value: 0, id: 'smooth'});
  smooth.addEventListener('input', () => look({smooth: +smooth.value}));
  const all = html('button', {type: 'button'}, 'whole run');
  all.addEventListener('click', () => look(whole));
  const shownRuns = several ? html('div', {class: 'legend', id: 'shown', role: 'group', 'aria-label': 'runs that are drawn'},
    ...trained().map(([run, r]) => key(run.label, colour(r), dashes(r) ? 'dashed' : '', run.key))) : null;
  return html('div', {class: 'controls', id: 'controls'},
    html('fieldset', {}, html('legend', {}, 'along'), ...Object.entries(axes).map(([name, {title}]) => choice(name, title))),
    html('label', {}, 'smooth the loss', smooth), check('log', 'logarithmic loss and norm', 'log'), check('cut', 'cut spikes', 'cut'), all,
    html('span', {}, 'drag over a curve to zoom in; press a name to hide it'), shownRuns);
}
function figures() {
  const varies = name => trained().some(([run]) => new Set(run.curves[name].mean).size > 1);
  const list = [losses(), ...auxiliaryLosses(), curveOf('gradient-norm', 'Gradient norm', 'grad_norm', {unit: 'before clipping', log: true, spiky: ''}),
    curveOf('learning-rate', 'Learning rate', 'learning_rate'),
    varies('batch_size') ? curveOf('batch-size', 'Batch', 'batch_size', {unit: 'sequences', zero: true}) : null,
    varies('loss_scale') ? curveOf('loss-scale', 'Loss scale', 'loss_scale') : null,
    curveOf('speed', 'Speed', 'tokens_per_second', {unit: 'tokens/s', zero: true, spiky: 'tokens/s'}),
    curveOf('mfu', 'Model FLOPs utilisation', 'mfu', {unit: '%', zero: true, spiky: '%', unless0: true}),
    ...trained().map(([run, r]) => parts(run, r)), ...statistics(), bubbles(), rankBubbles(), traffic(), ...trained().map(([run, r]) => memory(run, r))];
  for (const run of runs) {
    const r = runs.indexOf(run);
    (run.timelines || []).forEach((data, k) => {
      if (data.events.length) list.push(timeline(`timeline-${r}-${k}`, several ? {...data, title: `${run.label}: ${data.title}`} : data, run.key));
    });
  }
  return html('div', {class: 'figures'}, ...list);
}
function build() {
  page.append(facts());
  if (!trained().length) {
    page.append(html('p', {}, 'No iteration was run.'));
  } else {
    page.append(...[startedAgain(), controls(), figures()].filter(one => one));
  }
  for (const run of runs) {
    const of = several ? `: ${run.label}` : '';
    if (run.sample) page.append(html('details', {open: ''}, html('summary', {}, `A text that the weights have generated${of}`), html('pre', {}, run.sample)));
    page.append(html('details', {}, html('summary', {}, `Config${of}`), html('pre', {}, run.config)));
  }
}

build();
redraw();
redrawOnResize();
