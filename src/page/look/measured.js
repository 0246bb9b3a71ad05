// K against what was measured: a line for each score, which begins at the whole model, and a dot for each plan.
const whole = page.measured && page.measured.model.n_expert;
const lineOf = (row) => (row.plan ? 'plans' : row.score || '');
for (const [id, of, name] of [
  ['ppl-chart', (figures) => [figures.ppl, figures.ppl_err], 'Perplexity'],
  // The whole model does not differ from itself.
  ['kl-chart', (figures, row) => (figures.kl ? [figures.kl.kl_mean, figures.kl.kl_err] : row.k === whole ? [0, 0] : null), 'Mean KL divergence'],
]) {
  if (!byId(id)) continue;
  const rows = page.measured.rows.filter((row) => of(row.all, row)).sort((a, b) => a.k - b.k);
  const point = (row) => [row.k, ...of(row.all, row)];
  const files = rows.filter((row) => !row.masked);
  const names = [...new Set(rows.filter((row) => row.masked).map(lineOf))];
  const lines = names.length ? names.map((label, at) => ({
    label, dots: true, class: names.length === 1 ? 'blue' : `c${at % 6}${label === 'plans' ? ' bare' : ''}`,
    points: [...rows.filter((row) => row.masked && lineOf(row) === label), ...(label === 'plans' ? [] : files)].map(point),
  })) : [{ class: 'blue', dots: true, points: rows.map(point) }];
  const all = rows.map(point);
  const high = Math.max(...all.map(([, y, error]) => y + error));
  const low = Math.min(...all.map(([, y, error]) => y - error));
  const from = name === 'Perplexity' ? low - (high - low) * 0.08 : 0;
  if (names.length > 1) byId(id).before(lineKey(lines));
  drawings.push(() => drawChart(byId(id), {
    label: `${name} by the number of experts; the table below has the figures`,
    x: [all[0][0], all.at(-1)[0]], y: [from, high * 1.02 || 1], yText: (value) => String(value), xLabel: 'experts in each layer, K',
    lines, mark: chosen && { ...chosen, high: true }, stops: [...new Set(rows.map((row) => row.k))],
    words: (k) => {
      const here = rows.filter((row) => row.k === k);
      const label = (row) => (names.length > 1 && row.masked ? `${row.plan || row.score || 'plan'}: ` : '');
      return [`K = ${k}`, ...here.map((row) => {
        const [value, error] = of(row.all, row);
        return `${label(row)}${name} ${digits(value)} ± ${digits(error)}`;
      })];
    },
  }));
}
