// Caches of experts: what misses in them, by their size.
const { replay, trace, charts } = page;
const state = { part: '', measure: 'miss' };
const partOf = (row) => (state.part ? row[state.part] : row);
// Rounded up, so that 0.0% is none.
const missed = (rate) => `${(Math.ceil((1 - rate) * 1000 - 1e-9) / 10).toFixed(1)}%`;
const measures = {
  miss: { of: (part) => (part.requests ? 1 - part.hit_rate : null), text: (part) => missed(part.hit_rate), axis: (value) => `${Number((value * 100).toPrecision(6))}%` },
  misses: { of: (part) => (part.tokens ? part.misses_per_token : null), text: (part) => `${digits(part.misses_per_token)} a token`, axis: (value) => String(value) },
  bytes: { of: (part) => (part.tokens ? part.bytes_per_token : null), text: (part) => `${bytes(Math.round(part.bytes_per_token))} a token`, unit: true },
  speed: { of: (part) => part.tokens_per_second ?? null, text: (part) => `${part.tokens_per_second < 1000 ? digits(part.tokens_per_second) : grouped(part.tokens_per_second)} tokens/s`, axis: grouped },
};
const UNITS = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']];
const unitFor = (most) => UNITS.find(([size]) => most >= size) || UNITS.at(-1);

function drawCaches(chart, at) {
  const measure = measures[state.measure];
  const each = trace.layers.map((layer) => layer.n_expert);
  const all = trace.layers.reduce((sum, layer) => sum + layer.n_expert * layer.slabs.reduce((a, b) => a + b, 0), 0);
  const sizes = chart.series.flatMap((series) => series.points.map((point) => point.x));
  const [xSize, xName] = chart.of_layers ? [1, ''] : unitFor(Math.max(...sizes));
  const curve = chart.curve && state.part === '' && state.measure === 'miss' ? replay.curve.points.map((point) => [point.capacity, 1 - point.hit_rate]) : [];
  const values = chart.series.map((series) => ({
    ...series,
    points: series.points.map((point) => [point.x / xSize, measure.of(partOf(replay.rows[point.row])), point.row]).filter(([, y]) => y !== null),
  }));
  const ys = [...values.flatMap((series) => series.points.map(([, y]) => y)), ...curve.map(([, y]) => y)];
  const top = Math.max(...ys, 0) || 1;
  const [ySize, yName] = measure.unit ? unitFor(top) : [1, ''];
  const xs = [...values.flatMap((series) => series.points.map(([x]) => x)), ...curve.map(([x]) => x)];
  // From no room to that for all experts, unless that is far away.
  const whole = chart.of_layers ? Math.max(...each) : all / xSize;
  const right = whole && whole <= 2.5 * Math.max(...xs) ? whole : Math.max(...xs) * 1.06;
  drawChart(byId(`chart-${at}`), {
    label: 'Misses by the size of the cache, a line a policy; the tables below have the figures',
    x: [0, right || 1], y: [0, (top * 1.04) / ySize], yText: measure.unit ? (value) => `${value} ${yName}` : measure.axis,
    xLabel: chart.of_layers ? 'experts of each layer that the cache holds' : `size of the cache, ${xName}`,
    lines: [
      ...(curve.length ? [{ class: 'faint', points: curve }] : []),
      ...values.map((series) => ({ class: series.class, dots: true, points: series.points.map(([x, y]) => [x, y / ySize]) })),
    ],
    left: measure.unit ? 62 : 46,
    stops: [...new Set(xs)].sort((a, b) => a - b),
    words: (x) => {
      const here = values.flatMap((series) => series.points.filter(([at_x]) => at_x === x).map(([, y, row]) => [y, series.label, row]));
      here.sort((a, b) => (state.measure === 'speed' ? b[0] - a[0] : a[0] - b[0]));
      const onCurve = curve.find(([at_x]) => at_x === x);
      return [chart.of_layers ? `${x} experts of each layer` : bytes(Math.round(x * xSize)),
        ...here.map(([, label, row]) => `${label}: ${measure.text(partOf(replay.rows[row]))}`),
        ...(onCurve && !here.length ? [`lru: ${missed(1 - onCurve[1])}`] : [])];
    },
  });
}
charts.forEach((chart, at) => drawings.push(() => drawCaches(chart, at)));
for (const name of ['part', 'measure']) {
  for (const input of document.querySelectorAll(`input[name=${name}]`)) {
    // A browser may have kept the choice from before.
    if (input.checked) state[name] = input.value;
    input.addEventListener('change', () => { state[name] = input.value; drawAll(); });
  }
}
