// The whole picture, from the back to the front.

function paintScene(ctx, frame, chart) {
  const brush = makeBrush(ctx, frame, chart.view, chart.theme);
  const { layout, theme } = chart;
  ctx.save();
  ctx.beginPath();
  ctx.rect(frame.left, frame.top + STEP_ROW, frame.width, frame.height - STEP_ROW);
  ctx.clip();
  const inSight = lanesInSight(brush, chart);
  for (const lane of inSight) paintLane(brush, chart, lane);
  if (chart.shown.arrows) paintArrows(brush, chart);
  writeLabels(brush);
  paintPointed(brush, chart);
  ctx.restore();
  paintSteps(brush, chart);
  paintNames(brush, chart, inSight);
  if (layout.total > frame.height - STEP_ROW) {
    const track = frame.height - STEP_ROW;
    const size = Math.max(24, (track * track) / layout.total);
    ctx.fillStyle = theme.strong;
    const offset = (chart.view.scroll / (layout.total - track)) * (track - size);
    ctx.fillRect(frame.left + frame.width + 18, frame.top + STEP_ROW + offset, 5, size);
  }
  return brush;
}

function lanesInSight(brush, chart) {
  const found = [];
  for (let lane = 0; lane < chart.lanes.length; lane++) {
    const y = brush.y(chart.layout.tops[lane]);
    if (y + chart.layout.size > brush.frame.top + STEP_ROW && y < brush.frame.top + brush.frame.height) found.push(lane);
  }
  return found;
}

function paintLane(brush, chart, lane) {
  const { ctx, theme, frame } = brush;
  const { layout } = chart;
  const y = brush.y(layout.tops[lane]);
  ctx.fillStyle = theme.band;
  ctx.fillRect(frame.left, brush.y(layout.bars[lane]), frame.width, layout.barHeight);
  brush.bubbles += paintBubbles(brush, chart, lane, brush.y(layout.bars[lane]), layout.barHeight, chart.tints);
  paintJobs(brush, chart, lane);
  // a bar hides bubbles inside it: they are painted at its lower edge
  const edge = Math.max(2, Math.round(layout.barHeight * EDGE));
  paintBubbles(brush, chart, lane, brush.y(layout.bars[lane]) + layout.barHeight - edge, edge, chart.edges);
  paintMessages(brush, chart, lane);
  ctx.globalAlpha = 1;
  if (chart.shown.ideal) paintIdeal(brush, chart, lane);
  ctx.fillStyle = theme.strong;
  eachInSight(brush, chart.strips.steps, lane, (row, from) => {
    if (from >= frame.left) ctx.fillRect(from, y, 1, layout.size);
  });
  if (lane && chart.lanes[lane].stage !== chart.lanes[lane - 1].stage) {
    ctx.fillStyle = theme.line;
    ctx.fillRect(frame.left, y - STAGE_GAP / 2, frame.width, 1);
  }
}

function paintSteps(brush, chart) {
  const { ctx, theme, frame } = brush;
  ctx.save();
  ctx.beginPath();
  ctx.rect(frame.left, frame.top, frame.width, STEP_ROW);
  ctx.clip();
  ctx.fillStyle = theme.page;
  ctx.fillRect(frame.left, frame.top, frame.width, STEP_ROW);
  const seen = brush.labels.length;
  chart.wholeSteps.forEach((step, index) => {
    const next = chart.wholeSteps[index + 1];
    const from = Math.round(Math.max(frame.left - 9, brush.x(step.start)));
    const to = Math.round(Math.min(brush.right + 9, brush.x(next ? Math.min(step.end, next.start) : step.end)));
    if (to < frame.left || from > brush.right) return;
    ctx.fillStyle = theme.step[index % 2];
    ctx.fillRect(from, frame.top + 2, Math.max(1, to - from), STEP_ROW - 5);
    ctx.fillStyle = theme.strong;
    ctx.fillRect(from, frame.top + 2, 1, STEP_ROW - 5);
    const text = step.isPartial ? `step ${step.step} (cut)` : `step ${step.step}`;
    for (const words of [text, String(step.step)]) {
      const before = brush.labels.length;
      paintLabel(brush, words, from, to, frame.top + 2, STEP_ROW - 5, theme.text, 11);
      if (brush.labels.length > before) break;
    }
  });
  writeLabels({ ctx, labels: brush.labels.slice(seen) });
  ctx.restore();
}

function paintNames(brush, chart, inSight) {
  const { ctx, theme, frame } = brush;
  const { layout, lanes } = chart;
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, frame.top + STEP_ROW, frame.left, frame.height - STEP_ROW);
  ctx.clip();
  ctx.textAlign = 'left';
  ctx.textBaseline = 'middle';
  ctx.direction = 'ltr';
  for (const lane of inSight) {
    const { label, gpu, stage } = lanes[lane];
    const middle = brush.y(layout.tops[lane]) + layout.size / 2;
    const isFirst = !lane || lanes[lane - 1].stage !== stage;
    if (stage !== null && (isFirst || lane === inSight[0]))
      write(`stage ${stage}`, 10, middle, 62, `600 11px ${FONT}`, theme.text);
    if (isFirst && lane) {
      ctx.fillStyle = theme.line;
      ctx.fillRect(8, brush.y(layout.tops[lane]) - STAGE_GAP / 2, frame.left - 8, 1);
    }
    const both = layout.size >= 34 && gpu;
    write(label, 76, both ? middle - 7 : middle, frame.left - 86, `12px ${FONT}`, theme.text);
    if (both) write(gpu, 76, middle + 8, frame.left - 86, `10.5px ${FONT}`, theme.muted);
  }
  ctx.restore();

  function write(text, x, y, room, font, color) {
    const short = fitText(ctx, font, text, room);
    ctx.font = font;
    ctx.fillStyle = color;
    ctx.fillText(short, x, y);
  }
}

function paintPointed(brush, chart) {
  const { ctx, theme } = brush;
  const box = chart.pointed && boxOf(brush, chart, chart.pointed);
  if (box) outline(box, theme.ghost, 1.5);
  const found = chart.matches?.current;
  if (found !== undefined && found !== null) {
    const at = boxOf(brush, chart, found);
    if (at) outline(at, theme.accent, 2.5);
  }
  function outline({ from, to, y, height }, color, width) {
    ctx.strokeStyle = color;
    ctx.lineWidth = width;
    ctx.strokeRect(from - 0.5, y - 0.5, Math.max(2, to - from), height + 1);
  }
}
