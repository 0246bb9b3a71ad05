// What the page is about: the document that is embedded in it, and how its numbers are written.
const page = JSON.parse(document.getElementById('moeslice-data').textContent);

const byId = (id) => document.getElementById(id);
const grouped = (value) => String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ',');
// Rounded down, so that 100.0% is all.
const percent = (share) => `${(Math.floor(share * 1000 + 1e-9) / 10).toFixed(1)}%`;
// Small shares with two digits: the even share of 512 experts is 0.20%.
const finely = (share) => (share >= 0.01 || share === 0 ? percent(share) : `${(share * 100).toPrecision(2)}%`);
const digits = (value) => (value === 0 ? '0' : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value >= 0.01 ? value.toFixed(2) : value.toFixed(4));
const bytes = (value) => {
  let unit = 0;
  while (value >= 1024 && unit < 5) { value /= 1024; unit += 1; }
  return `${unit ? value.toFixed(2) : value} ${['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][unit]}`;
};

// Elements, without markup from strings.
const SVG = 'http://www.w3.org/2000/svg';
function make(tag, attributes = {}, ...children) {
  const svg = ['svg', 'g', 'path', 'line', 'rect', 'circle', 'text', 'title'].includes(tag);
  const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  // What turns the direction of the text behind it could make a name read as another.
  element.append(...children.map((child) => (typeof child === 'string' ? child.replace(/[\u202a-\u202e\u2066-\u2069]/g, '\ufffd') : child)));
  return element;
}

// One tooltip for all figures.
const tip = byId('tip');
// Keys show it for the figure that has the focus, and it goes with that.
let tipFocus = null;
function showTip(lines, x, y, focus = null) {
  tipFocus = focus;
  tip.replaceChildren(...lines.map((line, at) => make(at ? 'div' : 'strong', {}, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const room = document.documentElement.clientWidth;
  tip.style.left = `${Math.max(8, Math.min(x + 14, room - width - 8))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? Math.max(8, y - height - 14) : y + 18}px`;
}
const hideTip = () => { tip.hidden = true; };
// A finger leaves as soon as it is lifted: what it showed stays until it touches something else.
const leaveTip = (event) => { if (event.pointerType !== 'touch') hideTip(); };
addEventListener('pointerdown', hideTip, { capture: true });
addEventListener('scroll', hideTip, { passive: true });
addEventListener('keydown', (event) => { if (event.key === 'Escape') hideTip(); });

// What is drawn again when the width, the theme or the paper changes.
const drawings = [];
let printing = false;
const darkScheme = matchMedia('(prefers-color-scheme: dark)');
const isDark = () => darkScheme.matches && !printing;
const drawAll = () => drawings.forEach((draw) => draw());
let drawnWidth = 0;
addEventListener('resize', () => {
  if (drawnWidth !== document.documentElement.clientWidth) { drawnWidth = document.documentElement.clientWidth; drawAll(); }
});
darkScheme.addEventListener('change', drawAll);
addEventListener('beforeprint', () => { printing = true; drawAll(); });
addEventListener('afterprint', () => { printing = false; drawAll(); });
