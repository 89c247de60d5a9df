// Opens one page in Chromium, takes a picture and reports what the page said.
//
//   node browse.js '{"browser": PATH, "url": URL, "output": PNG, "width": 1600, "height": 900,
//                    "ready": JS expression, "script": JS expression or "", "settle_ms": 1500}'
//
// `ready` must become true, and the page settle, before `script` runs; its value, and all errors of the page's console,
// are printed as JSON. Needs playwright-core where Node finds it (NODE_PATH).
'use strict';
const { chromium } = require('playwright-core');

const job = JSON.parse(process.argv[2]);

async function main() {
  const browser = await chromium.launch({
    executablePath: job.browser,
    args: ['--no-sandbox', '--disable-gpu', '--force-color-profile=srgb'],
  });
  const page = await browser.newPage({ viewport: { width: job.width, height: job.height } });
  const errors = [];
  page.on('console', (message) => { if (message.type() === 'error') errors.push(message.text()); });
  page.on('pageerror', (error) => errors.push(String(error)));
  await page.goto(job.url);
  await page.waitForFunction(job.ready, undefined, { timeout: job.timeout_ms, polling: 100 });
  await page.waitForTimeout(job.settle_ms);
  const value = job.script ? await page.evaluate(job.script) : null;
  if (job.script) await page.waitForTimeout(job.settle_ms);
  await page.screenshot({ path: job.output });
  await browser.close();
  process.stdout.write(JSON.stringify({ errors, value }));
}

main().catch((error) => { console.error(error); process.exit(1); });
