// Shows a box with an explanation next to the pointer.
const tip = document.getElementById('tip');

function explain(text, event) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = printable(text);
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - 14 - box.width : event.clientX + 14;
  tip.style.left = Math.max(4, left) + 'px';
  tip.style.top = Math.min(event.clientY + 14, innerHeight - box.height - 4) + 'px';
}

// Explains a mark under the pointer, and to screen readers.
function explained(mark, text, isQuiet = () => false) {
  set(mark, {role: 'img', 'aria-label': text});
  mark.onpointermove = event => isQuiet() || explain(text, event);
  mark.onpointerleave = () => explain('');
  return mark;
}
