// Where lanes stand: heights in pixels, from the top of the first lane.

const STEP_ROW = 24;  // of the row of steps, above all lanes
const LEAST_LANE = 28;
const MOST_LANE = 132;
const STAGE_GAP = 8;

function placeLanes(lanes, height, hasMessages) {
  const isNewStage = (lane) => lane > 0 && lanes[lane].stage !== lanes[lane - 1].stage;
  const gaps = lanes.filter((_, lane) => isNewStage(lane)).length;
  const room = (height - STEP_ROW - STAGE_GAP * (gaps + 1)) / Math.max(1, lanes.length);
  const size = Math.floor(Math.max(LEAST_LANE, Math.min(MOST_LANE, room)));
  const pad = size >= 44 ? 5 : 3;
  const inner = size - 2 * pad;
  const talk = hasMessages ? Math.max(6, Math.floor(inner * 0.34)) : 0;
  const places = { size, tops: [], bars: [], sends: [], receives: [], pad };
  places.barHeight = inner - talk - (talk ? 2 : 0);
  places.talkHeight = Math.floor((talk - 1) / 2);
  let top = STAGE_GAP / 2;
  for (let lane = 0; lane < lanes.length; lane++) {
    if (isNewStage(lane)) top += STAGE_GAP;
    places.tops.push(top);
    places.bars.push(top + pad);
    places.sends.push(top + pad + places.barHeight + 2);
    places.receives.push(top + pad + places.barHeight + 3 + places.talkHeight);
    top += size;
  }
  places.total = top + STAGE_GAP / 2;
  return places;
}

function laneAt(places, y) {
  const lane = firstAbove(places.tops, y, 0, places.tops.length) - 1;
  return lane >= 0 && y < places.tops[lane] + places.size ? lane : -1;
}
