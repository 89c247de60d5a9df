// What all parts of the page share.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($('data').textContent);

// Inflates a text packed by `pack_text` of `fragments.py`.
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'))).text();
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Formats a time in ns, as `format_duration` of `units.py`.
function formatTime(ns) {
  for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['us', 1e3]])
    if (Math.abs(ns) >= size) return `${(ns / size).toFixed(3)} ${unit}`;
  return `${Math.round(ns)} ns`;
}

const formatShare = (fraction, sign = false) => `${sign && fraction > 0 ? '+' : ''}${(100 * fraction).toFixed(1)} %`;

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // a page from disk may lack the clipboard
    const area = element('textarea', { value: text });
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
}

document.addEventListener('click', (event) => {
  const button = event.target.closest('.copy');
  if (button) copyText(button.parentElement.querySelector('code').textContent, button);
});

// Opens the tables for paper, and closes them again.
const opened = [];
addEventListener('beforeprint', () => {
  for (const details of document.querySelectorAll('details.notes:not([open])')) {
    details.open = true;
    opened.push(details);
  }
});
addEventListener('afterprint', () => { for (const details of opened.splice(0)) details.open = false; });
