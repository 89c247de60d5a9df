// Tables of columns packed by `columns.py`, and strips: intervals of lanes, indexed by time.

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

// Builds the strip of rows, where `start` and `end` are functions of a row. Within a lane, rows are sorted by start, and
// `reach` is the last end so far, so that bisection finds the rows around a moment, also long and nested ones.
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
  for (let at = 0; at < count; at++) {
    const row = order[at];
    strip.start[at] = starts[row];
    strip.end[at] = end(row);
    const follows = at && lanes[order[at - 1]] === lanes[row];
    strip.reach[at] = follows ? Math.max(strip.reach[at - 1], strip.end[at]) : strip.end[at];
    strip.first[lanes[row] + 1]++;
  }
  for (let lane = 0; lane < laneCount; lane++) strip.first[lane + 1] += strip.first[lane];
  return strip;
}

// Returns the first index in [low, high) with a value above `limit`; values ascend.
function firstAbove(values, limit, low, high) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Returns the rows of a lane that overlap [from, to], outermost first.
function rowsAt(strip, lane, from, to) {
  const rows = [];
  const last = strip.first[lane + 1];
  for (let at = firstAbove(strip.reach, from, strip.first[lane], last); at < last; at++) {
    if (strip.start[at] > to) break;
    if (strip.end[at] >= from) rows.push(strip.row[at]);
  }
  return rows;
}
