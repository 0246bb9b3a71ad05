// K against coverage and size.
if (byId('cost-chart')) {
  const rows = page.rows;
  const whole = rows.at(-1).bytes;
  const row = (k) => rows.find((one) => one.k === k);
  const lines = [
    { class: 'blue', points: rows.map((one) => [one.k, one.coverage_mean]), dots: true },
    { class: 'orange dashed', points: rows.map((one) => [one.k, one.coverage_worst]), dots: true },
  ];
  if (whole) lines.unshift({ class: 'grey', points: rows.map((one) => [one.k, one.bytes / whole]) });
  drawings.push(() => drawChart(byId('cost-chart'), {
    label: 'Coverage of the routing and size of the file by the number of experts that stay; the table below has the figures',
    x: [rows[0].k, rows.at(-1).k], y: [0, 1], yText: (value) => `${Math.round(value * 100)}%`, xLabel: 'experts that stay in each layer, K',
    lines, mark: chosen, stops: rows.map((one) => one.k),
    words: (k) => {
      const { coverage_mean: mean, coverage_worst: worst, worst_layer: layer, bytes: size } = row(k);
      return [`K = ${k}`, `${percent(mean)} of the routing on average`, `${percent(worst)} in layer ${layer}, the worst`,
        ...(size ? [`${bytes(size)}, ${percent(size / whole)} of the file`] : [])];
    },
  }));
}

