// What every page has at its end, and the first drawing.
byId('copy').addEventListener('click', async () => {
  try {
    await navigator.clipboard.writeText(byId('command').textContent);
    byId('copy').textContent = 'Copied';
  } catch {
    getSelection().selectAllChildren(byId('command'));
  }
});
document.documentElement.classList.add('drawn');
drawnWidth = document.documentElement.clientWidth;
drawAll();
