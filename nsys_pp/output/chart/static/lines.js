// Rows of many narrow boxes: their colors are written into one line of pixels, which is stretched to the height of the row.
// Without a GPU, 100,000 separate boxes make panning slow.

const DENSE = 4;  // with fewer pixels per box on average, a line is painted
const line = { canvas: document.createElement('canvas'), image: null, pixels: null };
const pixelCache = new Map();  // color and alpha -> bytes of a pixel

function beginLine(painter, index, lane, y, height) {
  const { frame, view } = painter;
  const [low, high] = [index.first[lane], index.first[lane + 1]];
  const count = firstAbove(index.start, view.end, low, high) - firstAbove(index.reach, view.start, low, high);
  painter.line = count * DENSE > frame.width ? { y, height, deferred: [] } : null;
  if (!painter.line) return;
  const width = Math.ceil(frame.width);
  if (line.canvas.width !== width || !line.image) {
    line.canvas.width = width;
    line.canvas.height = 1;
    line.image = line.canvas.getContext('2d').createImageData(width, 1);
    line.pixels = new Uint32Array(line.image.data.buffer);
  }
  line.pixels.fill(0);
}

function endLine(painter) {
  if (!painter.line) return;
  const { ctx, frame } = painter;
  const { y, height, deferred } = painter.line;
  painter.line = null;
  line.canvas.getContext('2d').putImageData(line.image, 0, 0);
  ctx.globalAlpha = 1;
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(line.canvas, frame.left, y, line.canvas.width, height);
  for (const [alpha, ...box] of deferred) {
    painter.alpha = alpha;
    fillBox(painter, ...box);
  }
  painter.alpha = 1;
}

function fillBox(painter, from, to, y, height, color) {
  const { ctx, frame } = painter;
  if (!painter.line) {
    ctx.globalAlpha = painter.alpha;
    ctx.fillStyle = color;
    ctx.fillRect(from, y, to - from, height);
    return;
  }
  if (y !== painter.line.y || height !== painter.line.height) {
    painter.line.deferred.push([painter.alpha, from, to, y, height, color]);
    return;
  }
  const pixel = pixelOf(color, painter.alpha);
  const last = Math.min(line.pixels.length, to - frame.left);
  for (let at = Math.max(0, from - frame.left); at < last; at++) line.pixels[at] = pixel;
}

function pixelOf(color, alpha) {
  const key = alpha === 1 ? color : alpha + color;
  let pixel = pixelCache.get(key);
  if (pixel === undefined) {
    const parts = color.startsWith('#') ? [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)) : color.match(/\d+/g).map(Number);
    pixel = new Uint32Array(new Uint8Array([...parts.slice(0, 3), Math.round(255 * alpha)]).buffer)[0];
    pixelCache.set(key, pixel);
  }
  return pixel;
}
