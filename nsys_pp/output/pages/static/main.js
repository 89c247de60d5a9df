// Entry point of the page.

function describeCell(map, { lane, step }) {
  const { heat } = map;
  const { label, stage, machine } = heat.lanes[lane];
  const names = [label, stage === null ? null : `stage ${stage}`, machine && !label.startsWith(machine) ? machine : null].filter((name) => name !== null);
  const head = `${names.join(' · ')}, step ${heat.nameStep(step)}`;
  if (!heat.isPresent(lane, step)) return `${head}: not recorded`;
  const facts = heat.metrics.map((metric) => [metric, heat.valueAt(metric.name, lane, step)]).filter(([, value]) => value !== null).map(([metric, value]) => `${metric.title} ${formatValue(metric, value)}`);
  if (!heat.isComplete(lane, step)) facts.push('the capture cuts this step');
  return `${head}: ${facts.join(', ')}`;
}

function showPlace(map, cell) {
  const { traceLinks, rows } = map.heat;
  $('heat-place').replaceChildren();
  if (!traceLinks || !cell || !map.heat.isPresent(cell.lane, cell.step)) return;
  const [start, end] = map.heat.windowOf(cell.lane, cell.step);
  const [head, middle, tail] = traceLinks.parts;
  const text = `${head}${Math.max(start, 0)}${middle}${Math.max(end, 1)}${tail}`;
  if (traceLinks.isLink) $('heat-place').append(element('a', { className: 'place', href: text, rel: 'noreferrer', textContent: 'This step in the trace' }));
  else $('heat-place').append(element('span', { className: 'place' }, 'This step in the trace: ', element('code', { textContent: `${text} --expand ${rows[cell.lane]}` }), element('button', { type: 'button', className: 'copy', textContent: 'Copy' })));
}

function fillScale(map) {
  const { metric, theme, heat } = map;
  const css = (value) => `rgb(${colorOf(metric, theme, heat.cool, value).join(' ')})`;
  const stops = [0, 0.25, 0.5, 0.75, 1].map((share) => css(metric.low + share * (metric.high - metric.low)));
  const bar = element('i');
  bar.style.background = `linear-gradient(90deg, ${stops.join(', ')})`;
  const parts = [formatValue(metric, metric.low), bar, formatValue(metric, metric.high)];
  const isCut = heat.steps.some((_, step) => heat.lanes.some((_, lane) => heat.isPresent(lane, step) && !heat.isComplete(lane, step)));
  if (isCut) parts.push(element('b'), 'cut by the capture');
  $('heat-scale').replaceChildren(...parts);
  $('heat-meaning').textContent = `${metric.title[0].toUpperCase()}${metric.title.slice(1)}: ${metric.meaning}.`;
}

function select(map, cell, isKept) {
  const isChanged = cell?.lane !== map.at?.lane || cell?.step !== map.at?.step;
  map.at = cell;
  map.isKept = isKept;
  $('heat-read').textContent = cell ? describeCell(map, cell) : HELP;
  showPlace(map, cell);
  if (isChanged) map.paintCursor();
}

const HELP = $('heat-read')?.textContent ?? '';
const KEYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function listenToHeat(map) {
  const { canvas } = map;
  const place = (event) => { const box = canvas.getBoundingClientRect(); return map.find(event.clientX - box.left, event.clientY - box.top); };
  canvas.addEventListener('pointermove', (event) => { if (!map.isKept) select(map, place(event), false); });
  canvas.addEventListener('pointerleave', () => { if (!map.isKept) select(map, null, false); });
  canvas.addEventListener('click', (event) => { const cell = place(event); select(map, cell, cell !== null); });
  canvas.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') select(map, null, false);
    else if (event.key === 'Enter') select(map, map.at, map.at !== null);
    else if (KEYS[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) select(map, map.move(...KEYS[event.key]), true);
    else return;
    event.preventDefault();
  });
  const update = () => { map.paint(); fillScale(map); };
  const show = (name) => { $('heat-metric').value = name; map.setMetric(name); update(); };
  $('heat-metric').addEventListener('change', (event) => { show(event.target.value); if (map.at) select(map, map.at, map.isKept); });
  document.addEventListener('click', (event) => {
    const link = event.target.closest('a[href="#steps"][data-metric]');
    if (!link) return;
    if (map.heat.metrics.some(({ name }) => name === link.dataset.metric)) show(link.dataset.metric);
    select(map, map.findLargest(link.dataset), true);
    const row = map.tops[map.rows.indexOf(map.at?.lane) / map.perRow | 0];
    $('heat-holder').scrollTop = row - $('heat-holder').clientHeight / 2;
  });
  $('heat-order').addEventListener('change', (event) => { map.order = event.target.value; map.setMetric(map.metric.name); update(); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', update);
  let width = 0;
  new ResizeObserver(() => {
    const now = $('heat-holder').clientWidth;
    if (now !== width) { width = now; update(); }
  }).observe($('heat-holder'));
  addEventListener('beforeprint', () => map.paint(true));
  addEventListener('afterprint', () => map.paint());
}

async function startHeat({ packed }) {
  const map = new HeatMap(readHeat(JSON.parse(await unpack(packed))));
  for (const { name, title } of map.heat.metrics) $('heat-metric').append(element('option', { value: name, textContent: title, selected: name === map.heat.first }));
  map.paint();
  fillScale(map);
  listenToHeat(map);
  return map;
}

async function start() {
  const map = data.steps ? await startHeat(data.steps) : null;
  if (data.charts?.shell) await showCharts(data.charts);
  // For tests.
  window.nsysReport = {
    state: () => ({ metric: map?.metric.name, lanes: map?.heat.lanes.length ?? 0, steps: map?.heat.count ?? 0, at: map?.at ?? null, rows: map?.rows.slice(0, 20), left: map?.left, tops: map?.tops.slice(0, 20), row: map?.row, column: map?.column }),
    value: (name, lane, step) => map.heat.valueAt(name, lane, step),
    charts: () => [...document.querySelectorAll('.chart iframe')].map((frame) => frame.contentWindow.nsysChart?.state().isReady ?? false),
  };
}

start();
