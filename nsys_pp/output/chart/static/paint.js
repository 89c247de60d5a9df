// Painting of lanes: bubbles, bars, messages, the ideal schedule, labels.

const ARROW_LIMIT = 2000;  // more visible arrows are indistinguishable
const LABEL_ROOM = 2;  // pixels on either side

// Returns the state of one repaint: the canvas, its scales, the labels to write last, and counts of painted items for tests.
function makePainter(ctx, frame, view, theme) {
  const scale = frame.width / (view.end - view.start);
  return {
    ctx, frame, view, theme, scale, right: frame.left + frame.width, labels: [], alpha: 1, line: null, bars: 0, bubbles: 0, arrows: 0, ideal: 0,
    x: (time) => frame.left + (time - view.start) * scale,
    time: (x) => view.start + (x - frame.left) / scale,
    y: (offset) => frame.top + STEP_ROW + offset - view.scroll,
  };
}

// Calls `draw(row, from, to)` for each visible row of a lane, in whole pixels; of rows within the same pixel, for the first only.
function forEachVisible(painter, index, lane, draw) {
  const { frame, view, right } = painter;
  const last = index.first[lane + 1];
  let at = firstAbove(index.reach, view.start, index.first[lane], last);
  while (at < last && index.start[at] < view.end) {
    const from = Math.round(Math.max(frame.left - 9, painter.x(index.start[at])));
    const to = Math.round(Math.min(right + 9, painter.x(index.end[at])));
    if (to - from > 1) {
      draw(index.row[at++], from, to);
    } else {
      draw(index.row[at], from, from + 1);
      at = firstAbove(index.reach, painter.time(from + 1), at + 1, last);
    }
  }
}

function paintBar(painter, from, to, y, height, fill) {
  fillBox(painter, from, to - from > 3 ? to - 1 : to, y, height, fill);
}

function paintLabel(painter, text, from, to, y, height, color, size) {
  if (!text || height < size) return;
  const left = Math.max(from, painter.frame.left);
  const right = Math.min(to - 1, painter.right);
  const room = right - left - 2 * LABEL_ROOM;
  if (room < 4) return;
  const fits = [size, 9].find((px) => px <= size && textWidth(painter.ctx, `${px}px ${FONT}`, text) <= room);
  if (!fits) return;
  const font = `${fits}px ${FONT}`;
  const width = textWidth(painter.ctx, font, text);
  const x = (left + right) / 2;
  painter.labels.push({ text, x, y: y + height / 2, width, left, right, top: y, bottom: y + height, size: fits, color, font });
}

function writeLabels(painter) {
  const { ctx } = painter;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  ctx.direction = 'ltr';
  for (const label of painter.labels) {
    ctx.font = label.font;
    ctx.fillStyle = label.color;
    ctx.fillText(label.text, label.x, label.y + 0.5);
  }
}

const EDGE = 0.3;  // height of bubbles inside a bar, as a share of the bar's height

function paintBubbles(painter, chart, lane, y, height) {
  const { bubbles } = chart;
  let count = 0;
  beginLine(painter, chart.intervals.bubbles, lane, y, height);
  forEachVisible(painter, chart.intervals.bubbles, lane, (row, from, to) => {
    const cause = chart.causes[bubbles.cause[row]];
    if (chart.hidden.has(`cause:${cause}`)) return;
    const pattern = to - from > 2 && !painter.line && chart.patterns[cause];
    fillBox(painter, from, to, y, height, pattern || chart.tints[cause]);
    count++;
  });
  endLine(painter);
  return count;
}

// Returns the box of a job: a nested job has a lower bar, at the bottom of the bar around it.
function jobBox(layout, lane, depth) {
  const inset = Math.min(depth, 3) * Math.round(layout.barHeight * 0.22);
  return { top: layout.bars[lane] + inset, height: Math.max(3, layout.barHeight - inset) };
}

function paintJobs(painter, chart, lane) {
  const { jobs, layout, matches } = chart;
  const outer = jobBox(layout, lane, 0);
  beginLine(painter, chart.intervals.jobs, lane, painter.y(outer.top), outer.height);
  forEachVisible(painter, chart.intervals.jobs, lane, (row, from, to) => {
    const kind = chart.kinds[jobs.kind[row]];
    if (chart.hidden.has(`kind:${kind}`)) return;
    const box = jobBox(layout, lane, jobs.depth[row]);
    const y = painter.y(box.top);
    const look = chart.looks[jobs.kind[row]][jobs.shade[row]];
    const isDim = matches && !matches.flags[row];
    painter.alpha = isDim ? 0.2 : 1;
    paintBar(painter, from, to, y, box.height, look.fill);
    painter.bars++;
    if (!isDim) paintLabel(painter, chart.labels[jobs.label[row]], from, to, y, box.height, look.text, 11);
  });
  endLine(painter);
  painter.alpha = 1;
}

function paintMessages(painter, chart, lane) {
  const { jobs, layout, transfers, matches } = chart;
  const { theme } = painter;
  const whole = 2 * layout.messageHeight + 1;
  if (!layout.messageHeight) return;
  const size = Math.min(10, layout.messageHeight);
  forEachVisible(painter, chart.intervals.messages, lane, (row, from, to) => {
    const kind = chart.kinds[jobs.kind[row]];
    if (chart.hidden.has(`kind:${kind}`)) return;
    const y = painter.y(kind === 'receive' ? layout.receives[lane] : layout.sends[lane]);
    const height = kind === 'send_receive' ? whole : layout.messageHeight;
    painter.alpha = matches && !matches.flags[row] ? 0.2 : 1;
    paintBar(painter, from, to, y, height, chart.pale[kind]);
    painter.bars++;
    if (!transfers.length && size >= 9)
      paintLabel(painter, chart.labels[jobs.label[row]], from, to, y, height, theme.text, size);
  });
  painter.alpha = 1;
  paintKernels(painter, chart, lane, 'send', 'send_wait', layout.sends[lane], size);
  paintKernels(painter, chart, lane, 'receive', 'receive_wait', layout.receives[lane], size);
}

function paintKernels(painter, chart, lane, kind, wait, top, size) {
  const { transfers, layout, matches } = chart;
  if (chart.hidden.has(`kind:${kind}`)) return;
  const index = chart.intervals[kind];
  const look = chart.looks[chart.kinds.indexOf(kind)][0];
  const y = painter.y(top);
  const height = layout.messageHeight;
  beginLine(painter, index, lane, y, height);
  forEachVisible(painter, index, lane, (row, from, to) => {
    painter.alpha = matches && !matches.transfers[row] ? 0.2 : 1;
    const waited = transfers[wait][row] * painter.scale;
    const waitEnd = Math.min(to, Math.max(from, Math.round(painter.x(transfers[`${kind}_start`][row]) + waited)));
    const isHatched = waitEnd - from > 2 && !painter.line;
    if (waitEnd > from) fillBox(painter, from, waitEnd, y, height, isHatched ? chart.patterns[kind] : chart.pale[kind]);
    if (to > waitEnd) paintBar(painter, waitEnd, to, y, height, look.fill);
    const number = valueOf(transfers, 'micro_batch', row);
    if (size >= 9 && number !== null) paintLabel(painter, String(number), waitEnd, to, y, height, look.text, size);
  });
  endLine(painter);
  painter.alpha = painter.ctx.globalAlpha = 1;
}

function paintIdeal(painter, chart, lane) {
  const { ideal, jobs, layout, rowOfJob } = chart;
  const y = painter.y(layout.ideals[lane]);
  beginLine(painter, chart.intervals.ideal, lane, y, layout.idealHeight);
  forEachVisible(painter, chart.intervals.ideal, lane, (row, from, to) => {
    const job = rowOfJob.get(ideal.job[row]);
    if (job === undefined || isHidden(chart, job)) return;
    painter.ideal++;
    const look = chart.looks[jobs.kind[job]][jobs.shade[job]];
    paintBar(painter, from, to, y, layout.idealHeight, look.fill);
    paintLabel(painter, chart.labels[jobs.label[job]], from, to, y, layout.idealHeight, look.text, 11);
  });
  endLine(painter);
}
