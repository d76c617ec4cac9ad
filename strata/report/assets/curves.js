// Draws curves over steps on one pair of axes, with a cursor.

const CURVES = {height: 340, left: 46, right: 16, top: 14, bottom: 44};  // pixels

// The scale of all curves on a drawing `width` pixels wide.
function curveScale(curves, width) {
  const points = curves.flatMap(curve => curve.points);
  const range = i => points.reduce(([low, high], point) => [Math.min(low, point[i]), Math.max(high, point[i])],
    [Infinity, -Infinity]);
  const [first, end] = range(0), [least, most] = range(1), margin = Math.max(.04 * (most - least), .01);
  const last = end > first ? end : first + 1, low = Math.max(0, least - margin), high = most + margin;
  const {height, left, top, bottom} = CURVES, right = width - CURVES.right;
  return {first, last, low, high, right,
    x: step => left + (step - first) / (last - first) * (right - left),
    y: value => top + (high - value) / (high - low) * (height - top - bottom),
    step: x => first + (x - left) / (right - left) * (last - first)};
}

function curveAxes({first, last, low, high, right, x, y}) {
  const {height, left} = CURVES, values = axisTicks(low, high, 6);
  return shape('g', {class: 'axis'},
    values.flatMap(tick => [shape('line', {x1: left, x2: right, y1: y(tick), y2: y(tick)}),
      shape('text', {class: 'left', x: left - 8, y: y(tick)}, tick.toFixed(tickDecimals(values)))]),
    axisTicks(first, last, 7).filter(Number.isInteger).map(tick => shape('text', {x: x(tick), y: height - 26}, tick.toFixed(0))),
    shape('text', {class: 'name', x: (left + right) / 2, y: height - 7}, 'step'));
}

function curveMarks({style, dots, points}, {x, y}) {
  const places = points.map(([step, value]) => [x(step).toFixed(2), y(value).toFixed(2)]);
  return [shape('path', {class: style, d: 'M' + places.map(place => place.join(' ')).join('L')}),
    dots ? places.map(([cx, cy]) => shape('circle', {class: style, cx, cy, r: 3.5})) : []].flat();
}

// What the curves with a name are at the step nearest to `step`: [step, text].
function curveValues(curves, step) {
  const nearest = ({points}, at) => points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a);
  const named = curves.filter(curve => curve.name), [at] = nearest(named[0], step);
  const words = named.map(curve => {
    const [when, value] = nearest(curve, at);
    return `${curve.name} ${value.toFixed(4)}` + (when === at ? '' : ` at step ${when}`);
  });
  return [at, [`step ${at}`, ...words].join('\n')];
}

function drawCurves(curves, title) {
  const {height, left, top, bottom} = CURVES;
  const cursor = shape('line', {class: 'cursor', y1: top, y2: height - bottom});
  const svg = shape('svg', {role: 'img', 'aria-label': title + ' against steps'});
  const plot = element('div', {class: 'plot'}, svg);
  let scale;
  const update = drawAtWidth(plot, 280, width => {
    scale = curveScale(curves, width);
    set(svg, {viewBox: `0 0 ${width} ${height}`});
    svg.replaceChildren(curveAxes(scale), ...curves.flatMap(curve => curveMarks(curve, scale)), cursor);
  });
  svg.onpointerleave = () => { cursor.style.visibility = 'hidden'; explain(''); };
  svg.onpointermove = event => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    if (x < left - 5 || x > scale.right + 5) return svg.onpointerleave();
    const [step, words] = curveValues(curves, scale.step(x));
    set(cursor, {x1: scale.x(step), x2: scale.x(step)});
    cursor.style.visibility = 'visible';
    explain(words, event);
  };
  return {plot, update};
}
