// The heat map: a row per rank, a column per step, and the lengths of the steps on top.

const TOP = 74, BOTTOM = 24, ROW_MOST = 24, ROW_LEAST = 1, ROWS_HEIGHT = 640, COLUMN_MOST = 110, STAGE_GAP = 3;
const HEAT_FONT = '12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const blend = (from, to, share) => from.map((value, at) => Math.round(value + (to[at] - value) * share));

function readTheme(isPaper) {
  const style = getComputedStyle(document.documentElement);
  const names = ['page', 'text', 'muted', 'line', 'soft', 'accent', 'cut'];
  const light = { page: '#ffffff', text: '#1c2430', muted: '#5d6877', line: '#dde2e8', soft: '#f3f5f8', accent: '#2f6fc4', cut: '#c3cad3' };
  if (isPaper) return light;
  const full = (color) => (/^#[0-9a-f]{3}$/i.test(color) ? color.replace(/[0-9a-f]/gi, '$&$&') : color);
  return Object.fromEntries(names.map((name) => [name, full(style.getPropertyValue(`--${name}`).trim())]));
}

// Returns the color of a value: from the page to the color of the metric; below zero, to a cool one.
function colorOf(metric, theme, cool, value) {
  if (!metric.isCompared) return blend(channels(theme.page), channels(metric.color), 0.06 + 0.94 * Math.min(1, (value - metric.low) / (metric.high - metric.low)));
  const share = Math.min(1, Math.abs(value) / metric.high);
  // slower ones stand out, faster ones do not
  return blend(channels(theme.soft), channels(value >= 0 ? metric.color : cool), value >= 0 ? share : 0.3 * share);
}

class HeatMap {
  constructor(heat) {
    this.heat = heat;
    this.canvas = $('heat');
    this.order = 'stage';
    this.at = null;
    this.isKept = false;
    this.setMetric(heat.first);
  }

  setMetric(name) {
    this.metric = readMetric(this.heat, this.heat.metrics.find((metric) => metric.name === name));
    this.rows = orderLanes(this.heat, this.metric, this.order);
  }

  // Computes the layout: each row of the canvas is a rank, or the worst of several where there are more ranks than pixels.
  layOut(width) {
    const { heat } = this;
    const ctx = this.canvas.getContext('2d');
    ctx.font = HEAT_FONT;
    const labels = heat.lanes.slice(0, 2000).map((lane) => ctx.measureText(lane.label).width);
    this.stageWidth = heat.lanes.reduce((most, { stage }) => Math.max(most, stage === null ? 0 : ctx.measureText(`stage ${stage}`).width + 14), 0);
    this.left = Math.min(280, Math.ceil(labels.reduce((most, width) => Math.max(most, width), 68) + this.stageWidth) + 34);
    const room = Math.max(60, width - this.left - 8);
    this.perColumn = Math.ceil(heat.count / room);
    this.columns = Math.ceil(heat.count / this.perColumn);
    this.column = Math.min(COLUMN_MOST, room / this.columns);
    this.perRow = Math.ceil(heat.lanes.length / 1600);
    this.count = Math.ceil(heat.lanes.length / this.perRow);
    this.row = Math.max(ROW_LEAST, Math.min(ROW_MOST, Math.floor(ROWS_HEIGHT / this.count)));
    this.tops = [];
    let top = TOP;
    for (let at = 0; at < this.count; at++) {
      const isNew = at && this.order === 'stage' && this.stageAt(at) !== this.stageAt(at - 1);
      top += isNew ? STAGE_GAP : 0;
      this.tops.push(top);
      top += this.row;
    }
    this.height = top + BOTTOM;
    this.width = this.left + this.columns * this.column + 8;
  }

  stageAt(at) { return this.heat.lanes[this.rows[at * this.perRow]].stage; }

  // Returns the cell that a place of the canvas shows: of several, the one with the largest value.
  cellAt(row, column) {
    const { heat, metric } = this;
    let best = null;
    for (const lane of this.rows.slice(row * this.perRow, (row + 1) * this.perRow))
      for (let step = column * this.perColumn; step < Math.min(heat.count, (column + 1) * this.perColumn); step++) {
        const value = metric.values[lane * heat.count + step];
        if (best === null || value > best.value || Number.isNaN(best.value)) best = { lane, step, value, row, column };
      }
    return best;
  }

  paint(isPaper = false) {
    const holder = $('heat-holder');
    this.theme = readTheme(isPaper);
    this.layOut(Math.max(300, holder.clientWidth || 900));
    const scale = isPaper ? 2 : devicePixelRatio || 1;
    this.canvas.width = Math.ceil(this.width * scale);
    this.canvas.height = Math.ceil(this.height * scale);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    const ctx = (this.ctx = this.canvas.getContext('2d'));
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.clearRect(0, 0, this.width, this.height);
    ctx.font = HEAT_FONT;
    ctx.textBaseline = 'middle';
    this.paintCells();
    this.paintLengths();
    this.paintLabels();
    this.base = element('canvas', { width: this.canvas.width, height: this.canvas.height });
    this.base.getContext('2d').drawImage(this.canvas, 0, 0);
    this.scale = scale;
    this.paintCursor();
    this.canvas.setAttribute('aria-label', `Heat map: ${this.metric.title}, ${this.heat.lanes.length} ranks by ${this.heat.count} steps`);
  }

  // Paints the cells of a picture with a pixel each, and enlarges it: a rectangle each would be slow for a thousand ranks.
  paintCells() {
    const { heat, metric, theme } = this;
    const image = new ImageData(this.columns, this.count);
    const cut = channels(theme.cut);
    for (let row = 0; row < this.count; row++)
      for (let column = 0; column < this.columns; column++) {
        const { lane, step, value } = this.cellAt(row, column);
        const at = 4 * (row * this.columns + column);
        if (!heat.isPresent(lane, step)) continue;
        const color = Number.isNaN(value) ? cut : colorOf(metric, theme, heat.cool, value);
        image.data.set([...color, 255], at);
      }
    const small = element('canvas', { width: this.columns, height: this.count });
    small.getContext('2d').putImageData(image, 0, 0);
    this.ctx.imageSmoothingEnabled = false;
    const gap = this.row >= 6 ? 1 : 0;
    for (let row = 0; row < this.count; row++)
      this.ctx.drawImage(small, 0, row, this.columns, 1, this.left, this.tops[row], this.columns * this.column, this.row - gap);
    if (this.column < 6) return;
    this.ctx.fillStyle = theme.page;
    for (let column = 1; column < this.columns; column++)
      this.ctx.fillRect(this.left + column * this.column - 0.5, TOP, 1, this.height - TOP - BOTTOM);
  }

  // Paints by how much each step is longer than the shortest one, and marks the steps whose charts are shown.
  paintLengths() {
    const { ctx, heat, theme } = this;
    const known = heat.lengths.filter((value) => value !== null);
    const [least, most] = [Math.min(...known), Math.max(...known)];
    const room = 38, bottom = TOP - 8;
    ctx.fillStyle = theme.muted;
    ctx.textAlign = 'right';
    if (known.length) {
      ctx.fillText(formatTime(most), this.left - 8, bottom - room + 4);
      if (most > least) ctx.fillText(`from ${formatTime(least)}`, this.left - 8, bottom - 6);
    }
    for (let column = 0; column < this.columns; column++) {
      const lengths = heat.lengths.slice(column * this.perColumn, (column + 1) * this.perColumn);
      const length = lengths.reduce((most, value) => Math.max(most, value ?? 0), 0);
      // differences of less than 5 % do not fill the height
      const height = length ? 2 + ((room - 2) * (length - least)) / Math.max(most - least, 0.05 * least) : 0;
      ctx.fillStyle = theme.cut;
      ctx.fillRect(this.left + column * this.column, bottom - height, Math.max(this.column - (this.column >= 6 ? 1 : 0), 0.5), height);
    }
    ctx.textAlign = 'center';
    ctx.fillStyle = theme.text;
    for (const [role, shown] of Object.entries(heat.shown)) {
      const step = heat.steps.findIndex(([first, last]) => first <= shown && shown <= last);
      if (step < 0) continue;
      const x = this.left + (Math.floor(step / this.perColumn) + 0.5) * this.column;
      ctx.fillText(role === 'worst' ? 'longest' : role, Math.max(this.left + 20, Math.min(this.width - 30, x)), role === 'worst' ? 8 : 22);
    }
  }

  paintLabels() {
    const { ctx, heat, theme } = this;
    const named = new Set(heat.named.map(({ lane }) => lane));
    const every = Math.ceil(14 / this.row);
    ctx.textAlign = 'right';
    for (let row = 0; row < this.count; row++) {
      const lanes = this.rows.slice(row * this.perRow, (row + 1) * this.perRow);
      const marked = lanes.find((lane) => named.has(lane));
      const isFirst = row % every === 0;
      const isNearMark = [...Array(every).keys()].some((by) => [row - by, row + by].some((near) => near !== row && this.rows.slice(near * this.perRow, (near + 1) * this.perRow).some((lane) => named.has(lane))));
      if (marked === undefined && (!isFirst || isNearMark)) continue;
      const y = this.tops[row] + this.row / 2;
      ctx.fillStyle = marked === undefined ? theme.muted : theme.text;
      ctx.font = marked === undefined ? HEAT_FONT : `bold ${HEAT_FONT}`;
      ctx.fillText(heat.lanes[marked ?? lanes[0]].label, this.left - 18, y, this.left - 22);
      if (marked !== undefined) ctx.fillText('▶', this.left - 4, y);
    }
    ctx.font = HEAT_FONT;
    this.paintStages();
    ctx.textAlign = 'center';
    ctx.fillStyle = theme.muted;
    const width = Math.max(...[0, heat.count - 1].map((step) => ctx.measureText(heat.nameStep(step)).width)) + 10;
    const across = Math.ceil(width / this.column);
    for (let column = 0; column < this.columns; column += across)
      ctx.fillText(heat.nameStep(column * this.perColumn), this.left + (column + 0.5) * this.column, this.height - BOTTOM / 2);
  }

  // Paints the number of each stage at its first row, where there is room.
  paintStages() {
    if (this.order !== 'stage' || !this.stageWidth) return;
    this.ctx.textAlign = 'left';
    this.ctx.fillStyle = this.theme.muted;
    let bottom = 0;
    for (let row = 0; row < this.count; row++) {
      const stage = this.stageAt(row);
      if (stage === null || (row && stage === this.stageAt(row - 1)) || this.tops[row] < bottom) continue;
      bottom = this.tops[row] + 14;
      this.ctx.fillText(`stage ${stage}`, 0, this.tops[row] + Math.max(this.row, 12) / 2);
    }
  }

  // Paints the cursor over a copy of everything else, which takes long to paint for many ranks.
  paintCursor() {
    const { ctx } = this;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, this.canvas.width, this.canvas.height);
    ctx.drawImage(this.base, 0, 0);
    ctx.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    if (!this.at) return;
    const row = this.rows.indexOf(this.at.lane) / this.perRow | 0;
    const column = Math.floor(this.at.step / this.perColumn);
    ctx.strokeStyle = this.theme.text;
    ctx.lineWidth = 2;
    ctx.strokeRect(this.left + column * this.column - 0.5, this.tops[row] - 1, Math.max(this.column, 3), Math.max(this.row, 3) + 1);
  }

  // Returns the row and column of a place in pixels; null outside of all cells.
  find(x, y) {
    const column = Math.floor((x - this.left) / this.column);
    let row = -1;
    while (row + 1 < this.count && this.tops[row + 1] <= y) row++;
    const isInside = column >= 0 && column < this.columns && row >= 0 && y < this.tops[row] + this.row + STAGE_GAP;
    return isInside ? this.cellAt(row, column) : null;
  }

  // Returns the cell with the largest value, of a rank or of a step where they are given.
  findLargest({ lane, step }) {
    const { heat, metric } = this;
    let best = null;
    for (const [at, value] of metric.values.entries()) {
      const cell = { lane: at / heat.count | 0, step: at % heat.count };
      const [first, last] = heat.steps[cell.step];
      if ((lane && cell.lane !== Number(lane)) || (step && (step < first || step > last)) || Number.isNaN(value)) continue;
      if (!best || value > best.value) best = { ...cell, value };
    }
    return best;
  }

  move(rows, columns) {
    const row = this.at ? this.rows.indexOf(this.at.lane) / this.perRow | 0 : 0;
    const column = this.at ? Math.floor(this.at.step / this.perColumn) : 0;
    const inside = (value, count) => Math.max(0, Math.min(count - 1, value));
    return this.at ? this.cellAt(inside(row + rows, this.count), inside(column + columns, this.columns)) : this.cellAt(0, 0);
  }
}
