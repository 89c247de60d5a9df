// Arrows of transfers: from the start of the send to the end of its receive.

function arrowEnds(brush, chart, row) {
  const { transfers, layout } = chart;
  return {
    x1: brush.x(transfers.send_start[row]), y1: brush.y(layout.sends[transfers.sender[row]] + layout.messageHeight / 2),
    x2: brush.x(transfers.receive_end[row]), y2: brush.y(layout.receives[transfers.receiver[row]] + layout.messageHeight / 2),
  };
}

// Returns the rows of the transfers in sight; null above ARROW_LIMIT.
function arrowsInSight(brush, chart) {
  const { transfers, transferReach } = chart;
  const { view, frame } = brush;
  const found = [];
  const low = brush.frame.top + STEP_ROW;
  for (let row = firstAbove(transferReach, view.start, 0, transfers.length); row < transfers.length; row++) {
    if (transfers.send_start[row] > view.end) break;
    if (transfers.receive_end[row] < view.start) continue;
    const { y1, y2 } = arrowEnds(brush, chart, row);
    if (Math.max(y1, y2) < low || Math.min(y1, y2) > frame.top + frame.height) continue;
    if (found.length === ARROW_LIMIT) return null;
    found.push(row);
  }
  return found;
}

function curve({ x1, y1, x2, y2 }) {
  const bend = Math.max(6, Math.min(60, Math.abs(x2 - x1) / 2));
  return [x1, y1, x1 + bend, y1, x2 - bend, y2, x2, y2];
}

function paintArrows(brush, chart) {
  const rows = arrowsInSight(brush, chart);
  chart.arrowsInSight = rows ?? [];
  const pointed = chart.pointed?.type === 'transfer' ? chart.pointed.row : -1;
  const alpha = 0.6 * Math.min(1, Math.max(0.3, 500 / chart.arrowsInSight.length));  // many arrows are faint, so that the bars stay visible
  for (const row of chart.arrowsInSight) if (row !== pointed) paintArrow(brush, chart, row, alpha);
  brush.arrows = chart.arrowsInSight.length;
  if (pointed >= 0) paintArrow(brush, chart, pointed);
}

// Without `alpha`, draws the arrow as the one under the mouse.
function paintArrow(brush, chart, row, alpha) {
  const isPointed = alpha === undefined;
  const { ctx, theme } = brush;
  const direction = valueOf(chart.transfers, 'direction', row);
  const line = curve(arrowEnds(brush, chart, row));
  const dim = chart.matches && !chart.matches.transfers[row];
  ctx.globalAlpha = isPointed ? 1 : dim ? 0.1 : alpha;
  ctx.strokeStyle = ctx.fillStyle = isPointed ? theme.accent : chart.arrowColors[direction ?? 2];
  ctx.lineWidth = isPointed ? 2.5 : 1.1;
  ctx.beginPath();
  ctx.moveTo(line[0], line[1]);
  ctx.bezierCurveTo(...line.slice(2));
  ctx.stroke();
  const size = isPointed ? 7 : 4.5;
  ctx.beginPath();
  ctx.moveTo(line[6], line[7]);
  ctx.lineTo(line[6] - size, line[7] - size * 0.6);
  ctx.lineTo(line[6] - size, line[7] + size * 0.6);
  ctx.fill();
  ctx.globalAlpha = 1;
}

// Returns the row of the transfer whose arrow is within 5 pixels of a point, or -1.
function arrowAt(brush, chart, x, y) {
  let best = -1;
  let least = 25;
  for (const row of chart.arrowsInSight ?? []) {
    const [x1, y1, a1, b1, a2, b2, x2, y2] = curve(arrowEnds(brush, chart, row));
    if (x < Math.min(x1, x2) - 66 || x > Math.max(x1, x2) + 66 || y < Math.min(y1, y2) - 5 || y > Math.max(y1, y2) + 5) continue;
    for (let part = 0; part <= 24; part++) {
      const t = part / 24;
      const s = 1 - t;
      const dx = s * s * s * x1 + 3 * s * s * t * a1 + 3 * s * t * t * a2 + t * t * t * x2 - x;
      const dy = s * s * s * y1 + 3 * s * s * t * b1 + 3 * s * t * t * b2 + t * t * t * y2 - y;
      if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = row; }
    }
  }
  return best;
}
