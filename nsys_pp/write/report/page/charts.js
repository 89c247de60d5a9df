// Charts of steps: each is the page of `nsys-pp chart` in a frame, put together of the shell that all share and its data.

async function showCharts({ shell, pages }) {
  const [before, after] = JSON.parse(await unpack(shell));
  for (const [id, packed] of Object.entries(pages)) $(id).srcdoc = before + (await unpack(packed)) + after;
}
