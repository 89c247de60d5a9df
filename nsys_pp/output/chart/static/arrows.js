// Arrows of transfers: from the start of the send to the end of its receive.

function arrowEnds(painter, chart, row) {
  const { transfers, layout } = chart;
  return {
    x1: painter.x(transfers.send_start[row]), y1: painter.y(layout.sends[transfers.sender[row]] + layout.messageHeight / 2),
    x2: painter.x(transfers.receive_end[row]), y2: painter.y(layout.receives[transfers.receiver[row]] + layout.messageHeight / 2),
  };
}

// Returns the rows of the transfers with a visible arrow; null if there are more than ARROW_LIMIT.
function findVisibleArrows(painter, chart) {
  const { transfers, transferReach } = chart;
  const { view, frame } = painter;
  const rows = [];
  const low = painter.frame.top + STEP_ROW;
  for (let row = firstAbove(transferReach, view.start, 0, transfers.length); row < transfers.length; row++) {
    if (transfers.send_start[row] > view.end) break;
    if (transfers.receive_end[row] < view.start) continue;
    if (valueOf(transfers, 'transfer', row) === null) continue;  // clocks that cannot be compared
    if (!chart.layout.isShown[transfers.sender[row]] || !chart.layout.isShown[transfers.receiver[row]]) continue;
    const { y1, y2 } = arrowEnds(painter, chart, row);
    if (Math.max(y1, y2) < low || Math.min(y1, y2) > frame.top + frame.height) continue;
    if (rows.length === ARROW_LIMIT) return null;
    rows.push(row);
  }
  return rows;
}

function curve({ x1, y1, x2, y2 }) {
  const bend = Math.max(6, Math.min(60, Math.abs(x2 - x1) / 2));
  return [x1, y1, x1 + bend, y1, x2 - bend, y2, x2, y2];
}

function paintArrows(painter, chart) {
  const rows = findVisibleArrows(painter, chart);
  chart.visibleArrows = rows ?? [];
  const hovered = chart.hovered?.type === 'transfer' ? chart.hovered.row : -1;
  const alpha = 0.6 * Math.min(1, Math.max(0.25, 50 / chart.visibleArrows.length));  // the more arrows, the fainter, so that the bars remain visible
  for (const row of chart.visibleArrows) if (row !== hovered) paintArrow(painter, chart, row, alpha);
  painter.arrows = chart.visibleArrows.length;
  if (hovered >= 0) paintArrow(painter, chart, hovered);
}

// Paints one arrow; without `alpha`, in the style of the arrow under the mouse.
function paintArrow(painter, chart, row, alpha) {
  const isHovered = alpha === undefined;
  const { ctx, theme } = painter;
  const direction = valueOf(chart.transfers, 'direction', row);
  const line = curve(arrowEnds(painter, chart, row));
  const dim = chart.matches && !chart.matches.transfers[row];
  ctx.globalAlpha = isHovered ? 1 : dim ? 0.1 : alpha;
  ctx.strokeStyle = ctx.fillStyle = isHovered ? theme.accent : chart.arrowColors[direction ?? 2];
  ctx.lineWidth = isHovered ? 2.5 : 1.1;
  ctx.beginPath();
  ctx.moveTo(line[0], line[1]);
  ctx.bezierCurveTo(...line.slice(2));
  ctx.stroke();
  const size = isHovered ? 7 : 4.5;
  ctx.beginPath();
  ctx.moveTo(line[6], line[7]);
  ctx.lineTo(line[6] - size, line[7] - size * 0.6);
  ctx.lineTo(line[6] - size, line[7] + size * 0.6);
  ctx.fill();
  ctx.globalAlpha = 1;
}

// Returns the row of the transfer whose arrow is within 5 pixels of a point, or -1.
function arrowAt(painter, chart, x, y) {
  let nearest = -1;
  let minDistance = 25;  // square of the distance
  for (const row of chart.visibleArrows ?? []) {
    const [x1, y1, a1, b1, a2, b2, x2, y2] = curve(arrowEnds(painter, chart, row));
    if (x < Math.min(x1, x2) - 66 || x > Math.max(x1, x2) + 66 || y < Math.min(y1, y2) - 5 || y > Math.max(y1, y2) + 5) continue;
    for (let part = 0; part <= 24; part++) {
      const t = part / 24;
      const s = 1 - t;
      const dx = s * s * s * x1 + 3 * s * s * t * a1 + 3 * s * t * t * a2 + t * t * t * x2 - x;
      const dy = s * s * s * y1 + 3 * s * s * t * b1 + 3 * s * t * t * b2 + t * t * t * y2 - y;
      if (dx * dx + dy * dy < minDistance) { minDistance = dx * dx + dy * dy; nearest = row; }
    }
  }
  return nearest;
}
