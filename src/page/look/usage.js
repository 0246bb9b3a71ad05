// The usage that the page is about.
const layers = page.usage.layers.filter((layer) => layer.total.n_tokens > 0);
const corpora = page.usage.corpora.map((corpus) => corpus.name);
const kept = page.plan && new Map(Object.entries(page.plan.keep).map(([layer, ids]) => [Number(layer), new Set(ids)]));
const widest = Math.max(...layers.map((layer) => layer.total.count.length));


// The sums of a layer: of a corpus by its name, or of all together.
const sumsOf = (layer, corpus) => (corpus === null ? layer.total : layer.corpora[corpus]);

// The experts of a layer, the most used first: by count, then gate weight, then lower id.
function ranking(sums) {
  const weight = sums.weight;
  return sums.count.map((_, id) => id).sort((a, b) =>
    sums.count[b] - sums.count[a] || (weight ? weight[b] - weight[a] : 0) || a - b);
}

const isKept = (layer, id) => !kept || !kept.has(layer.layer) || kept.get(layer.layer).has(id);

function expertLines(layer, id, corpus) {
  const sums = sumsOf(layer, corpus);
  const selections = sums.count.reduce((sum, count) => sum + count, 0);
  const count = sums.count[id];
  const even = selections / sums.count.length;
  const rank = sums.count.filter((other, at) => other > count || (other === count && at < id)).length + 1;
  return [
    `Layer ${layer.layer}, expert ${id}`,
    `${grouped(count)} of ${grouped(sums.n_tokens)} tokens${corpus === null ? '' : ` of ${corpus}`}`,
    `${finely(selections ? count / selections : 0)} of the routing, ${even ? (count / even).toFixed(1) : '0.0'}× the even share`,
    `rank ${rank} of ${sums.count.length}${kept ? (isKept(layer, id) ? ', stays' : ', is cut') : ''}`,
  ];
}

