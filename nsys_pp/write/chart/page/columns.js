// Tables of columns as `columns.py` packs them, and strips: what lies side by side on lanes, found by time.

const ARRAYS = {
  i8: Int8Array, u8: Uint8Array, i16: Int16Array, u16: Uint16Array, i32: Int32Array, u32: Uint32Array, f64: Float64Array,
};

function readTable(packed) {
  const table = { length: packed.length, missing: {} };
  for (const [name, column] of Object.entries(packed.columns)) {
    const bytes = Uint8Array.from(atob(column.data), (letter) => letter.charCodeAt(0));
    table[name] = new ARRAYS[column.type](bytes.buffer);
    table.missing[name] = column.missing;
  }
  return table;
}

function valueOf(table, name, row) {
  const value = table[name][row];
  return value === table.missing[name] ? null : value;
}

// `start` and `end` are functions of a row. Within a lane, places are in order of start, and `reach` is the
// last end so far, so that what covers a moment is found by bisection however long or nested it is.
function makeStrip(laneCount, lanes, start, end, count = lanes.length) {
  const starts = Float64Array.from({ length: count }, (_, row) => start(row));
  const order = Uint32Array.from({ length: count }, (_, row) => row);
  let isSorted = true;
  for (let row = 1; row < count && isSorted; row++)
    isSorted = lanes[row - 1] < lanes[row] || (lanes[row - 1] === lanes[row] && starts[row - 1] <= starts[row]);
  if (!isSorted) order.sort((a, b) => lanes[a] - lanes[b] || starts[a] - starts[b] || a - b);
  const strip = {
    row: order, first: new Uint32Array(laneCount + 1),
    start: new Float64Array(count), end: new Float64Array(count), reach: new Float64Array(count),
  };
  for (let place = 0; place < count; place++) {
    const row = order[place];
    strip.start[place] = starts[row];
    strip.end[place] = end(row);
    const follows = place && lanes[order[place - 1]] === lanes[row];
    strip.reach[place] = follows ? Math.max(strip.reach[place - 1], strip.end[place]) : strip.end[place];
    strip.first[lanes[row] + 1]++;
  }
  for (let lane = 0; lane < laneCount; lane++) strip.first[lane + 1] += strip.first[lane];
  return strip;
}

// First place in [low, high) whose value is above `limit`, where values never fall.
function firstAbove(values, limit, low, high) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The rows on a lane that cover [from, to], outermost first.
function rowsAt(strip, lane, from, to) {
  const found = [];
  const last = strip.first[lane + 1];
  for (let place = firstAbove(strip.reach, from, strip.first[lane], last); place < last; place++) {
    if (strip.start[place] > to) break;
    if (strip.end[place] >= from) found.push(strip.row[place]);
  }
  return found;
}
