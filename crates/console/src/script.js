// Shows times in the zone of the person, copies what has a button, and keeps a part of the page current. The pages work
// without it, in UTC.

const PAUSE = 2000;
const UNITS = [[86_400, 'd'], [3_600, 'h'], [60, 'min'], [0, 's']];

const zone = new Intl.DateTimeFormat(undefined, { timeZoneName: 'short' })
  .formatToParts()
  .find((part) => part.type === 'timeZoneName').value;
const two = (number) => String(number).padStart(2, '0');

let isUtc = localStorage.getItem('zone') === 'UTC';

// A date and a time of day, in the zone of the person or in UTC.
function written(at, inUtc) {
  const of = inUtc ? new Date(at.getTime() + at.getTimezoneOffset() * 60_000) : at;
  const date = [of.getFullYear(), two(of.getMonth() + 1), two(of.getDate())].join('-');
  return [date, [of.getHours(), of.getMinutes(), of.getSeconds()].map(two).join(':')];
}

function localize(part) {
  const [today] = written(new Date(), isUtc);
  for (const time of part.querySelectorAll('time')) {
    const at = new Date(time.dateTime);
    const [date, clock] = written(at, isUtc);
    // Some are known to the second only.
    const [milliseconds = ''] = time.dateTime.match(/\.\d+/) ?? [];
    time.title = `${time.dateTime} (UTC), ${written(at, false).join(' ')} (${zone})`;
    time.textContent = `${date === today ? '' : `${date} `}${clock}${milliseconds}`;
  }
  for (const name of part.querySelectorAll('.zone')) name.textContent = `(${isUtc ? 'UTC' : zone})`;
  for (const button of part.querySelectorAll('button.copy')) button.remove();
  for (const text of part.querySelectorAll('[data-copy]')) addCopy(text);
  tellAges(part);
}

function tellAges(part) {
  for (const age of part.querySelectorAll('.age')) {
    const at = new Date(age.previousElementSibling.dateTime);
    const seconds = Math.max(0, Math.floor((Date.now() - at) / 1000));
    const [length, unit] = UNITS.find(([length]) => seconds >= length);
    age.textContent = `${Math.floor(seconds / (length || 1))} ${unit} ago`;
  }
}

// A button behind a text that is copied. Where the browser lets no page copy, as over HTTP, the text is selected.
function addCopy(text) {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'copy';
  button.textContent = 'Copy';
  button.setAttribute('aria-live', 'polite');
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(text);
      button.textContent = 'Selected: copy it with your keys';
    }
  });
  text.after(button);
}

localize(document);
setInterval(tellAges, 60_000, document);

// The times of all pages are those of the person, or of UTC.
if (document.querySelector('header form') && zone !== 'UTC') {
  const box = document.createElement('input');
  box.type = 'checkbox';
  box.checked = isUtc;
  box.addEventListener('change', () => {
    isUtc = box.checked;
    localStorage.setItem('zone', isUtc ? 'UTC' : 'local');
    localize(document);
  });
  const label = document.createElement('label');
  label.append(box, 'UTC');
  label.title = 'Show times in UTC';
  document.querySelector('header form').before(label);
}

// On a phone, the page that is open may be at the end of the bar.
for (const link of document.querySelectorAll('nav a[aria-current]')) {
  link.scrollIntoView({ block: 'nearest', inline: 'center' });
}

// On a phone, what a button did is told below the buttons.
document.querySelector('#result + .says')?.scrollIntoView({ block: 'nearest' });

// A slash leads to the search, unless it is written into a field.
const search = document.querySelector('header [name=q]');
document.addEventListener('keydown', (event) => {
  const isWritten = event.target.matches?.('input, select, textarea');
  if (!search || isWritten || event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  search.focus();
});

const live = document.querySelector('[data-live]');

if (live) {
  // What moves by itself must be possible to stop.
  const box = document.createElement('input');
  box.type = 'checkbox';
  box.checked = true;
  const label = document.createElement('label');
  label.append(box, 'Update every two seconds');
  const holder = document.createElement('p');
  holder.className = 'live';
  holder.append(label);
  live.before(holder);

  const update = async () => {
    // A person who is among the rows would lose their place.
    const isRead = live.contains(document.activeElement);
    if (!box.checked || isRead || document.hidden) return;
    const reply = await fetch(live.dataset.live, { redirect: 'error' });
    if (!reply.ok) return;
    const text = await reply.text();
    const open = [...live.querySelectorAll('details[open][id]')].map((one) => one.id);
    live.innerHTML = text;
    for (const id of open) document.getElementById(id)?.setAttribute('open', '');
    localize(live);
  };

  const goOn = async () => {
    // A server that is restarted is asked again.
    await update().catch(() => {});
    // What has ended doesn't change.
    if (live.querySelector('[data-ended]')) holder.remove();
    else setTimeout(goOn, PAUSE);
  };
  setTimeout(goOn, PAUSE);
}

// A race takes a moment. A second click would start another one.
for (const form of document.querySelectorAll('form[data-progress]')) {
  form.addEventListener('submit', () => {
    const says = document.createElement('p');
    says.setAttribute('role', 'status');
    says.textContent = form.dataset.progress;
    form.append(says);
    // A button that is disabled now would not be sent with its form.
    setTimeout(() => {
      for (const button of form.querySelectorAll('button')) button.disabled = true;
    });
  });
}

// The arrow keys follow the links to the step before and to the next one, where they do nothing else.
document.querySelector('[data-keys]')?.removeAttribute('hidden');
document.addEventListener('keydown', (event) => {
  const rel = { ArrowLeft: 'prev', ArrowRight: 'next' }[event.key];
  const isElse = event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || event.target.closest('input, nav');
  if (rel && !isElse) document.querySelector(`a[rel='${rel}']`)?.click();
});
