// Layout of lanes: positions in pixels, from the top of the first lane.

const STEP_ROW = 24;  // height of the row of steps, above all lanes
const MIN_LANE = 28;
const MAX_LANE = 132;
const STAGE_GAP = 8;
const FOLD_LANES = 32;  // with more lanes than this, stages are folded at first

// Returns the stages with several lanes, which can be folded: they show their first lane only.
function findFoldable(lanes) {
  const counts = new Map();
  for (const { stage } of lanes) if (stage !== null) counts.set(stage, (counts.get(stage) ?? 0) + 1);
  return new Map([...counts].filter(([, count]) => count > 1));
}

// `folded` is the set of folded stages. A hidden lane has the position of the next one, and no height. `hasIdeal`: half of the
// height of the bars is for the ideal schedule below them.
function layOutLanes({ lanes, hasMessages, folded, shown: { ideal: hasIdeal } }, height) {
  const isNewStage = (lane) => lane > 0 && lanes[lane].stage !== lanes[lane - 1].stage;
  const gaps = lanes.filter((_, lane) => isNewStage(lane)).length;
  const isShown = lanes.map(({ stage }, lane) => !folded.has(stage) || !lane || isNewStage(lane));
  const count = isShown.filter(Boolean).length;
  const share = (height - STEP_ROW - STAGE_GAP * (gaps + 1)) / Math.max(1, count);
  const size = Math.floor(Math.max(hasIdeal ? 2 * MIN_LANE : MIN_LANE, Math.min(MAX_LANE, share)));
  const pad = size >= 44 ? 5 : 3;
  const inner = size - 2 * pad;
  const messages = hasMessages ? Math.max(6, Math.floor(inner * 0.34)) : 0;
  const layout = { size, tops: [], bars: [], ideals: [], sends: [], receives: [], pad, isShown };
  const room = inner - messages - (messages ? 2 : 0);
  layout.idealHeight = hasIdeal ? Math.floor(0.4 * room) : 0;
  layout.barHeight = room - layout.idealHeight - (hasIdeal ? 2 : 0);
  layout.messageHeight = Math.floor((messages - 1) / 2);
  let top = STAGE_GAP / 2;
  for (let lane = 0; lane < lanes.length; lane++) {
    if (isNewStage(lane)) top += STAGE_GAP;
    layout.tops.push(top);
    layout.bars.push(top + pad);
    layout.ideals.push(top + pad + layout.barHeight + 2);
    layout.sends.push(top + pad + room + 2);
    layout.receives.push(top + pad + room + 3 + layout.messageHeight);
    if (isShown[lane]) top += size;
  }
  layout.total = top + STAGE_GAP / 2;
  return layout;
}

function laneAt(layout, y) {
  const lane = firstAbove(layout.tops, y, 0, layout.tops.length) - 1;
  return lane >= 0 && layout.isShown[lane] && y < layout.tops[lane] + layout.size ? lane : -1;
}
