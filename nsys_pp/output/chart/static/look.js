// Colors of both themes, shortening of texts, tiles of hatches, and the format of times.

const THEMES = {
  light: {
    page: '#ffffff', band: '#f6f7f9', text: '#1c2430', muted: '#5d6877', line: '#dde2e8', strong: '#b4bdc9',
    step: ['#eef2f7', '#e3e9f1'], bubble: 0.42, accent: '#d6246e', ghost: '#1c2430', veil: 'rgba(255,255,255,.45)',
  },
  dark: {
    page: '#14181f', band: '#191e26', text: '#e4e9f0', muted: '#9ba7b6', line: '#2a323d', strong: '#4a5665',
    step: ['#1f2630', '#28313d'], bubble: 0.36, accent: '#ff6fa8', ghost: '#ffffff', veil: 'rgba(20,24,31,.45)',
  },
};
const FONT = 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

function mix(color, other, share) {
  const part = (text, at) => parseInt(text.slice(at, at + 2), 16);
  const blend = (at) => Math.round(part(color, at) * (1 - share) + part(other, at) * share);
  return `rgb(${blend(1)},${blend(3)},${blend(5)})`;
}

const widths = new Map();  // widths of texts, by font and text
function textWidth(ctx, font, text) {
  const key = font + text;
  let width = widths.get(key);
  if (width === undefined) {
    ctx.font = font;
    width = ctx.measureText(text).width;
    if (widths.size > 20000) widths.clear();
    widths.set(key, width);
  }
  return width;
}

// Shortens a text to a width: the text itself, or its beginning with an ellipsis, or "".
function fitText(ctx, font, text, room) {
  if (textWidth(ctx, font, text) <= room) return text;
  const letters = Array.from(text);
  let low = 0;
  let high = letters.length;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if (textWidth(ctx, font, letters.slice(0, middle).join('') + '…') <= room) low = middle;
    else high = middle - 1;
  }
  return low ? letters.slice(0, low).join('') + '…' : '';
}

// Draws the tile of a hatch: a path of `HATCHES` of `colors.py` on a background.
function drawTile(path, size, color, background) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = size;
  const pen = tile.getContext('2d');
  pen.fillStyle = background;
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = color;
  pen.stroke(new Path2D(path));
  return tile;
}

function formatTime(ns, step = 0) {
  const size = Math.abs(ns);
  const [unit, scale] = size >= 1e9 ? ['s', 1e9] : size >= 1e6 ? ['ms', 1e6] : size >= 1e3 ? ['µs', 1e3] : ['ns', 1];
  const digits = step
    ? Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / scale) - 1e-9)))
    : scale === 1 ? 0 : Math.max(0, 3 - Math.floor(Math.log10(size / scale)));
  return `${(ns / scale).toFixed(digits).replace('-', '−')} ${unit}`;
}
