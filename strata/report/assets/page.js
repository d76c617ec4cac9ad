// Draws the page from the JSON of the run.

const LONG_FACT = 60;  // characters; a longer fact has a line of its own

function drawHeader({title, facts}) {
  const pairs = facts.map(([name, value]) => element('div', {class: value.length > LONG_FACT ? 'wide' : ''},
    element('dt', {}, name), element('dd', {}, value)));
  return [element('h1', {}, title), pairs.length ? element('dl', {}, pairs) : ''];
}

// The unit, after the first space, is printed smaller.
function drawTile({name, value, note}) {
  const [figure] = value.split(' ', 1), unit = value.slice(figure.length);
  return element('div', {class: 'tile'}, element('div', {class: 'name'}, name),
    element('div', {class: 'value'}, figure, unit && element('small', {}, unit)), element('div', {class: 'note'}, note));
}

// Each cell has its column's name for narrow screens.
function drawTable({columns, rows}) {
  const head = columns.map(column => column ? element('th', {scope: 'col'}, column) : element('td'));
  const body = rows.map(cells => element('tr', {}, cells.map((cell, i) =>
    i ? element('td', {'data-name': columns[i]}, cell) : element('th', {scope: 'row'}, cell))));
  return element('div', {class: 'scroll'}, element('table', {},
    element('thead', {}, element('tr', {}, head)), element('tbody', {}, body)));
}

// A sample of the colour: of a span, of a curve or of a segment.
function swatch(card, style) {
  if (card.curves) return element('i', {class: 'line ' + style});
  if (!card.timeline) return element('i', {class: 'box ' + style});
  return shape('svg', {width: 14, height: 14, 'aria-hidden': true},
    shape('g', {class: style}, shape('rect', {width: 14, height: 14, rx: 3})));
}

function legendOf({curves, timeline, legend}) {
  if (curves) return curves.filter(curve => curve.name).map(({style, name}) => ({style, words: name}));
  return timeline ? timelineLegend(timeline) : legend;
}

function drawLegend(card) {
  const keys = legendOf(card).map(({style, words}) => element('span', {class: 'key'}, swatch(card, style), words));
  return element('div', {class: 'legend'}, keys,
    card.timeline && element('span', {class: 'hint'}, 'drag to zoom in, double-click to zoom out'));
}

function drawCard(card) {
  const drawing = card.timeline ? drawTimeline(card.timeline) : card.curves ? drawCurves(card.curves, card.title) : {};
  const node = element('section', {class: 'card' + (card.curves ? ' curve' : ''), id: card.id},
    element('div', {class: 'head'}, element('div', {}, element('h2', {}, card.title), element('p', {}, card.caption)), drawing.tools),
    legendOf(card) && drawLegend(card), drawing.plot, card.bars && drawBars(card.bars),
    card.note && element('p', {}, card.note), card.table && drawTable(card.table),
    card.quote && element('blockquote', {}, element('b', {}, card.quote.prompt), card.quote.sample));
  return {node, draw: drawing.update};
}

// The loss, a sample and the AUC are side by side, other cards below each other.
function drawCards(main, cards) {
  const inColumns = card => ['loss', 'sample', 'auc'].includes(card.id);
  const columns = element('div', {class: cards.filter(inColumns).length > 1 ? 'columns' : ''});
  for (const card of cards) {
    const {node, draw} = drawCard(card);
    if (inColumns(card)) main.append(columns);
    (inColumns(card) ? columns : main).append(node);
    if (draw) draw();
  }
}

function drawPage(page) {
  document.title = printable(page.title) + ' \u00b7 Strata';
  const main = document.querySelector('main');
  fill(main.querySelector('header'), {}, drawHeader(page));
  if (page.tiles.length) main.append(element('div', {class: 'tiles'}, page.tiles.map(drawTile)));
  drawCards(main, page.cards);
  for (const [title, text] of page.appendices)
    main.append(element('details', {class: 'card'}, element('summary', {}, title), element('pre', {}, text)));
}

drawPage(JSON.parse(document.getElementById('run').textContent));
