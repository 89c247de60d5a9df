// Opens pages in one Chromium without a network, each in a profile of its own, and reports what came of it.
//
//   node drive.js PATH-OF-CHROMIUM
//
// Each line of the input is a visit, {"url": URL, "width": 1600, "height": 900, "scheme": "light", "steps": [...]}, and is
// answered with a line: {"errors", "requests", "load_ms", "values"}, or {"failure"}.
//
// A step is ["evaluate", script], ["hold", key, until], ["move", x, y], ["wheel", dx, dy, modifier or null],
// ["drag", x1, y1, x2, y2], ["click", selector], ["doubleclick", x, y], ["type", selector, text], ["press", key],
// ["scheme", "dark"], ["picture", path] or ["pdf", path]; its value, the page's errors and all requests are printed.
// `until` is an expression of `before` and `now`, the chart's states: the key stays down until it is true, however slow
// the machine draws.
'use strict';
const readline = require('readline');
const { chromium } = require('playwright-core');

const HOLD_MS = 60000;

const actions = {
  evaluate: (page, script) => page.evaluate(script),
  hold: async (page, key, until) => {
    const before = JSON.stringify(await page.evaluate('window.nsysChart.state()'));
    await page.keyboard.down(key);
    const end = Date.now() + HOLD_MS;
    while (!(await page.evaluate(`((before, now) => ${until})(${before}, window.nsysChart.state())`)))
      if (Date.now() > end) throw new Error(`not true while ${key} is held: ${until}`);
    await page.keyboard.up(key);
  },
  move: (page, x, y) => page.mouse.move(x, y),
  wheel: async (page, dx, dy, modifier) => {
    if (modifier) await page.keyboard.down(modifier);
    await page.evaluate("window.turned = new Promise((done) => addEventListener('wheel', done, { once: true, capture: true })); undefined");
    await page.mouse.wheel(dx, dy);
    await page.evaluate('window.turned.then(() => undefined)');  // the call before returns when the event is sent, not when it is heard
    if (modifier) await page.keyboard.up(modifier);
  },
  drag: async (page, x1, y1, x2, y2) => {
    await page.mouse.move(x1, y1);
    await page.mouse.down();
    await page.mouse.move((x1 + x2) / 2, (y1 + y2) / 2);
    await page.mouse.move(x2, y2);
    await page.mouse.up();
  },
  click: (page, selector) => page.click(selector),
  doubleclick: (page, x, y) => page.mouse.dblclick(x, y),
  type: (page, selector, text) => page.fill(selector, text),
  press: (page, key) => page.keyboard.press(key),
  scheme: (page, colorScheme) => page.emulateMedia({ colorScheme }),
  picture: async (page, path) => { await page.screenshot({ path }); },
  pdf: async (page, path) => { await page.pdf({ path, preferCSSPageSize: true, printBackground: true }); },
};

async function visit(browser, job) {
  const context = await browser.newContext({ viewport: { width: job.width, height: job.height }, colorScheme: job.scheme });
  try {
    const page = await context.newPage();
    const errors = [];
    const requests = [];
    await page.route('**/*', (route) => {
      const url = route.request().url();
      if (url === job.url) return route.continue();
      requests.push(url);
      return route.abort();
    });
    page.on('dialog', (dialog) => { errors.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
    page.on('console', (message) => { if (message.type() === 'error') errors.push(message.text()); });
    page.on('pageerror', (error) => errors.push(String(error)));
    const begin = Date.now();
    await page.goto(job.url);
    await page.waitForFunction(job.ready, undefined, { timeout: job.timeout_ms, polling: 20 });
    const load_ms = Date.now() - begin;
    const values = [];
    for (const [action, ...rest] of job.steps) {
      values.push((await actions[action](page, ...rest)) ?? null);
      await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))');
    }
    return { errors, requests, load_ms, values };
  } finally {
    await context.close();
  }
}

async function main() {
  const browser = await chromium.launch({ executablePath: process.argv[2], args: ['--no-sandbox', '--force-color-profile=srgb', '--disable-gpu'] });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const answer = await visit(browser, JSON.parse(line)).catch((error) => ({ failure: String(error) }));
    process.stdout.write(JSON.stringify(answer) + '\n');
  }
  await browser.close();
}

main().catch((error) => { console.error(error); process.exit(1); });
