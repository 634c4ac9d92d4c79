// Looks at a page that is open as people do: on a desk in light and in dark, and on a phone. The page is loaded once,
// because only its style differs.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export const DESK = { width: 1280, height: 900 };
export const PHONE = { width: 390, height: 844 };

const WCAG = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

// Fails on anything wider than the screen, once what a script moves is in its place.
export async function assertFits(page, what) {
  const wide = () => document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if ((await page.evaluate(wide)) <= 0) return;
  await page.waitForTimeout(500);
  const pixels = await page.evaluate(wide);
  assert.ok(pixels <= 0, `${what} is ${pixels} pixels wider than the screen`);
}

// Fails on what axe-core finds.
async function assertAccessible(page, what) {
  const run = (tags) => globalThis.axe.run({ resultTypes: ['violations'], runOnly: tags });
  const { violations } = await page.evaluate(run, WCAG);
  const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html)}`);
  assert.deepEqual(told, [], what);
}

// Fails on a column whose head stands elsewhere than its cells.
async function assertHeadsAlign(page, what) {
  const askew = () => {
    const side = (cell) => (['right', 'end'].includes(getComputedStyle(cell).textAlign) ? 'right' : 'left');
    const heads = [...document.querySelectorAll('table:has(thead)')].flatMap((table) => {
      const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
      const cells = (place) => rows.map((row) => row.cells[place]).filter(Boolean);
      return [...table.tHead.rows[0].cells].map((head, place) => [head, cells(place)]);
    });
    return heads.filter(([head, cells]) => cells.some((cell) => side(cell) !== side(head))).map(([head]) => head.textContent);
  };
  assert.deepEqual(await page.evaluate(askew), [], `heads of columns: ${what}`);
}

// Leaves the page as it was: on a desk, in light.
export async function look(page, what, folder) {
  const shoot = (name) => page.screenshot({ path: `${folder}/${what}-${name}.png` });
  // Not as an element: the page's policy allows no script but its own.
  await page.evaluate(axe);
  await shoot('desk-light');
  await assertFits(page, `${what} on a desk`);
  await assertAccessible(page, `${what} on a desk, in light`);
  await assertHeadsAlign(page, what);
  await page.setViewportSize(PHONE);
  await shoot('phone-light');
  await assertFits(page, `${what} on a phone`);
  await page.emulateMedia({ colorScheme: 'dark' });
  await shoot('phone-dark');
  await assertAccessible(page, `${what} on a phone, in dark`);
  await page.setViewportSize(DESK);
  await shoot('desk-dark');
  await page.emulateMedia({ colorScheme: 'light' });
}
