// Tables packed by `columns.py`, and indexes of their intervals by lane and time.

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

// Builds the index of a table's rows by lane and time; `start` and `end` are functions of a row. Rows of lane i are at
// [first[i], first[i + 1]), sorted by start. `reach` is the latest end so far: it ascends, so a binary search finds the first
// interval that reaches a moment, also if intervals nest.
function indexIntervals(laneCount, lanes, start, end, count = lanes.length) {
  const starts = Float64Array.from({ length: count }, (_, row) => start(row));
  const order = Uint32Array.from({ length: count }, (_, row) => row);
  let isSorted = true;
  for (let row = 1; row < count && isSorted; row++)
    isSorted = lanes[row - 1] < lanes[row] || (lanes[row - 1] === lanes[row] && starts[row - 1] <= starts[row]);
  if (!isSorted) order.sort((a, b) => lanes[a] - lanes[b] || starts[a] - starts[b] || a - b);
  const index = {
    row: order, first: new Uint32Array(laneCount + 1),
    start: new Float64Array(count), end: new Float64Array(count), reach: new Float64Array(count),
  };
  for (let at = 0; at < count; at++) {
    const row = order[at];
    index.start[at] = starts[row];
    index.end[at] = end(row);
    const follows = at && lanes[order[at - 1]] === lanes[row];
    index.reach[at] = follows ? Math.max(index.reach[at - 1], index.end[at]) : index.end[at];
    index.first[lanes[row] + 1]++;
  }
  for (let lane = 0; lane < laneCount; lane++) index.first[lane + 1] += index.first[lane];
  return index;
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
function rowsAt(index, lane, from, to) {
  const rows = [];
  const last = index.first[lane + 1];
  for (let at = firstAbove(index.reach, from, index.first[lane], last); at < last; at++) {
    if (index.start[at] > to) break;
    if (index.end[at] >= from) rows.push(index.row[at]);
  }
  return rows;
}
