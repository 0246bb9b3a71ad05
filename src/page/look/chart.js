// Line charts.
const path = (points) => points.map(([x, y], at) => `${at ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`).join('');

// Round numbers from `low` to `high`, about `wanted` of them.
function ticks(low, high, wanted) {
  const raw = (high - low) / Math.max(wanted, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((part) => part * power).find((part) => part >= raw * 0.999);
  const first = Math.ceil(low / step - 1e-9) * step;
  const list = [];
  for (let value = first; value <= high + step * 1e-6; value += step) list.push(Number(value.toPrecision(12)));
  return list;
}

// Draws `chart` into the element, as wide as that is. `chart.lines` have points [x, y, error], a class and a label; the
// tooltip of an x is `chart.words(x)`, for the x that are in `chart.stops`.
function drawChart(element, chart) {
  const width = Math.max(240, element.clientWidth);
  const height = Math.round(Math.min(340, Math.max(210, width * 0.42)));
  const box = { left: chart.left || 46, right: width - 12, top: 14, bottom: height - 40 };
  const [x0, x1] = chart.x;
  const [y0, y1] = chart.y;
  const px = (x) => box.left + ((x - x0) / (x1 - x0 || 1)) * (box.right - box.left);
  const py = (y) => box.bottom - ((y - y0) / (y1 - y0 || 1)) * (box.bottom - box.top);
  const svg = make('svg', { viewBox: `0 0 ${width} ${height}`, width: '100%', role: 'img', 'aria-label': chart.label, tabindex: 0 });
  for (const value of ticks(y0, y1, 5)) {
    svg.append(
      make('line', { x1: box.left, x2: box.right, y1: py(value), y2: py(value), class: 'grid' }),
      make('text', { x: box.left - 8, y: py(value) + 4, class: 'axis', 'text-anchor': 'end' }, chart.yText(value)));
  }
  for (const value of ticks(x0, x1, Math.max(3, width / 90))) {
    svg.append(make('text', { x: px(value), y: box.bottom + 18, class: 'axis', 'text-anchor': 'middle' }, chart.xText ? chart.xText(value) : String(value)));
  }
  svg.append(make('text', { x: (box.left + box.right) / 2, y: height - 4, class: 'axis', 'text-anchor': 'middle' }, chart.xLabel));
  if (chart.mark !== undefined && chart.mark !== null) {
    const x = px(chart.mark.x);
    const end = x > (box.left + box.right) / 2;
    svg.append(
      make('line', { x1: x, x2: x, y1: box.top, y2: box.bottom, class: 'mark' }),
      make('text', { x: x + (end ? -6 : 6), y: chart.mark.high ? box.top + 10 : box.bottom - 8, class: 'axis strong', 'text-anchor': end ? 'end' : 'start' }, chart.mark.text));
  }
  for (const line of chart.lines) {
    svg.append(make('path', { d: path(line.points.map(([x, y]) => [px(x), py(y)])), class: `line ${line.class}` }));
    if (!line.dots) continue;
    for (const [x, y, error] of line.points) {
      if (error) {
        svg.append(make('line', { x1: px(x), x2: px(x), y1: py(Math.max(y0, y - error)), y2: py(Math.min(y1, y + error)), class: `error ${line.class}` }));
      }
      svg.append(make('circle', { cx: px(x), cy: py(y), r: 2.6, class: `dot ${line.class}` }));
    }
  }
  const cursor = make('line', { y1: box.top, y2: box.bottom, class: 'cursor', visibility: 'hidden' });
  svg.append(cursor);
  let at = -1;
  const say = (index, x, y, focus) => {
    at = index;
    const stop = chart.stops[index];
    cursor.setAttribute('x1', px(stop));
    cursor.setAttribute('x2', px(stop));
    cursor.setAttribute('visibility', 'visible');
    showTip(chart.words(stop), x, y, focus);
  };
  const onPointer = (event) => {
    const rect = svg.getBoundingClientRect();
    const x = ((event.clientX - rect.left) / rect.width) * width;
    let best = 0;
    chart.stops.forEach((stop, index) => { if (Math.abs(px(stop) - x) < Math.abs(px(chart.stops[best]) - x)) best = index; });
    say(best, event.clientX, event.clientY);
  };
  const leave = (event) => {
    if (event.pointerType === 'touch') return;
    cursor.setAttribute('visibility', 'hidden');
    hideTip();
  };
  svg.addEventListener('pointermove', onPointer);
  svg.addEventListener('pointerdown', onPointer);
  svg.addEventListener('pointerleave', leave);
  svg.addEventListener('blur', (event) => { if (tipFocus === svg) leave(event); });
  svg.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const index = Math.min(chart.stops.length - 1, Math.max(0, at < 0 ? 0 : at + step));
    const rect = svg.getBoundingClientRect();
    say(index, rect.left + (px(chart.stops[index]) / width) * rect.width, rect.top + rect.height / 3, svg);
  });
  element.replaceChildren(svg);
}

// The number of experts that the page is about.
const chosen = page.chosen == null ? null : { x: page.chosen, text: `K = ${page.chosen}` };

// What the lines of a chart are.
function lineKey(lines) {
  return make('div', { class: 'key' }, ...lines.map((line) => make('span', {},
    make('svg', { width: 26, height: 8, 'aria-hidden': 'true' },
      line.class.includes('bare') ? make('circle', { cx: 13, cy: 4, r: 2.6, class: `dot ${line.class}` }) : make('path', { d: 'M1 4H25', class: `line ${line.class}` })),
    line.label)));
}
