// One layer: its experts as bars, and as a table when it is asked for.
const picker = byId('layer');
for (const [at, layer] of layers.entries()) picker.append(make('option', { value: at }, `layer ${layer.layer}`));

function drawLayer() {
  picker.value = state.row;
  const layer = layers[state.row];
  const sums = sumsOf(layer, state.corpus);
  const order = byId('sorted').checked ? ranking(sums) : sums.count.map((_, id) => id);
  const element = byId('bars');
  const width = Math.max(240, element.clientWidth);
  const height = 150;
  const bar = width / order.length;
  const high = Math.max(1, ...sums.count);
  const stands = marked(layer);
  const svg = make('svg', { viewBox: `0 0 ${width} ${height}`, width: '100%', role: 'img', 'aria-label': `Selections of each expert of layer ${layer.layer}` });
  const selections = sums.count.reduce((sum, count) => sum + count, 0);
  const even = height - 4 - (selections / order.length / high) * (height - 12);
  order.forEach((id, at) => {
    const size = (sums.count[id] / high) * (height - 12);
    const classes = `bar ${stands(id) ? 'blue' : 'gone'}${id === current() ? ' here' : ''}`;
    svg.append(make('rect', { x: (at * bar).toFixed(2), y: (height - 4 - size).toFixed(2), width: Math.max(0.6, bar - (bar > 4 ? 1.5 : 0)).toFixed(2), height: Math.max(0.5, size).toFixed(2), class: classes }));
  });
  svg.append(
    make('line', { x1: 0, x2: width, y1: even, y2: even, class: 'even' }),
    make('text', { x: width - 2, y: even - 5, class: 'axis', 'text-anchor': 'end' }, 'even share'));
  const onPointer = (event) => {
    const rect = svg.getBoundingClientRect();
    const at = Math.floor(((event.clientX - rect.left) / rect.width) * order.length);
    if (at in order) showTip(expertLines(layer, order[at], state.corpus), event.clientX, event.clientY);
  };
  svg.addEventListener('pointermove', onPointer);
  svg.addEventListener('pointerdown', onPointer);
  svg.addEventListener('pointerleave', leaveTip);
  element.replaceChildren(svg);
  if (!byId('experts').hidden) fillTable();
}
drawings.push(drawLayer);

// How even each layer is: the number of experts that would be as even, 2 to the entropy.
function drawSkew() {
  const element = byId('skew-bars');
  const width = Math.max(240, element.clientWidth);
  const [height, foot] = [110, 18];
  const pitch = Math.min(56, width / layers.length);
  const svg = make('svg', { viewBox: `0 0 ${width} ${height + foot}`, width: '100%', role: 'img', 'aria-label': 'How even each layer is; the table below has the figures' });
  const all = layers.map((layer) => {
    const count = sumsOf(layer, state.corpus).count;
    const sum = count.reduce((a, b) => a + b, 0) || 1;
    const bits = count.reduce((a, b) => a - (b ? (b / sum) * Math.log2(b / sum) : 0), 0);
    return { layer, even: 2 ** bits, never: count.filter((one) => one === 0).length, high: Math.max(...count), low: Math.min(...count) };
  });
  const every = Math.ceil(24 / pitch);
  all.forEach(({ layer, even }, at) => {
    const bar = { x: (at * pitch).toFixed(2), width: Math.max(0.8, pitch - (pitch > 5 ? 2 : 0.4)).toFixed(2) };
    const size = Math.max(1, (even / layer.total.count.length) * height);
    svg.append(
      make('rect', { ...bar, y: 0, height, class: 'bar back' }),
      make('rect', { ...bar, y: (height - size).toFixed(2), height: size.toFixed(2), class: 'bar blue' }));
    if (at % every === 0) svg.append(make('text', { x: (at + 0.5) * pitch - 1, y: height + 14, class: 'axis', 'text-anchor': 'middle' }, String(layer.layer)));
  });
  const onPointer = (event) => {
    const rect = svg.getBoundingClientRect();
    const found = all[Math.floor(((event.clientX - rect.left) / rect.width) * width / pitch)];
    if (!found) return hideTip();
    showTip([`Layer ${found.layer.layer}`, `as even as ${found.even.toFixed(1)} experts of ${found.layer.total.count.length}`,
      `busiest over least busy: ${found.low ? digits(found.high / found.low) : '∞'}`, `never selected: ${found.never}`], event.clientX, event.clientY);
    return undefined;
  };
  svg.addEventListener('pointermove', onPointer);
  svg.addEventListener('pointerdown', onPointer);
  svg.addEventListener('pointerleave', leaveTip);
  element.replaceChildren(svg);
}
drawings.push(drawSkew);

// The table has a row an expert, and is there only when it is wanted: all layers together would be tens of thousands.
function fillTable() {
  const layer = layers[state.row];
  const rank = new Map(ranking(layer.total).map((id, at) => [id, at + 1]));
  const head = ['expert', 'rank', 'selections', 'share', ...(corpora.length > 1 ? corpora : []), ...(layer.total.weight ? ['gate weight'] : []), ...(kept ? ['stays'] : [])];
  const all = layer.total.count.reduce((sum, count) => sum + count, 0);
  const rows = layer.total.count.map((count, id) => make('tr', {},
    make('th', { scope: 'row' }, String(id)),
    ...[rank.get(id), grouped(count), finely(count / all),
      ...(corpora.length > 1 ? corpora.map((corpus) => grouped(layer.corpora[corpus].count[id])) : []),
      ...(layer.total.weight ? [layer.total.weight[id].toFixed(1)] : []),
      ...(kept ? [isKept(layer, id) ? 'yes' : 'no'] : [])].map((text) => make('td', {}, String(text)))));
  byId('experts').replaceChildren(make('table', {},
    make('caption', {}, make('span', {}, `The experts of layer ${layer.layer}`)),
    make('thead', {}, make('tr', {}, ...head.map((text) => make('th', { scope: 'col' }, text)))),
    make('tbody', {}, ...rows)));
}
byId('show-experts').addEventListener('click', () => {
  const hidden = !byId('experts').hidden;
  byId('experts').hidden = hidden;
  byId('show-experts').setAttribute('aria-expanded', String(!hidden));
  if (!hidden) fillTable();
});
picker.addEventListener('change', () => { state.row = Number(picker.value); state.place = -1; drawHeat(); drawLayer(); });
byId('sorted').addEventListener('change', drawLayer);

// The switches. A browser may have kept their state from before.
const drawRouting = () => { drawHeat(); drawCurves(); drawLayer(); drawSkew(); };
for (const input of document.querySelectorAll('input[name=corpus]')) {
  const take = () => { if (input.checked) { state.corpus = input.value === '' ? null : corpora[Number(input.value)]; } };
  take();
  input.addEventListener('change', () => {
    take();
    drawRouting();
    byId('heat-says').textContent = state.corpus === null ? 'All corpora together' : `Corpus ${state.corpus}`;
  });
}
for (const input of document.querySelectorAll('input[name=mark]')) {
  if (input.checked) state.mark = input.value;
  input.addEventListener('change', () => { state.mark = input.value; drawRouting(); });
}
for (const input of document.querySelectorAll('input[name=order]')) {
  if (input.checked) state.order = input.value;
  input.addEventListener('change', () => { Object.assign(state, { order: input.value, place: -1 }); drawRouting(); });
}
