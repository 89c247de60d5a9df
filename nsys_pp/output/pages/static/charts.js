// Charts of steps: each is the page of `nsys-pp chart` in a frame, put together of the shell that all share and its data.

const LOOK_MS = 50, MOST_LOOKS = 400;

// Remove the text in place of a chart once it is drawn; a chart that fails must not be covered forever.
function removeText(frame, looks = 0) {
  if (looks < MOST_LOOKS && !frame.contentWindow?.nsysChart?.state().isReady) setTimeout(removeText, LOOK_MS, frame, looks + 1);
  else frame.parentElement.querySelector('.drawing')?.remove();
}

async function showCharts({ shell, pages }) {
  const [before, after] = JSON.parse(await unpack(shell));
  for (const [id, packed] of Object.entries(pages)) {
    $(id).srcdoc = before + (await unpack(packed)) + after;
    removeText($(id));
  }
}
