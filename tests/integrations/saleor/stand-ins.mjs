// What the app takes from Next.js and Sentry.

/** Next.js begins when the response is sent. */
export const after = (work) => void work();

export const captureException = () => {};
export const captureMessage = () => {};
