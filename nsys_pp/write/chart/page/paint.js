// Painting of lanes: bubbles, bars, messages, the ideal schedule, labels. Counts of painted items are for tests.

const ARROW_LIMIT = 2000;  // more arrows in sight are indistinguishable
const LABEL_ROOM = 2;  // pixels on either side

function makeBrush(ctx, frame, view, theme) {
  const scale = frame.width / (view.end - view.start);
  return {
    ctx, frame, view, theme, scale, right: frame.left + frame.width, labels: [], alpha: 1, line: null, bars: 0, bubbles: 0, arrows: 0, ideal: 0,
    x: (time) => frame.left + (time - view.start) * scale,
    time: (x) => view.start + (x - frame.left) / scale,
    y: (offset) => frame.top + STEP_ROW + offset - view.scroll,
  };
}

// Calls `draw(row, left, right)` for each row in sight, in whole pixels; once per pixel for rows within it.
function eachInSight(brush, strip, lane, draw) {
  const { frame, view, right } = brush;
  const last = strip.first[lane + 1];
  let at = firstAbove(strip.reach, view.start, strip.first[lane], last);
  while (at < last && strip.start[at] < view.end) {
    const from = Math.round(Math.max(frame.left - 9, brush.x(strip.start[at])));
    const to = Math.round(Math.min(right + 9, brush.x(strip.end[at])));
    if (to - from > 1) {
      draw(strip.row[at++], from, to);
    } else {
      draw(strip.row[at], from, from + 1);
      at = firstAbove(strip.reach, brush.time(from + 1), at + 1, last);
    }
  }
}

function paintBar(brush, from, to, y, height, fill) {
  fillBox(brush, from, to - from > 3 ? to - 1 : to, y, height, fill);
}

function paintLabel(brush, text, from, to, y, height, color, size) {
  if (!text || height < size) return;
  const left = Math.max(from, brush.frame.left);
  const right = Math.min(to - 1, brush.right);
  const room = right - left - 2 * LABEL_ROOM;
  if (room < 4) return;
  const fits = [size, 9].find((px) => px <= size && textWidth(brush.ctx, `${px}px ${FONT}`, text) <= room);
  if (!fits) return;
  const font = `${fits}px ${FONT}`;
  const width = textWidth(brush.ctx, font, text);
  const x = (left + right) / 2;
  brush.labels.push({ text, x, y: y + height / 2, width, left, right, top: y, bottom: y + height, size: fits, color, font });
}

function writeLabels(brush) {
  const { ctx } = brush;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  ctx.direction = 'ltr';
  for (const label of brush.labels) {
    ctx.font = label.font;
    ctx.fillStyle = label.color;
    ctx.fillText(label.text, label.x, label.y + 0.5);
  }
}

const EDGE = 0.1;  // share of a bar's height

function paintBubbles(brush, chart, lane, y, height, colors) {
  const { bubbles } = chart;
  let count = 0;
  beginLine(brush, chart.strips.bubbles, lane, y, height);
  eachInSight(brush, chart.strips.bubbles, lane, (row, from, to) => {
    const cause = chart.causes[bubbles.cause[row]];
    if (chart.hidden.has(`cause:${cause}`)) return;
    fillBox(brush, from, to, y, height, colors[cause]);
    count++;
  });
  endLine(brush);
  return count;
}

// Nested jobs are lower, at the bottom of the jobs around them.
function jobBox(layout, lane, depth) {
  const inset = Math.min(depth, 3) * Math.round(layout.barHeight * 0.22);
  return { top: layout.bars[lane] + inset, height: Math.max(3, layout.barHeight - inset) };
}

function paintJobs(brush, chart, lane) {
  const { jobs, layout, matches } = chart;
  const isFaint = chart.shown.ideal;
  const outer = jobBox(layout, lane, 0);
  beginLine(brush, chart.strips.jobs, lane, brush.y(outer.top), outer.height);
  eachInSight(brush, chart.strips.jobs, lane, (row, from, to) => {
    const kind = chart.kinds[jobs.kind[row]];
    if (chart.hidden.has(`kind:${kind}`)) return;
    const box = jobBox(layout, lane, jobs.depth[row]);
    const y = brush.y(box.top);
    const look = chart.looks[jobs.kind[row]][jobs.shade[row]];
    const isDim = matches && !matches.flags[row];
    brush.alpha = isDim ? 0.2 : isFaint ? 0.45 : 1;
    paintBar(brush, from, to, y, box.height, look.fill);
    brush.bars++;
    if (!isDim && !isFaint) paintLabel(brush, chart.labels[jobs.label[row]], from, to, y, box.height, look.text, 11);
  });
  endLine(brush);
  brush.alpha = 1;
}

function paintMessages(brush, chart, lane) {
  const { jobs, layout, transfers, matches } = chart;
  const { theme } = brush;
  const whole = 2 * layout.messageHeight + 1;
  if (!layout.messageHeight) return;
  const size = Math.min(10, layout.messageHeight);
  eachInSight(brush, chart.strips.messages, lane, (row, from, to) => {
    const kind = chart.kinds[jobs.kind[row]];
    if (chart.hidden.has(`kind:${kind}`)) return;
    const y = brush.y(kind === 'receive' ? layout.receives[lane] : layout.sends[lane]);
    const height = kind === 'send_receive' ? whole : layout.messageHeight;
    brush.alpha = matches && !matches.flags[row] ? 0.2 : 1;
    paintBar(brush, from, to, y, height, chart.pale[kind]);
    brush.bars++;
    if (!transfers.length && size >= 9)
      paintLabel(brush, chart.labels[jobs.label[row]], from, to, y, height, theme.text, size);
  });
  brush.alpha = 1;
  paintKernels(brush, chart, lane, 'send', 'send_wait', layout.sends[lane], size);
  paintKernels(brush, chart, lane, 'receive', 'receive_wait', layout.receives[lane], size);
}

function paintKernels(brush, chart, lane, kind, wait, top, size) {
  const { transfers, layout, matches } = chart;
  if (chart.hidden.has(`kind:${kind}`)) return;
  const strip = chart.strips[kind];
  const look = chart.looks[chart.kinds.indexOf(kind)][0];
  const y = brush.y(top);
  const height = layout.messageHeight;
  beginLine(brush, strip, lane, y, height);
  eachInSight(brush, strip, lane, (row, from, to) => {
    brush.alpha = matches && !matches.transfers[row] ? 0.2 : 1;
    const waited = transfers[wait][row] * brush.scale;
    const turn = Math.min(to, Math.max(from, Math.round(brush.x(transfers[`${kind}_start`][row]) + waited)));
    const isHatched = turn - from > 2 && !brush.line;
    if (turn > from)
      fillBox(brush, from, turn, y, height, isHatched ? hatch(brush.ctx, chart.faded[kind], chart.pale[kind]) : chart.pale[kind]);
    if (to > turn) paintBar(brush, turn, to, y, height, look.fill);
    const number = valueOf(transfers, 'micro_batch', row);
    if (size >= 9 && number !== null) paintLabel(brush, String(number), turn, to, y, height, look.text, size);
  });
  endLine(brush);
  brush.alpha = brush.ctx.globalAlpha = 1;
}

function paintIdeal(brush, chart, lane) {
  brush.ctx.globalAlpha = 1;
  const { ideal, jobs, layout, rowOfJob } = chart;
  const { ctx, theme } = brush;
  eachInSight(brush, chart.strips.ideal, lane, (row, from, to) => {
    const job = rowOfJob.get(ideal.job[row]);
    if (job !== undefined && chart.hidden.has(`kind:${chart.kinds[jobs.kind[job]]}`)) return;
    brush.ideal++;
    const y = brush.y(layout.bars[lane]);
    ctx.strokeStyle = theme.ghost;
    ctx.lineWidth = 1;
    if (to - from > 2) ctx.strokeRect(from + 0.5, y + 0.5, to - from - 2, layout.barHeight - 1);
    if (job !== undefined)
      paintLabel(brush, chart.labels[jobs.label[job]], from, to, y, layout.barHeight, theme.ghost, 11);
  });
}
