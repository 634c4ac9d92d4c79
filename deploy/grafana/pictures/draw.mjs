// Draws each row of the dashboard into a picture, of two replicas under load.
//
// It reads CHARGE_ONCE, CHROMIUM, the databases REPLICAS_DATABASE_URL and PROCESSOR_DATABASE_URL, the
// repository's folder REPOSITORY, the folder PICTURES, and for how long there is load, SECONDS_OF_LOAD.

import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { build } from 'esbuild';

import { buy } from './customers.mjs';
import { launch } from './launch.mjs';
import { API_KEY, STEP, open } from './shop.mjs';

const { CHARGE_ONCE, CHROMIUM, REPOSITORY, PICTURES, SECONDS_OF_LOAD } = process.env;
const ops = (name) => join(REPOSITORY, 'ops', name);

// The panels of each row of the dashboard, its heading first.
async function rows() {
  const dashboard = JSON.parse(await readFile(ops('grafana/dashboards/charge-once.json'), 'utf8'));
  const rows = [];
  for (const panel of dashboard.panels) {
    if (panel.type === 'row') {
      rows.push([]);
    }
    rows.at(-1).push(panel);
  }
  return rows;
}

// page.jsx with all that it imports, and the styles of what draws lines.
async function bundle() {
  const { outputFiles } = await build({
    entryPoints: ['page.jsx'],
    bundle: true,
    write: false,
    format: 'iife',
    jsx: 'automatic',
    define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
    loader: { '.css': 'empty', '.svg': 'text', '.png': 'empty', '.ttf': 'empty', '.woff2': 'empty' },
    logLevel: 'error',
  });
  const style = await readFile('node_modules/uplot/dist/uPlot.min.css', 'utf8');
  return { script: outputFiles[0].text, style };
}

async function draw(prometheus, from, to) {
  const { script, style } = await bundle();
  const browser = await launch(CHROMIUM);
  try {
    const page = await browser.newPage();
    const errors = [];
    page.on('pageerror', (error) => errors.push(error));
    // At Prometheus's own address, which it may ask.
    const empty = { contentType: 'text/html', body: '<!doctype html><title>Dashboard</title>' };
    await page.route(`${prometheus}/dashboard`, (route) => route.fulfill(empty));
    await page.goto(`${prometheus}/dashboard`);
    await page.addStyleTag({ content: style });
    await page.addScriptTag({ content: script });
    for (const panels of await rows()) {
      if (errors.length > 0) {
        throw errors[0];
      }
      const settings = { prometheus, from, to, step: STEP };
      const size = await page.evaluate((given) => window.draw(...given), [panels, settings]);
      await page.setViewportSize(size);
      await page.waitForFunction(
        (lines) => document.querySelectorAll('canvas').length >= lines,
        panels.filter(({ type }) => type === 'timeseries').length,
      );
      // What is on the page is painted two frames later at the latest.
      await page.evaluate(() => new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted))));
      const name = `${panels[0].title.toLowerCase().replaceAll(' ', '-')}.png`;
      await page.screenshot({ path: join(PICTURES, name) });
      console.log(name);
    }
  } finally {
    await browser.close();
  }
}

const folder = await mkdtemp(join(tmpdir(), 'dashboard-'));
const rules = ['rules.yml', 'alerts.yml'].map((name) => ops(`prometheus/${name}`));
const databases = {
  replicas: process.env.REPLICAS_DATABASE_URL,
  processor: process.env.PROCESSOR_DATABASE_URL,
};
const shop = await open(CHARGE_ONCE, databases, rules, folder);
try {
  console.log(`two replicas under load for ${SECONDS_OF_LOAD} s`);
  const now = () => Math.floor(Date.now() / 1000 / STEP) * STEP;
  const from = now();
  // So that the panel of violations has a value.
  await promisify(execFile)(CHARGE_ONCE, ['check'], {
    env: { ...process.env, DATABASE_URL: databases.replicas },
  });
  await buy(shop, API_KEY, Number(SECONDS_OF_LOAD));
  await draw(shop.prometheus, from, now());
} finally {
  shop.close();
  await rm(folder, { recursive: true, force: true });
}
