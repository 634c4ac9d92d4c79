// Chromium without a window, which sends nothing to other machines by itself.

import { chromium } from 'playwright-core';

// `executable` is the path of the program.
export function launch(executable) {
  return chromium.launch({
    executablePath: executable,
    args: [
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
}
