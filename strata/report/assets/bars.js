// Draws named rows of bars with figures at their right.

function drawBar({style, segments}) {
  return element('div', {class: 'bar ' + style}, segments.map(segment =>
    explained(element('div', {class: 'segment ' + segment.style, style: `width:${segment.percent}%`}), segment.title)));
}

function drawBarRow({name, bars, figures, budget_percent}) {
  const budget = budget_percent > 0 && element('div', {class: 'budget', style: `left:${budget_percent}%`});
  return [element('div', {class: 'rank'}, name),
    element('div', {class: 'bars'}, bars.map(drawBar), budget),
    element('div', {class: 'figures'}, figures.map(({value, note}) => element('span', {}, value + ' ', element('em', {}, note))))];
}

function drawBars(rows) {
  return element('div', {class: 'memory'}, rows.flatMap(drawBarRow));
}
