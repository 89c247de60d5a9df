// Painting of the whole chart, from the back to the front.

function paintScene(ctx, frame, chart) {
  const painter = makePainter(ctx, frame, chart.view, chart.theme);
  const { layout, theme } = chart;
  ctx.save();
  ctx.beginPath();
  ctx.rect(frame.left, frame.top + STEP_ROW, frame.width, frame.height - STEP_ROW);
  ctx.clip();
  const visibleLanes = findVisibleLanes(painter, chart);
  for (const lane of visibleLanes) paintLane(painter, chart, lane);
  if (chart.shown.arrows) paintArrows(painter, chart);
  writeLabels(painter);
  paintHovered(painter, chart);
  ctx.restore();
  paintSteps(painter, chart);
  paintNames(painter, chart, visibleLanes);
  if (layout.total > frame.height - STEP_ROW) {
    const track = frame.height - STEP_ROW;
    const size = Math.max(24, (track * track) / layout.total);
    ctx.fillStyle = theme.strong;
    const offset = (chart.view.scroll / (layout.total - track)) * (track - size);
    ctx.fillRect(frame.left + frame.width + 18, frame.top + STEP_ROW + offset, 5, size);
  }
  return painter;
}

function findVisibleLanes(painter, chart) {
  const visible = [];
  for (let lane = 0; lane < chart.lanes.length; lane++) {
    const y = painter.y(chart.layout.tops[lane]);
    if (!chart.layout.isShown[lane]) continue;
    if (y + chart.layout.size > painter.frame.top + STEP_ROW && y < painter.frame.top + painter.frame.height) visible.push(lane);
  }
  return visible;
}

function paintLane(painter, chart, lane) {
  const { ctx, theme, frame } = painter;
  const { layout } = chart;
  const y = painter.y(layout.tops[lane]);
  ctx.fillStyle = theme.band;
  ctx.fillRect(frame.left, painter.y(layout.bars[lane]), frame.width, layout.barHeight);
  painter.bubbles += paintBubbles(painter, chart, lane, painter.y(layout.bars[lane]), layout.barHeight);
  paintJobs(painter, chart, lane);
  // a bar hides bubbles inside it: they are painted at its lower edge
  const edge = Math.max(2, Math.round(layout.barHeight * EDGE));
  paintBubbles(painter, chart, lane, painter.y(layout.bars[lane]) + layout.barHeight - edge, edge);
  paintMessages(painter, chart, lane);
  ctx.globalAlpha = 1;
  if (chart.shown.ideal) paintIdeal(painter, chart, lane);
  ctx.fillStyle = theme.strong;
  forEachVisible(painter, chart.intervals.steps, lane, (row, from) => {
    if (from >= frame.left) ctx.fillRect(from, y, 1, layout.size);
  });
  if (lane && chart.lanes[lane].stage !== chart.lanes[lane - 1].stage) {
    ctx.fillStyle = theme.line;
    ctx.fillRect(frame.left, y - STAGE_GAP / 2, frame.width, 1);
  }
}

function paintSteps(painter, chart) {
  const { ctx, theme, frame } = painter;
  ctx.save();
  ctx.beginPath();
  ctx.rect(frame.left, frame.top, frame.width, STEP_ROW);
  ctx.clip();
  ctx.fillStyle = theme.page;
  ctx.fillRect(frame.left, frame.top, frame.width, STEP_ROW);
  const firstLabel = painter.labels.length;
  chart.runSteps.forEach((step, index) => {
    const next = chart.runSteps[index + 1];
    const from = Math.round(Math.max(frame.left - 9, painter.x(step.start)));
    const to = Math.round(Math.min(painter.right + 9, painter.x(next ? Math.min(step.end, next.start) : step.end)));
    if (to < frame.left || from > painter.right) return;
    ctx.fillStyle = theme.step[index % 2];
    ctx.fillRect(from, frame.top + 2, Math.max(1, to - from), STEP_ROW - 5);
    ctx.fillStyle = theme.strong;
    ctx.fillRect(from, frame.top + 2, 1, STEP_ROW - 5);
    const text = `${step.isInferred ? 'inferred ' : ''}step ${step.step}${step.isPartial ? ' (cut)' : ''}`;
    for (const label of [text, String(step.step)]) {
      const before = painter.labels.length;
      paintLabel(painter, label, from, to, frame.top + 2, STEP_ROW - 5, theme.text, 11);
      if (painter.labels.length > before) break;
    }
  });
  writeLabels({ ctx, labels: painter.labels.slice(firstLabel) });
  ctx.restore();
  ctx.textAlign = 'right';
  ctx.textBaseline = 'middle';
  ctx.font = `10.5px ${FONT}`;
  ctx.fillStyle = theme.muted;
  ctx.fillText('time since the start of the run', frame.left - 10, frame.top + STEP_ROW / 2);
}

function paintNames(painter, chart, visibleLanes) {
  const { ctx, theme, frame } = painter;
  const { layout, lanes } = chart;
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, frame.top + STEP_ROW, frame.left, frame.height - STEP_ROW);
  ctx.clip();
  ctx.textAlign = 'left';
  ctx.textBaseline = 'middle';
  ctx.direction = 'ltr';
  for (const lane of visibleLanes) {
    const { label, gpu, stage, isNamed } = lanes[lane];
    const middle = painter.y(layout.tops[lane]) + layout.size / 2;
    const isFirst = !lane || lanes[lane - 1].stage !== stage;
    const count = chart.foldable.get(stage);
    const isFolded = chart.folded.has(stage);
    if (stage !== null && (isFirst || lane === visibleLanes[0])) {
      const mark = count ? (isFolded ? '\u25b8 ' : '\u25be ') : '';
      write(`${mark}stage ${stage}`, 10, middle, 62, `600 11px ${FONT}`, theme.text);
    }
    if (isFirst && lane) {
      ctx.fillStyle = theme.line;
      ctx.fillRect(8, painter.y(layout.tops[lane]) - STAGE_GAP / 2, frame.left - 8, 1);
    }
    const both = layout.size >= 34 && gpu;
    const [weight, color] = isNamed ? [600, theme.accent] : [400, theme.text];
    write(isFolded ? `${label} + ${count - 1}` : label, 76, both ? middle - 7 : middle, frame.left - 86, `${weight} 12px ${FONT}`, color);
    if (both) write(gpu, 76, middle + 8, frame.left - 86, `10.5px ${FONT}`, theme.muted);
    if (layout.idealHeight) write('ideal', frame.left - 34, painter.y(layout.ideals[lane]) + layout.idealHeight / 2, 30, `10.5px ${FONT}`, theme.muted);
  }
  ctx.restore();

  function write(text, x, y, room, font, color) {
    const short = fitText(ctx, font, text, room);
    ctx.font = font;
    ctx.fillStyle = color;
    ctx.fillText(short, x, y);
  }
}

function paintHovered(painter, chart) {
  const { ctx, theme } = painter;
  const box = chart.hovered && boxOf(painter, chart, chart.hovered);
  if (box) outline(box, theme.ghost, 1.5);
  const match = chart.matches?.current;
  if (match !== undefined && match !== null) {
    const matchBox = boxOf(painter, chart, match);
    if (matchBox) outline(matchBox, theme.accent, 2.5);
  }
  function outline({ from, to, y, height }, color, width) {
    ctx.strokeStyle = color;
    ctx.lineWidth = width;
    ctx.strokeRect(from - 0.5, y - 0.5, Math.max(2, to - from), height + 1);
  }
}
