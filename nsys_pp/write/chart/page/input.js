// Navigation as in Perfetto: W and S zoom at the mouse, A and D pan; wheel, drag, and two fingers.

const LEAST_SPAN = 20;  // ns
const KEY_ZOOM = 3.2;  // e-folds per second at full speed
const KEY_PAN = 1.1;  // widths per second at full speed
const RAMP = 220;  // ms until full speed

function makeView(low, high, onChange) {
  const margin = Math.max(10, (high - low) * 0.015);
  const whole = { start: low - margin, end: high + margin };
  const view = { ...whole, scroll: 0, most: 0 };
  const set = (start, end, scroll = view.scroll) => {
    const span = Math.min(Math.max(end - start, LEAST_SPAN), 1.2 * (whole.end - whole.start));
    const middle = Math.min(Math.max((start + end) / 2, whole.start), whole.end);
    view.start = middle - span / 2;
    view.end = middle + span / 2;
    view.scroll = Math.round(Math.min(Math.max(scroll, 0), view.most));
    onChange();
  };
  return Object.assign(view, {
    set,
    fit: () => set(whole.start, whole.end, view.scroll),
    zoom: (factor, share) => {  // the time at that share of the width keeps its position
      const span = view.end - view.start;
      const next = Math.min(Math.max(span * factor, LEAST_SPAN), 1.2 * (whole.end - whole.start));
      const start = view.start + share * (span - next);
      set(start, start + next);
    },
    pan: (share) => set(view.start + share * (view.end - view.start), view.end + share * (view.end - view.start)),
  });
}

function listen(holder, view, brushOf, { point, fitAll }) {
  let mouse = null;  // x of the mouse in the plot
  const shareAt = (x) => (x - brushOf().frame.left) / brushOf().frame.width;
  const positionOf = (event) => {
    const box = holder.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  holder.addEventListener('wheel', (event) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const [dx, dy] = event.shiftKey && !event.deltaX ? [event.deltaY * unit, 0] : [event.deltaX * unit, event.deltaY * unit];
    if (dx) view.pan(dx / brushOf().frame.width);
    if (!dy) return;
    const isZoom = event.ctrlKey || event.metaKey || !view.most;
    if (isZoom) view.zoom(Math.exp(Math.max(-120, Math.min(120, dy)) * (event.ctrlKey && Math.abs(dy) < 30 ? 0.01 : 0.0025)), shareAt(positionOf(event).x));
    else view.set(view.start, view.end, view.scroll + dy);
  }, { passive: false });

  const fingers = new Map();
  holder.addEventListener('pointerdown', (event) => {
    if (event.button) return;
    holder.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, positionOf(event));
    point(null);
  });
  holder.addEventListener('pointermove', (event) => {
    const now = positionOf(event);
    mouse = now.x;
    const before = fingers.get(event.pointerId);
    if (!before) return point(now, event);
    const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    fingers.set(event.pointerId, now);
    if (others.length) return pinch(others[0], before, now);
    holder.classList.add('dragged');
    const shift = ((before.x - now.x) * (view.end - view.start)) / brushOf().frame.width;
    view.set(view.start + shift, view.end + shift, view.scroll + before.y - now.y);
  });
  for (const name of ['pointerup', 'pointercancel'])
    holder.addEventListener(name, (event) => { fingers.delete(event.pointerId); holder.classList.remove('dragged'); });
  holder.addEventListener('pointerleave', () => { mouse = null; point(null); });
  holder.addEventListener('dblclick', fitAll);

  function pinch(still, before, now) {
    const factor = Math.max(20, Math.abs(before.x - still.x)) / Math.max(20, Math.abs(now.x - still.x));
    view.zoom(factor, shareAt(still.x));
  }
  listenToKeys(view, () => (mouse === null ? 0.5 : shareAt(mouse)), fitAll, point);
}

function listenToKeys(view, aim, fitAll, point) {
  const held = new Map();  // key -> when it was pressed
  const actions = {
    KeyW: (amount) => view.zoom(Math.exp(-KEY_ZOOM * amount), aim()), KeyS: (amount) => view.zoom(Math.exp(KEY_ZOOM * amount), aim()),
    KeyA: (amount) => view.pan(-KEY_PAN * amount), KeyD: (amount) => view.pan(KEY_PAN * amount),
  };
  let last = 0;
  const run = (now) => {
    const seconds = Math.min(now - last, 50) / 1000;
    last = now;
    for (const [code, since] of held) actions[code](seconds * Math.min(1, 0.25 + (now - since) / RAMP));
    if (held.size) requestAnimationFrame(run);
  };
  addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|TEXTAREA/.test(event.target.tagName)) return;
    if (event.code === 'KeyF') fitAll();
    if (!actions[event.code] || held.has(event.code)) return;
    point(null);
    if (!held.size) { last = performance.now(); requestAnimationFrame(run); }
    held.set(event.code, performance.now());
  });
  addEventListener('keyup', (event) => held.delete(event.code));
  addEventListener('blur', () => held.clear());
}
