// Many narrow boxes at one height are painted as one stretched line of pixels: 100,000 single boxes make panning
// stutter without a GPU.

const DENSE = 4;  // average pixels per box below which a line is painted
const line = { canvas: document.createElement('canvas'), image: null, pixels: null };
const inks = new Map();  // color and alpha -> bytes of a pixel

function beginLine(brush, strip, lane, y, height) {
  const { frame, view } = brush;
  const [low, high] = [strip.first[lane], strip.first[lane + 1]];
  const count = firstAbove(strip.start, view.end, low, high) - firstAbove(strip.reach, view.start, low, high);
  brush.line = count * DENSE > frame.width ? { y, height, later: [] } : null;
  if (!brush.line) return;
  const width = Math.ceil(frame.width);
  if (line.canvas.width !== width || !line.image) {
    line.canvas.width = width;
    line.canvas.height = 1;
    line.image = line.canvas.getContext('2d').createImageData(width, 1);
    line.pixels = new Uint32Array(line.image.data.buffer);
  }
  line.pixels.fill(0);
}

function endLine(brush) {
  if (!brush.line) return;
  const { ctx, frame } = brush;
  const { y, height, later } = brush.line;
  brush.line = null;
  line.canvas.getContext('2d').putImageData(line.image, 0, 0);
  ctx.globalAlpha = 1;
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(line.canvas, frame.left, y, line.canvas.width, height);
  for (const [alpha, ...box] of later) {
    brush.alpha = alpha;
    fillBox(brush, ...box);
  }
  brush.alpha = 1;
}

function fillBox(brush, from, to, y, height, color) {
  const { ctx, frame } = brush;
  if (!brush.line) {
    ctx.globalAlpha = brush.alpha;
    ctx.fillStyle = color;
    ctx.fillRect(from, y, to - from, height);
    return;
  }
  if (y !== brush.line.y || height !== brush.line.height) {
    brush.line.later.push([brush.alpha, from, to, y, height, color]);
    return;
  }
  const ink = inkOf(color, brush.alpha);
  const last = Math.min(line.pixels.length, to - frame.left);
  for (let at = Math.max(0, from - frame.left); at < last; at++) line.pixels[at] = ink;
}

function inkOf(color, alpha) {
  const key = alpha === 1 ? color : alpha + color;
  let ink = inks.get(key);
  if (ink === undefined) {
    const parts = color.startsWith('#') ? [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)) : color.match(/\d+/g).map(Number);
    ink = new Uint32Array(new Uint8Array([...parts.slice(0, 3), Math.round(255 * alpha)]).buffer)[0];
    inks.set(key, ink);
  }
  return ink;
}
