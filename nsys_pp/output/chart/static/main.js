// Entry point of the page.

const packed = JSON.parse($('data').textContent);

function readChart() {
  const tables = Object.fromEntries(Object.entries(packed.tables).map(([name, table]) => [name, readTable(table)]));
  const { jobs, transfers, bubbles, ideal, steps } = tables;
  const count = packed.lanes.length;
  // some times are stored as differences from another column, which need fewer bytes
  const sum = (base, difference, sign = 1) => Float64Array.from(base, (value, row) => value + sign * difference[row]);
  jobs.hull_start = sum(jobs.start, jobs.hull_lead, -1);
  transfers.send_end = sum(transfers.send_start, transfers.send_duration);
  transfers.receive_start = sum(transfers.send_start, transfers.receive_lag);
  transfers.receive_end = sum(transfers.receive_start, transfers.receive_duration);
  const isMessage = Uint8Array.from(jobs.kind, (kind) => ['send', 'receive', 'send_receive'].includes(packed.kinds[kind]) ? 1 : 0);
  const indexTable = (table, lanes, start = 'start', duration = 'duration') =>
    indexIntervals(count, table[lanes], (row) => table[start][row], (row) => table[start][row] + table[duration][row], table.length);
  const indexJobs = (messageFlag) => {
    const rows = Uint32Array.from(isMessage.keys()).filter((row) => isMessage[row] === messageFlag);
    const index = indexIntervals(count, jobs.lane.constructor.from(rows, (row) => jobs.lane[row]),
      (at) => jobs.start[rows[at]], (at) => jobs.start[rows[at]] + jobs.duration[rows[at]], rows.length);
    index.row = index.row.map((at) => rows[at]);
    return index;
  };
  let reach = -Infinity;
  return {
    ...packed, ...tables, isMessage,
    intervals: {
      jobs: indexJobs(0), messages: indexJobs(1), bubbles: indexTable(bubbles, 'lane'), ideal: indexTable(ideal, 'lane'), steps: indexTable(steps, 'lane'),
      send: indexIntervals(count, transfers.sender, (row) => transfers.send_start[row], (row) => transfers.send_end[row], transfers.length),
      receive: indexIntervals(count, transfers.receiver, (row) => transfers.receive_start[row], (row) => transfers.receive_end[row], transfers.length),
    },
    transferReach: Float64Array.from({ length: transfers.length }, (_, row) => (reach = Math.max(reach, transfers.receive_end[row]))),
    rowOfJob: new Map(Array.from(jobs.job, (job, row) => [job, row])),
    foldable: findFoldable(packed.lanes),
    folded: new Set(packed.lanes.length > FOLD_LANES ? [...findFoldable(packed.lanes).keys()].filter((stage) => !packed.unfolded?.includes(stage)) : []),
    hidden: new Set(), shown: { arrows: true, ideal: false }, matches: null, hovered: null, visibleArrows: [],
  };
}

function setTheme(chart, name) {
  const theme = (chart.theme = THEMES[name]);
  document.documentElement.dataset.theme = chart.themeName = name;
  chart.tints = Object.fromEntries(Object.entries(chart.causeColors).map(([cause, color]) => [cause, mix(theme.page, color, theme.bubble)]));
  chart.pale = Object.fromEntries(Object.entries(chart.kindColors).map(([kind, color]) => [kind, mix(theme.page, color, 0.25)]));
  const pen = document.createElement('canvas').getContext('2d');
  const tiles = Object.entries(chart.hatches).map(([key, path]) => {
    const color = chart.causeColors[key] ?? chart.kindColors[key];
    return [key, drawTile(path, chart.hatchSize, mix(theme.page, color, 0.8), chart.tints[key] ?? chart.pale[key])];
  });
  chart.patterns = Object.fromEntries(tiles.map(([key, tile]) => [key, pen.createPattern(tile, 'repeat')]));
  const swatches = Object.fromEntries(tiles.map(([key, tile]) => [key, `url(${tile.toDataURL()})`]));
  chart.arrowColors = [chart.kindColors.forward, chart.kindColors.backward, theme.muted];
  for (const swatch of document.querySelectorAll('[data-cause]')) swatch.style.background = swatches[swatch.dataset.cause] ?? chart.tints[swatch.dataset.cause];
}

async function start() {
  const chart = readChart();
  fillNotes(chart);
  if (!chart.lanes.length || chart.missing) {
    $('missing').hidden = false;
    $('missing').textContent = chart.missing;
  }
  if (!chart.lanes.length) {
    setTheme(chart, matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
    document.body.classList.add('empty');
    window.nsysChart = { state: () => ({ isReady: true, bars: 0, lanes: 0, labels: [], missing: chart.missing, theme: chart.themeName }) };
    return;
  }
  let painter = null;
  const holder = $('plot');
  const plot = makePlot(holder, (ctx, frame) => {
    chart.layout = layOutLanes(chart, frame.height);
    chart.view.maxScroll = Math.max(0, chart.layout.total - frame.height + STEP_ROW);
    chart.view.scroll = Math.min(chart.view.scroll, chart.view.maxScroll);
    painter = paintScene(ctx, frame, chart);
  });
  const update = () => plot.repaint();
  chart.view = makeView(chart.first, chart.last, () => { plot.move(chart.view.start, chart.view.end); update(); });
  plot.move(chart.view.start, chart.view.end);
  const applyTheme = (name) => { setTheme(chart, name); plot.color(chart.theme); update(); };
  fillLegend(chart, update);
  const dark = matchMedia('(prefers-color-scheme: dark)');
  applyTheme(dark.matches ? 'dark' : 'light');
  await plot.show();
  const step = chart.runSteps.length > 1 && chart.runSteps.find(({ step }) => step === chart.opensOn);
  if (step) chart.view.set(step.start - 0.03 * (step.end - step.start), step.end + 0.03 * (step.end - step.start));

  const hover = (at, event) => {
    const item = at && painter ? itemAt(painter, chart, at.x, at.y) : null;
    const isChanged = item?.type !== chart.hovered?.type || item?.row !== chart.hovered?.row;
    chart.hovered = item;
    showTooltip(chart, item, event && { x: event.clientX, y: event.clientY });
    if (isChanged) update();
  };
  const press = (at) => {
    const item = at.x < painter.frame.left ? nameAt(painter, chart, at.y) : null;
    if (item && chart.foldable.has(chart.lanes[item.row].stage)) toggleStage(chart, chart.lanes[item.row].stage, update);
  };
  listen(holder, chart.view, () => painter, { hover, press, fitAll: () => chart.view.fit() });
  listenToSearch(chart, update, (row) => reveal(chart, painter, row));
  let isThemeChosen = false;
  $('theme').addEventListener('click', () => { isThemeChosen = true; applyTheme(chart.themeName === 'dark' ? 'light' : 'dark'); });
  dark.addEventListener('change', () => { if (!isThemeChosen) applyTheme(dark.matches ? 'dark' : 'light'); });
  $('fit').addEventListener('click', () => chart.view.fit());
  listenToPrint(chart, plot, applyTheme);
  window.nsysChart = { state: () => stateOf(chart, painter), view: (from, to) => chart.view.set(from, to) };
}

function toggleStage(chart, stage, update) {
  if (!chart.folded.delete(stage)) chart.folded.add(stage);
  update();
}

// Moves the view to a job: zooms until the job has at least a fortieth of the width, and scrolls if its lane is not visible.
function reveal(chart, painter, row) {
  const { jobs, view } = chart;
  const lane = jobs.lane[row];
  if (!chart.layout.isShown[lane]) {
    chart.folded.delete(chart.lanes[lane].stage);
    chart.layout = layOutLanes(chart, painter.frame.height);
    view.maxScroll = Math.max(0, chart.layout.total - painter.frame.height + STEP_ROW);
  }
  const { layout } = chart;
  const middle = jobs.start[row] + jobs.duration[row] / 2;
  const span = Math.min(view.end - view.start, Math.max(jobs.duration[row] * 40, MIN_SPAN));
  const room = painter.frame.height - STEP_ROW;
  const top = layout.tops[lane];
  const isVisible = top >= view.scroll && top + layout.size <= view.scroll + room;
  view.set(middle - span / 2, middle + span / 2, isVisible ? view.scroll : top - room / 2);
}

// Prints in the light theme, at three times the resolution of the screen.
function listenToPrint(chart, plot, applyTheme) {
  let before = null;
  addEventListener('beforeprint', () => {
    before = chart.themeName;
    applyTheme('light');
    $('notes').open = true;
    $('paper').replaceChildren(plot.copy(3));
  });
  addEventListener('afterprint', () => { $('paper').replaceChildren(); applyTheme(before); });
}

// Returns the state of the page, for tests.
function stateOf(chart, painter) {
  const { view, matches } = chart;
  return {
    isReady: painter !== null, start: view.start, end: view.end, scroll: view.scroll, maxScroll: view.maxScroll, theme: chart.themeName,
    frame: painter.frame, lanes: chart.lanes.length, laneTops: chart.layout.tops.map((top) => painter.y(top)), laneHeight: chart.layout.size,
    bars: painter.bars, bubbles: painter.bubbles, arrows: painter.arrows, ideal: painter.ideal, hidden: [...chart.hidden],
    folded: [...chart.folded], shownLanes: chart.layout.isShown.filter(Boolean).length,
    labels: painter.labels.map(({ text, x, y, width, left, right, top, bottom, size }) => ({ text, x, y, width, left, right, top, bottom, size })),
    matches: matches && { count: matches.rows.length, at: matches.at }, hovered: chart.hovered, missing: chart.missing,
    layout: chart.layout, step: STEP_ROW,
  };
}

start();
