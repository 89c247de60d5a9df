// Items under the mouse: hit tests, boxes, and texts of tooltips.

// Returns the item under a point as its type and row; null without one.
function itemAt(painter, chart, x, y) {
  const { frame } = painter;
  if (x < frame.left) return nameAt(painter, chart, y);
  if (x > painter.right || y < frame.top || y > frame.top + frame.height) return null;
  if (y < frame.top + STEP_ROW) return stepAt(painter, chart, x);
  const offset = y - frame.top - STEP_ROW + chart.view.scroll;
  const lane = laneAt(chart.layout, offset);
  const from = painter.time(x - 1.5);
  const to = painter.time(x + 1.5);
  if (lane >= 0) {
    const item = offset < chart.layout.sends[lane] - 1
      ? jobAt(chart, lane, from, to, offset) : messageAt(chart, lane, from, to, offset);
    if (item) return item;
  }
  const transfer = chart.shown.arrows ? arrowAt(painter, chart, x, y) : -1;
  if (transfer >= 0) return { type: 'transfer', row: transfer };
  if (lane < 0 || offset >= chart.layout.sends[lane]) return null;
  if (offset > chart.layout.bars[lane] + chart.layout.barHeight) {
    const row = chart.shown.ideal ? rowsAt(chart.intervals.ideal, lane, from, to).pop() : undefined;
    return row === undefined ? null : { type: 'ideal', row };
  }
  const bubble = rowsAt(chart.intervals.bubbles, lane, from, to)
    .find((row) => !chart.hidden.has(`cause:${chart.causes[chart.bubbles.cause[row]]}`));
  return bubble === undefined ? null : { type: 'bubble', row: bubble };
}

function nameAt(painter, chart, y) {
  const lane = laneAt(chart.layout, y - painter.frame.top - STEP_ROW + chart.view.scroll);
  return lane < 0 ? null : { type: 'lane', row: lane };
}

function stepAt(painter, chart, x) {
  const time = painter.time(x);
  const row = chart.runSteps.findLastIndex((step) => step.start <= time && time < step.end);
  return row < 0 ? null : { type: 'step', row };
}

function jobAt(chart, lane, from, to, offset) {
  const rows = rowsAt(chart.intervals.jobs, lane, from, to).filter((row) => {
    const { top, height } = jobBox(chart.layout, lane, chart.jobs.depth[row]);
    return !isHidden(chart, row) && offset >= top && offset <= top + height;
  });
  return rows.length ? { type: 'job', row: rows[rows.length - 1] } : null;
}

function messageAt(chart, lane, from, to, offset) {
  const kind = offset < chart.layout.receives[lane] ? 'send' : 'receive';
  const isShown = !chart.hidden.has(`kind:${kind}`);
  const transfer = isShown ? rowsAt(chart.intervals[kind], lane, from, to).pop() : undefined;
  if (transfer !== undefined) return { type: 'transfer', row: transfer };
  const job = rowsAt(chart.intervals.messages, lane, from, to).find((row) => {
    const own = chart.kinds[chart.jobs.kind[row]];
    return !isHidden(chart, row) && (own === kind || own === 'send_receive');
  });
  return job === undefined ? null : { type: 'job', row: job };
}

const isHidden = (chart, row) => chart.hidden.has(`kind:${chart.kinds[chart.jobs.kind[row]]}`);

// Returns the box of a job or bubble, in pixels; null for other items.
function boxOf(painter, chart, { type, row }) {
  const { jobs, layout, bubbles } = chart;
  const span = (start, end) => {
    const from = Math.round(painter.x(start));
    return { from, to: Math.max(from + 1, Math.round(painter.x(end))) };
  };
  if (type === 'bubble')
    return { ...span(bubbles.start[row], bubbles.start[row] + bubbles.duration[row]), y: painter.y(layout.bars[bubbles.lane[row]]), height: layout.barHeight };
  if (type !== 'job') return null;
  const kind = chart.kinds[jobs.kind[row]];
  const lane = jobs.lane[row];
  const at = span(jobs.start[row], jobs.start[row] + jobs.duration[row]);
  if (!chart.isMessage[row]) {
    const { top, height } = jobBox(layout, lane, jobs.depth[row]);
    return { ...at, y: painter.y(top), height };
  }
  const height = kind === 'send_receive' ? 2 * layout.messageHeight + 1 : layout.messageHeight;
  return { ...at, y: painter.y(kind === 'receive' ? layout.receives[lane] : layout.sends[lane]), height };
}

// Returns the title and the rows (label and value) of a tooltip; rows with an empty value are not shown.
function describe(chart, { type, row }) {
  return { job: describeJob, ideal: describeIdeal, transfer: describeTransfer, bubble: describeBubble, step: describeStep, lane: describeLane }[type](chart, row);
}

function describeLane(chart, row) {
  const { label, rank, stage, gpu, replica, tensor } = chart.lanes[row];
  return [label, [['rank', rank], ['stage', stage], ['GPU', gpu], ['replica', replica], ['tensor slice', tensor]]];
}

function describeStep(chart, row) {
  const { step, start, end, isPartial, isInferred } = chart.runSteps[row];
  return [`${isInferred ? 'inferred ' : ''}step ${step}`, [['start', formatTime(start, 1000)], ['duration', formatTime(end - start)], ['', isPartial ? 'cut by the capture' : null]]];
}

function describeJob(chart, row) {
  const { jobs } = chart;
  const get = (name) => valueOf(jobs, name, row);
  const time = (name) => (get(name) === null ? null : formatTime(get(name)));
  const duration = get('hull_duration');
  const compute = get('compute_lead') === null ? null : jobs.hull_start[row] + get('compute_lead');
  const inferred = jobs.is_inferred[row] ? ` (inferred${get('confidence') === null ? '' : `, ${Math.round(100 * get('confidence'))} %`})` : '';
  const id = (name) => (get(name) === null ? null : `${get(name)}${inferred}`);
  return [chart.names[jobs.name[row]], [
    ['kind', chart.kinds[jobs.kind[row]].replaceAll('_', ' ')],
    ['role', jobs.role ? chart.roles[jobs.role[row]] || null : null],
    ['micro-batch', id('micro_batch')], ['chunk', id('chunk')],
    ['of the backward', get('backward_micro_batch') === null ? null : `micro-batch ${get('backward_micro_batch')}`],
    ['step', get('step')], ...laneRows(chart, jobs.lane[row]),
    ['start', formatTime(get('hull_start'), 1000)], ['duration', time('hull_duration')],
    ['busy', duration ? `${((100 * jobs.busy[row]) / duration).toFixed(1)} % (${time('busy')})` : null],
    ['compute', compute === null ? null : `${formatTime(compute, 1000)} to ${formatTime(compute + get('compute_duration'), 1000)}`],
    ['launch delay', time('launch_delay')],
  ]];
}

function describeIdeal(chart, row) {
  const { ideal, jobs, rowOfJob } = chart;
  const job = rowOfJob.get(ideal.job[row]);
  return [`ideal: ${job === undefined ? '' : chart.names[jobs.name[job]]}`, [
    ['start', formatTime(ideal.start[row], 1000)], ['duration', formatTime(ideal.duration[row])],
    ['measured start', job === undefined ? null : formatTime(jobs.start[job], 1000)],
  ]];
}

function describeTransfer(chart, row) {
  const { transfers } = chart;
  const get = (name) => valueOf(transfers, name, row);
  const time = (name) => (get(name) === null ? null : formatTime(get(name)));
  const direction = chart.directions[get('direction')];
  return [`${direction ? `${direction} ` : ''}message${get('micro_batch') === null ? '' : ` ${get('micro_batch')}`}`, [
    ['sender', laneName(chart, transfers.sender[row])], ['receiver', laneName(chart, transfers.receiver[row])],
    ['step', get('step')], ['bytes', get('size')?.toLocaleString('en')],
    ['send', `${formatTime(get('send_start'), 1000)}, for ${formatTime(transfers.send_end[row] - transfers.send_start[row])}`],
    ['receive', `${formatTime(get('receive_start'), 1000)}, for ${formatTime(transfers.receive_end[row] - transfers.receive_start[row])}`],
    ['sender waits', time('send_wait')], ['receiver waits', time('receive_wait')], ['transfer', time('transfer')],
    ['uncertain by', get('bound') === null ? 'unknown' : `± ${time('bound')}`],
    ['', get('is_buffered') ? 'the send ended before the receive began' : null],
    ['', get('doubtful') === null ? null : chart.doubtful[get('doubtful')]],
  ]];
}

function describeBubble(chart, row) {
  const { bubbles } = chart;
  const lateLane = valueOf(bubbles, 'waits_for', row);
  return [chart.causes[bubbles.cause[row]].replaceAll('_', ' '), [
    ['start', formatTime(bubbles.start[row], 1000)], ['duration', formatTime(bubbles.duration[row])],
    ['waits for', lateLane === null ? null : laneName(chart, lateLane)],
    ['position', chart.positions[valueOf(bubbles, 'position', row)]], ['step', valueOf(bubbles, 'step', row)],
    ...laneRows(chart, bubbles.lane[row]),
  ]];
}

function laneName(chart, lane) {
  const { label, stage } = chart.lanes[lane];
  return stage === null ? label : `${label}, stage ${stage}`;
}

function laneRows(chart, lane) {
  const { rank, label, stage, gpu } = chart.lanes[lane];
  return [['rank', rank ?? label], ['stage', stage], ['GPU', gpu]];
}
