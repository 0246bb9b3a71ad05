// The perplexity of each text: of what the page is about, and of what it is compared with.
if (byId('corpora-chart')) {
  const row = page.measured.rows[page.row];
  const texts = page.measured.corpora.map((corpus) => corpus.name).filter((name) => row.corpora[name]);
  const [pitch, foot, left] = [34, 34, 12];
  const ends = texts.flatMap((name) => {
    const { ppl, ppl_err: error, kl } = row.corpora[name];
    return [ppl - error, ppl + error, ...(kl ? [kl.ppl_base] : [])];
  });
  const [low, high] = [Math.max(0, Math.min(...ends)), Math.max(...ends)];
  const [from, to] = [Math.max(0, low - (high - low) * 0.15), high + (high - low) * 0.08 || high + 1];
  drawings.push(() => {
    const element = byId('corpora-chart');
    const width = Math.max(240, element.clientWidth);
    const height = texts.length * pitch + foot;
    const px = (x) => left + ((x - from) / (to - from)) * (width - left - 16);
    const svg = make('svg', { viewBox: `0 0 ${width} ${height}`, width: '100%', role: 'img', 'aria-label': 'Perplexity of each text; the table below has the figures' });
    for (const value of ticks(from, to, Math.max(3, width / 110))) {
      svg.append(
        make('line', { x1: px(value), x2: px(value), y1: 0, y2: height - foot, class: 'grid' }),
        make('text', { x: px(value), y: height - foot + 14, class: 'axis', 'text-anchor': 'middle' }, String(value)));
    }
    svg.append(make('text', { x: width / 2, y: height - 3, class: 'axis', 'text-anchor': 'middle' }, 'perplexity'));
    texts.forEach((name, at) => {
      const { ppl, ppl_err: error, kl } = row.corpora[name];
      const y = at * pitch + 22;
      const short = name.length > 40 ? `${name.slice(0, 39)}…` : name;
      svg.append(
        make('text', { x: left, y: y - 10, class: 'axis strong' }, short),
        make('line', { x1: left, x2: width - 16, y1: y, y2: y, class: 'grid' }));
      if (kl) {
        svg.append(
          make('line', { x1: px(kl.ppl_base), x2: px(ppl), y1: y, y2: y, class: 'line grey' }),
          make('circle', { cx: px(kl.ppl_base), cy: y, r: 4, class: 'dot grey' }));
      }
      svg.append(
        make('line', { x1: px(Math.max(from, ppl - error)), x2: px(ppl + error), y1: y, y2: y, class: 'error blue' }),
        make('circle', { cx: px(ppl), cy: y, r: 4, class: 'dot blue' }));
    });
    const onPointer = (event) => {
      const rect = svg.getBoundingClientRect();
      const name = texts[Math.floor(((event.clientY - rect.top) / rect.height) * height / pitch)];
      if (!name) return hideTip();
      const { scored, ppl, ppl_err: error, kl } = row.corpora[name];
      showTip([name, `perplexity ${digits(ppl)} ± ${digits(error)}, ${grouped(scored)} tokens scored`,
        ...(kl ? [`${row.masked ? 'whole' : 'base'} ${digits(kl.ppl_base)}`, `KL divergence ${digits(kl.kl_mean)} ± ${digits(kl.kl_err)}`] : [])],
      event.clientX, event.clientY);
      return undefined;
    };
    svg.addEventListener('pointermove', onPointer);
    svg.addEventListener('pointerdown', onPointer);
    svg.addEventListener('pointerleave', leaveTip);
    element.replaceChildren(svg);
  });
}
