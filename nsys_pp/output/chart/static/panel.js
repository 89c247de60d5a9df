// Elements around the plot: legend, search, notes, tooltip. Texts from reports are set as text content only, never as HTML.

const $ = (id) => document.getElementById(id);

function addElement(parent, tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

function makeSwitch(parent, text, isOn, onChange) {
  const button = addElement(parent, 'button', 'switch');
  const swatch = addElement(button, 'span', 'swatch');
  addElement(button, 'span', '', text);
  button.type = 'button';
  button.setAttribute('aria-pressed', String(isOn));
  button.addEventListener('click', () => {
    const next = button.getAttribute('aria-pressed') !== 'true';
    button.setAttribute('aria-pressed', String(next));
    onChange(next);
  });
  return swatch;
}

function fillLegend(chart, update) {
  const legend = $('legend');
  const section = (title) => {
    const group = addElement(legend, 'div', 'group');
    addElement(group, 'span', 'caption', title);
    return group;
  };
  const toggle = (key) => (isOn) => { chart.hidden[isOn ? 'delete' : 'add'](key); update(); };
  if (chart.usedKinds.length) {
    const group = section('Jobs');
    for (const kind of chart.usedKinds) {
      const swatch = makeSwitch(group, chart.kindTexts[kind], true, toggle(`kind:${kind}`));
      swatch.style.background = chart.looks[chart.kinds.indexOf(kind)][0].fill;
    }
  }
  if (chart.usedCauses.length) {
    const group = section('Bubbles');
    for (const cause of chart.usedCauses) {
      const swatch = makeSwitch(group, cause.replaceAll('_', ' '), true, toggle(`cause:${cause}`));
      swatch.dataset.cause = cause;
    }
  }
  const group = addElement(legend, 'div', 'group');
  const show = (name) => (isOn) => { chart.shown[name] = isOn; update(); };
  const foldAll = (isOn) => { chart.folded = new Set(isOn ? [] : chart.foldable.keys()); update(); };
  if (chart.foldable.size) makeSwitch(group, 'all ranks', !chart.folded.size, foldAll).classList.add('lanes');
  if (chart.transfers.length) makeSwitch(group, 'arrows', true, show('arrows')).classList.add('arrow');
  if (chart.ideal.length) makeSwitch(group, 'ideal schedule', false, show('ideal')).classList.add('ideal');
}

function fillNotes(chart) {
  const { title, facts, verdict, notes } = chart;
  $('title').textContent = title;
  $('facts').textContent = facts.join('  ·  ');
  $('facts').title = facts.join('\n');
  $('verdict').hidden = !verdict.length || window !== parent;  // a page around the chart has the findings
  for (const line of verdict) addElement($('verdict'), 'li', '', line);
  if (!notes.length) return;
  $('notes').hidden = false;
  $('notes-count').textContent = notes.length === 1 ? '1 note' : `${notes.length} notes`;
  for (const note of notes) addElement($('notes-list'), 'li', '', note);
}

function showTooltip(chart, item, at) {
  const tip = $('tooltip');
  tip.hidden = !item;
  if (!item) return;
  tip.replaceChildren();
  const [title, rows] = describe(chart, item);
  addElement(tip, 'div', 'heading', title ?? '');
  const list = addElement(tip, 'dl', '');
  for (const [name, value] of rows) {
    if (value === null || value === undefined || value === '') continue;
    addElement(list, 'dt', '', name);
    addElement(list, 'dd', '', String(value));
  }
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, at.x + 16 + width > innerWidth ? at.x - 14 - width : at.x + 16)}px`;
  tip.style.top = `${Math.max(4, Math.min(at.y + 14, innerHeight - height - 6))}px`;
}

// Finds the jobs and transfers that match a query: a number matches micro-batches; "rank 3", "stage 1" and "node1 · gpu 0" match
// lanes; other texts match names, kinds and roles.
function findMatches(chart, query) {
  const text = query.trim().toLowerCase();
  if (!text) return null;
  const { jobs, transfers } = chart;
  const number = /^\d+$/.test(text) ? Number(text) : null;
  const lanes = chart.lanes.map(({ label, stage, gpu }) =>
    number === null && (label.toLowerCase() === text || `stage ${stage}` === text || gpu?.toLowerCase() === text));
  const names = chart.names.map((name, at) => number === null && `${name} ${chart.names[at]}`.toLowerCase().includes(text));
  const kinds = chart.kinds.map((kind) => number === null && kind.replaceAll('_', ' ').includes(text));
  const roles = chart.roles.map((role) => number === null && role !== '' && role.toLowerCase().includes(text));
  const hits = lanes.some(Boolean) ? (row) => lanes[jobs.lane[row]]
    : number === null ? (row) => names[jobs.name[row]] || kinds[jobs.kind[row]] || (jobs.role && roles[jobs.role[row]])
      : (row) => jobs.micro_batch[row] === number || jobs.backward_micro_batch[row] === number;
  const matches = { flags: new Uint8Array(jobs.length), transfers: new Uint8Array(transfers.length), rows: [], at: -1, current: null };
  for (let row = 0; row < jobs.length; row++) if (hits(row)) { matches.flags[row] = 1; matches.rows.push(row); }
  for (let row = 0; row < transfers.length; row++)
    matches.transfers[row] = lanes[transfers.sender[row]] || lanes[transfers.receiver[row]] || transfers.micro_batch[row] === number;
  matches.rows.sort((a, b) => jobs.start[a] - jobs.start[b] || a - b);
  return matches;
}

// Enter goes to the first match in view or after it, then to the next one; without a match in view, the search itself goes there.
function listenToSearch(chart, update, reveal) {
  const box = $('search');
  const { jobs, view } = chart;
  const findFirst = ({ rows }) => Math.max(0, rows.findIndex((row) => jobs.start[row] + jobs.duration[row] > view.start));
  const showCount = () => {
    const { matches } = chart;
    $('found').textContent = !matches ? '' : matches.at < 0 ? `${matches.rows.length} found` : `${matches.at + 1} of ${matches.rows.length}`;
  };
  box.addEventListener('input', () => {
    chart.matches = findMatches(chart, box.value);
    const row = chart.matches?.rows[findFirst(chart.matches)];
    const isInView = jobs.start[row] < view.end && jobs.start[row] + jobs.duration[row] > view.start;
    if (row !== undefined && !isInView) reveal(row);
    showCount();
    update();
  });
  box.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') { box.value = ''; chart.matches = null; box.blur(); showCount(); update(); }
    if (event.key !== 'Enter' || !chart.matches?.rows.length) return;
    const { rows, at } = chart.matches;
    chart.matches.at = at < 0 ? findFirst(chart.matches) : (at + (event.shiftKey ? rows.length - 1 : 1)) % rows.length;
    chart.matches.current = { type: 'job', row: rows[chart.matches.at] };
    reveal(rows[chart.matches.at]);
    showCount();
  });
  addEventListener('keydown', (event) => {
    if (event.key === '/' && event.target !== box) { event.preventDefault(); box.focus(); box.select(); }
  });
}
