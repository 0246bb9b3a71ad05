// The heat map, the coverage curves and the layer that is looked at. One switch says which corpus they show.
const canvas = byId('heat');
const state = { corpus: null, mark: kept ? 'kept' : 'none', order: 'id', row: 0, place: -1 };

// The largest share that a colour is for: beyond it lie the few busiest experts.
const ratios = layers.flatMap((layer) => [null, ...corpora].flatMap((corpus) => {
  const sums = sumsOf(layer, corpus);
  const even = sums.count.reduce((sum, count) => sum + count, 0) / sums.count.length;
  return even ? sums.count.map((count) => count / even) : [];
})).sort((a, b) => a - b);
const top = Math.max(2, ratios[Math.floor((ratios.length - 1) * 0.995)]);

// Which experts stand out: those that stay by the plan, or the busiest half of a layer.
function marked(layer) {
  if (state.mark === 'kept') return (id) => isKept(layer, id);
  if (state.mark === 'half') {
    const hot = new Set(ranking(sumsOf(layer, state.corpus)).slice(0, Math.ceil(layer.total.count.length / 2)));
    return (id) => hot.has(id);
  }
  return () => true;
}

// The experts of a layer from left to right: by id, or the busiest of all corpora together first.
const rankings = new Map();
function columns(layer) {
  const key = `${state.order} ${layer.layer}`;
  if (!rankings.has(key)) rankings.set(key, state.order === 'use' ? ranking(layer.total) : layer.total.count.map((_, id) => id));
  return rankings.get(key);
}
// The expert that was pointed at, in the layer that is looked at.
const current = () => columns(layers[state.row])[state.place];

function geometry() {
  const width = Math.max(200, canvas.clientWidth);
  const left = layers.at(-1).layer > 99 ? 34 : 26;
  const row = Math.max(4, Math.min(30, Math.floor(520 / layers.length)));
  return { width, left, row, top: 7, cell: (width - left) / widest, height: layers.length * row + 31 };
}

function drawHeat() {
  const { width, left, row, top: above, cell, height } = geometry();
  const scale = Math.min(4, Math.max(1, devicePixelRatio || 1) * (printing ? 2 : 1));
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext('2d');
  pen.scale(scale, scale);
  const colours = page.colours[isDark() ? 'dark' : 'light'];
  const [ink, paper] = isDark() ? ['#9aa6b0', '#14181c'] : ['#5b6670', '#fcfcfa'];
  const gap = cell >= 5 && row >= 8 ? 1 : 0;
  const snap = (value) => Math.round(value * scale) / scale;
  layers.forEach((layer, at) => {
    const sums = sumsOf(layer, state.corpus);
    const even = sums.count.reduce((sum, count) => sum + count, 0) / sums.count.length;
    const stands = marked(layer);
    const y = above + at * row;
    columns(layer).forEach((id, place) => {
      const count = sums.count[id];
      const share = even ? Math.min(1, Math.sqrt(count / even / top)) : 0;
      const x = snap(left + place * cell);
      const size = [Math.max(1 / scale, snap(left + (place + 1) * cell) - x - gap), row - gap];
      pen.fillStyle = colours[Math.round(share * (colours.length - 1))];
      pen.fillRect(x, y, ...size);
      if (!stands(id)) {
        pen.globalAlpha = 0.78;
        pen.fillStyle = paper;
        pen.fillRect(x, y, ...size);
        pen.globalAlpha = 1;
        if (gap) {
          pen.strokeStyle = ink;
          pen.globalAlpha = 0.45;
          pen.lineWidth = 1;
          pen.beginPath();
          pen.moveTo(x + 1, y + row - gap - 1);
          pen.lineTo(x + size[0] - 1, y + 1);
          pen.stroke();
          pen.globalAlpha = 1;
        }
      }
    });
  });
  pen.fillStyle = ink;
  pen.font = '11px system-ui, sans-serif';
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  const every = Math.ceil(13 / row);
  layers.forEach((layer, at) => {
    if (at % every === 0) pen.fillText(layer.layer, left - 6, above + (at + 0.5) * row);
  });
  pen.textAlign = 'center';
  pen.textBaseline = 'top';
  for (const id of ticks(0, widest - 1, Math.max(3, width / 80))) {
    if (Number.isInteger(id)) pen.fillText(id, left + (id + 0.5) * cell, above + layers.length * row + 6);
  }
  if (document.activeElement === canvas && canvas.matches(':focus-visible')) {
    pen.strokeStyle = isDark() ? '#f0a05a' : '#b8560f';
    pen.lineWidth = 2;
    pen.strokeRect(left + Math.max(0, state.place) * cell - 1, above + state.row * row - 1, Math.max(cell, 3) + 1, row + 1);
  }
}
drawings.push(drawHeat);

function cellAt(event) {
  const { left, row, top: above, cell } = geometry();
  const rect = canvas.getBoundingClientRect();
  const at = Math.floor((event.clientY - rect.top - above) / row);
  const place = Math.floor((event.clientX - rect.left - left) / cell);
  const layer = layers[at];
  return layer && place in columns(layer) ? { at, place, layer } : null;
}
function onHeat(event) {
  const found = cellAt(event);
  if (!found) return hideTip();
  showTip(expertLines(found.layer, columns(found.layer)[found.place], state.corpus), event.clientX, event.clientY);
  return undefined;
}
canvas.addEventListener('pointermove', onHeat);
canvas.addEventListener('pointerdown', (event) => {
  onHeat(event);
  const found = cellAt(event);
  if (found) { Object.assign(state, { row: found.at, place: found.place }); drawLayer(); }
});
canvas.addEventListener('pointerleave', leaveTip);
canvas.addEventListener('focus', drawHeat);
canvas.addEventListener('blur', () => { if (tipFocus === canvas) hideTip(); drawHeat(); });
canvas.addEventListener('keydown', (event) => {
  const [rows, places] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [0, 0];
  if (!rows && !places) return;
  event.preventDefault();
  state.row = Math.min(layers.length - 1, Math.max(0, state.row + rows));
  const layer = layers[state.row];
  state.place = Math.min(layer.total.count.length - 1, Math.max(0, state.place + places));
  drawHeat();
  drawLayer();
  const { left, row, top: above, cell } = geometry();
  const rect = canvas.getBoundingClientRect();
  const lines = expertLines(layer, current(), state.corpus);
  showTip(lines, rect.left + left + (state.place + 0.5) * cell, rect.top + above + (state.row + 0.5) * row, canvas);
  byId('heat-says').textContent = lines.join('. ');
});

// The scale beside the map.
function drawLegend() {
  const legend = byId('legend');
  const colours = page.colours[isDark() ? 'dark' : 'light'];
  const width = 240;
  const svg = make('svg', { viewBox: `0 0 ${width} 34`, width, role: 'img', 'aria-label': `Colours from 0 to ${top.toFixed(1)} times the even share` });
  colours.forEach((colour, at) => svg.append(make('rect', { x: (at * width) / colours.length, y: 0, width: width / colours.length + 0.5, height: 12, fill: colour })));
  for (const value of [0, 0.25, 1, 2, 4, 8, 16].filter((one) => (1 - Math.sqrt(one / top)) * width > 42).concat(top)) {
    const x = Math.sqrt(value / top) * width;
    const anchor = value === 0 ? 'start' : value === top ? 'end' : 'middle';
    svg.append(make('text', { x, y: 28, class: 'axis', 'text-anchor': anchor }, value === top ? `${value.toFixed(1)}×` : String(value)));
  }
  legend.replaceChildren(svg);
}
drawings.push(drawLegend);

// The curves: what the K busiest experts of each layer cover.
function drawCurves() {
  const curves = layers.map((layer) => {
    const counts = [...sumsOf(layer, state.corpus).count].sort((a, b) => b - a);
    const all = counts.reduce((sum, count) => sum + count, 0);
    let sum = 0;
    return { layer: layer.layer, shares: [0, ...counts.map((count) => (sum += count) / (all || 1))], all };
  }).filter((curve) => curve.all > 0);
  if (!curves.length) return;
  const share = (curve, k) => curve.shares[Math.min(k, curve.shares.length - 1)];
  const step = Math.max(1, Math.floor(widest / 128));
  const stops = [];
  for (let k = 0; k <= widest; k += step) stops.push(k);
  if (stops.at(-1) !== widest) stops.push(widest);
  const mean = (k) => curves.reduce((sum, curve) => sum + share(curve, k), 0) / curves.length;
  const worst = (k) => curves.reduce((a, b) => (share(b, k) < share(a, k) ? b : a));
  const best = (k) => curves.reduce((a, b) => (share(b, k) > share(a, k) ? b : a));
  const of = (value) => stops.map((k) => [k, value(k)]);
  drawChart(byId('curves'), {
    label: 'Coverage of each layer by its K busiest experts; the table below has the figures',
    x: [0, widest], y: [0, 1], yText: (value) => `${Math.round(value * 100)}%`, xLabel: 'busiest experts of each layer, K',
    lines: [
      ...curves.map((curve) => ({ class: 'faint', points: of((k) => share(curve, k)) })),
      { class: 'orange dashed', points: of((k) => share(worst(k), k)) },
      { class: 'blue', points: of(mean) },
    ],
    mark: chosen, stops,
    words: (k) => [`K = ${k}`, `${percent(mean(k))} on average`, `${percent(share(worst(k), k))} in layer ${worst(k).layer}, the worst`,
      `${percent(share(best(k), k))} in layer ${best(k).layer}, the best`],
  });
}
drawings.push(drawCurves);
