// Values of the heat map: one per rank and step, or null.

function readHeat(packed) {
  const grid = readTable(packed.grid);
  const count = packed.steps.length;
  const read = (name, row) => valueOf(grid, name, row);
  const ratio = (part, whole) => (part === null || !whole ? null : part / whole);
  const values = {
    excess_fraction: (row) => (read('excess_fraction', row) === null ? null : read('excess_fraction', row) / 1e6),
    bubble_fraction: (row) => ratio(read('bubble_ns', row), read('span_ns', row)),
  };
  const valueAt = (name, lane, step) => (values[name] ?? ((row) => read(name, row)))(lane * count + step);
  return {
    ...packed, count, valueAt,
    isPresent: (lane, step) => read('span_ns', lane * count + step) !== null,
    isComplete: (lane, step) => grid.is_complete[lane * count + step] === 1,
    windowOf: (lane, step) => {
      const start = grid.start_ns[lane * count + step];
      return [start, start + grid.length_ns[lane * count + step]];
    },
    nameStep: (step) => { const [first, last] = packed.steps[step]; return first === last ? `${first}` : `${first}–${last}`; },
  };
}

// Returns the values of a metric in complete steps, and the range of its colors: around zero for a comparison.
function readMetric(heat, metric) {
  const size = heat.lanes.length * heat.count;
  const values = new Float64Array(size).fill(NaN);
  let [low, high] = [Infinity, -Infinity];
  for (let lane = 0; lane < heat.lanes.length; lane++)
    for (let step = 0; step < heat.count; step++) {
      const value = heat.isComplete(lane, step) ? heat.valueAt(metric.name, lane, step) : null;
      if (value === null) continue;
      values[lane * heat.count + step] = value;
      [low, high] = [Math.min(low, value), Math.max(high, value)];
    }
  const isCompared = metric.name === 'excess_fraction';
  if (low > high) [low, high] = [0, 0];
  if (isCompared) { high = Math.max(high, -low, 0.02); low = -high; }
  else if (['wait_ns', 'late_ns'].includes(metric.name)) low = 0;
  return { ...metric, values, low, high: high > low ? high : low + 1, isCompared };
}

// Orders the lanes: as they are, by stage and rank, or by their largest value.
function orderLanes(heat, metric, order) {
  const lanes = heat.lanes.map((_, lane) => lane);
  if (order !== 'value') return lanes;
  const largest = lanes.map((lane) => metric.values.subarray(lane * heat.count, (lane + 1) * heat.count).reduce((most, value) => (value > most ? value : most), -Infinity));
  return lanes.sort((a, b) => largest[b] - largest[a] || a - b);
}

const formatValue = (metric, value) =>
  metric.name === 'excess_fraction' ? formatShare(value, true) : metric.name === 'bubble_fraction' ? formatShare(value) : formatTime(value);
