// Keeps a part of the page current. The pages work without it.

const PAUSE = 2000;

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
    if (reply.ok) live.innerHTML = await reply.text();
  };

  const goOn = () => {
    // A server that is restarted is asked again.
    update()
      .catch(() => {})
      .finally(() => setTimeout(goOn, PAUSE));
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
