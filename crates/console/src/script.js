// Shows times in the zone of the person, and keeps a part of the page current. The pages work without it, in UTC.

const PAUSE = 2000;

const zone = new Intl.DateTimeFormat(undefined, { timeZoneName: 'short' })
  .formatToParts()
  .find((part) => part.type === 'timeZoneName').value;
const two = (number) => String(number).padStart(2, '0');

function localize(part) {
  const today = new Date().toDateString();
  for (const time of part.querySelectorAll('time:not([title])')) {
    const at = new Date(time.dateTime);
    const clock = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(':');
    const date = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join('-');
    // Some are known to the second only.
    const [milliseconds = ''] = time.dateTime.match(/\.\d+/) ?? [];
    time.title = `${time.dateTime} (UTC), ${date} ${clock} (${zone})`;
    time.textContent = `${at.toDateString() === today ? '' : `${date} `}${clock}${milliseconds}`;
  }
  for (const name of part.querySelectorAll('.zone')) name.textContent = `(${zone})`;
}

localize(document);

// On a phone, the page that is open may be at the end of the bar.
for (const link of document.querySelectorAll('nav a[aria-current]')) {
  link.scrollIntoView({ block: 'nearest', inline: 'center' });
}

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
    live.innerHTML = await reply.text();
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
