// Navigation as in Perfetto: W and S zoom at the mouse, A and D pan; wheel, drag, and two fingers.

const MIN_SPAN = 20;  // ns
const KEY_ZOOM = 3.2;  // natural logarithm of the zoom factor, per second at full speed
const KEY_PAN = 1.1;  // widths of the view per second at full speed
const PRESS_PIXELS = 4;  // a press that moves further is a drag
const RAMP = 220;  // ms from pressing a key to full speed

function makeView(low, high, onChange) {
  const margin = Math.max(10, (high - low) * 0.015);
  const whole = { start: low - margin, end: high + margin };
  const view = { ...whole, scroll: 0, maxScroll: 0 };
  const set = (start, end, scroll = view.scroll) => {
    const span = Math.min(Math.max(end - start, MIN_SPAN), 1.2 * (whole.end - whole.start));
    const middle = Math.min(Math.max((start + end) / 2, whole.start), whole.end);
    view.start = middle - span / 2;
    view.end = middle + span / 2;
    view.scroll = Math.round(Math.min(Math.max(scroll, 0), view.maxScroll));
    onChange();
  };
  return Object.assign(view, {
    set,
    fit: () => set(whole.start, whole.end, view.scroll),
    zoom: (factor, share) => {  // the time at `share` of the width keeps its position
      const span = view.end - view.start;
      const next = Math.min(Math.max(span * factor, MIN_SPAN), 1.2 * (whole.end - whole.start));
      const start = view.start + share * (span - next);
      set(start, start + next);
    },
    pan: (share) => set(view.start + share * (view.end - view.start), view.end + share * (view.end - view.start)),
  });
}

function listen(holder, view, painterOf, { hover, fitAll, press }) {
  let mouse = null;  // x of the mouse in the plot; null outside
  const shareAt = (x) => (x - painterOf().frame.left) / painterOf().frame.width;
  const positionOf = (event) => {
    const box = holder.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  holder.addEventListener('wheel', (event) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const [dx, dy] = event.shiftKey && !event.deltaX ? [event.deltaY * unit, 0] : [event.deltaX * unit, event.deltaY * unit];
    if (dx) view.pan(dx / painterOf().frame.width);
    if (!dy) return;
    const isZoom = event.ctrlKey || event.metaKey || !view.maxScroll;
    if (isZoom) view.zoom(Math.exp(Math.max(-120, Math.min(120, dy)) * (event.ctrlKey && Math.abs(dy) < 30 ? 0.01 : 0.0025)), shareAt(positionOf(event).x));
    else view.set(view.start, view.end, view.scroll + dy);
  }, { passive: false });

  const fingers = new Map();
  let pressed = null;  // where a press began; null once it is a drag
  holder.addEventListener('pointerdown', (event) => {
    if (event.button) return;
    holder.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, (pressed = positionOf(event)));
    hover(null);
  });
  holder.addEventListener('pointermove', (event) => {
    const now = positionOf(event);
    mouse = now.x;
    const before = fingers.get(event.pointerId);
    if (!before) return hover(now, event);
    const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    fingers.set(event.pointerId, now);
    if (others.length) return pinch(others[0], before, now);
    if (pressed && Math.hypot(now.x - pressed.x, now.y - pressed.y) > PRESS_PIXELS) pressed = null;
    holder.classList.add('dragged');
    const shift = ((before.x - now.x) * (view.end - view.start)) / painterOf().frame.width;
    view.set(view.start + shift, view.end + shift, view.scroll + before.y - now.y);
  });
  holder.addEventListener('pointerup', () => { if (pressed && fingers.size === 1) press(pressed); pressed = null; });
  for (const name of ['pointerup', 'pointercancel'])
    holder.addEventListener(name, (event) => { fingers.delete(event.pointerId); holder.classList.remove('dragged'); });
  holder.addEventListener('pointerleave', () => { mouse = null; hover(null); });
  holder.addEventListener('dblclick', fitAll);

  function pinch(other, before, now) {
    const factor = Math.max(20, Math.abs(before.x - other.x)) / Math.max(20, Math.abs(now.x - other.x));
    view.zoom(factor, shareAt(other.x));
  }
  listenToKeys(view, () => (mouse === null ? 0.5 : shareAt(mouse)), fitAll, hover);
}

function listenToKeys(view, zoomShare, fitAll, hover) {
  const held = new Map();  // key -> when it was pressed
  const actions = {
    KeyW: (amount) => view.zoom(Math.exp(-KEY_ZOOM * amount), zoomShare()), KeyS: (amount) => view.zoom(Math.exp(KEY_ZOOM * amount), zoomShare()),
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
    hover(null);
    if (!held.size) { last = performance.now(); requestAnimationFrame(run); }
    held.set(event.code, performance.now());
  });
  addEventListener('keyup', (event) => held.delete(event.code));
  addEventListener('blur', () => held.clear());
}
