// Draws the timeline of a step and zooms it.

// Pixels. A row of a rank is ROW high, one side of a track TRACK.
const ROW = 24, ROW_GAP = 4, TRACK = 11, TRACK_GAP = 7, RANK_GAP = 16;
const TOP = 36, GUTTER = 138, RIGHT = 14, AXIS = 30, DIGIT = 6.5;
const STYLES = ['forward', 'recompute', 'backward', 'weight-gradients', 'update', 'wait', 'send', 'fetch', 'offload', 'disk-read', 'disk-write'];

// The part of the step that is visible, and its place on a drawing `width` pixels wide.
class TimeView {
  constructor(total) {
    Object.assign(this, {total, from: 0, to: total, width: 0});
  }
  get right() {
    return this.width - RIGHT;
  }
  x(seconds) {
    return GUTTER + (seconds - this.from) / (this.to - this.from) * (this.right - GUTTER);
  }
  seconds(pixel) {
    const share = Math.min(1, Math.max(0, (pixel - GUTTER) / (this.right - GUTTER)));
    return this.from + share * (this.to - this.from);
  }
  show(begin, end) {
    const length = Math.min(this.total, Math.max(end - begin, this.total / 5000));
    this.from = Math.min(Math.max(0, (begin + end - length) / 2), this.total - length);
    this.to = this.from + length;
  }
  scale(factor, middle) {
    this.show(middle - (middle - this.from) / factor, middle + (this.to - middle) / factor);
  }
}

// The styles of the spans, in the order of STYLES.
function timelineLegend({ranks}) {
  const spans = ranks.flatMap(rank => rank.rows).flatMap(row => row.sides).flatMap(side => side.spans);
  const used = new Set(spans.map(span => span.style));
  return STYLES.filter(style => used.has(style)).map(style => ({style, words: style.replace('-', ' ')}));
}

function hatch() {
  return shape('defs', {}, shape('pattern',
    {id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'},
    shape('rect', {width: 6, height: 6, class: 'hatch-ground'}), shape('rect', {width: 2, height: 6, class: 'hatch-line'})));
}

// A span has its height; placeSpan() gives it its place and its width.
function spanMark(span, y, height, name, isQuiet) {
  const rect = shape('rect', {y, height, rx: 2});
  const text = span.number && shape('text', {y: y + height / 2}, span.number);
  const group = shape('g', {class: 'span ' + span.style}, rect, text);
  return {...span, rect, text, group: explained(group, `${name}: ${span.title}`, isQuiet)};
}

// The rows of all ranks from top to bottom: {nodes, spans, bottom}.
function timelineRows(ranks, isQuiet) {
  const nodes = [], spans = [];
  let y = TOP;
  for (const rank of ranks) {
    const own = rank.rows.filter(row => !row.is_track).length;
    nodes.push(shape('text', {class: 'rank', x: 0, y: y + (own * (ROW + ROW_GAP) - ROW_GAP) / 2}, rank.name));
    for (const row of rank.rows) {
      if (row !== rank.rows[0]) y += row.is_track ? TRACK_GAP : ROW_GAP;
      const height = row.is_track ? TRACK : ROW, all = height * row.sides.length;
      nodes.push(shape('rect', {class: 'track', x: GUTTER, y, height: all, rx: 3}));
      nodes.push(shape('text', {class: 'side', x: GUTTER - 10, y: y + all / 2}, row.name));
      for (const side of row.sides) {
        const marks = side.spans.map(span => spanMark(span, y, height, `${rank.name}, ${side.name}`, isQuiet));
        nodes.push(shape('g', {class: (row.is_track ? 'track-side ' : '') + side.name}, marks.map(mark => mark.group)));
        spans.push(...marks);
        y += height;
      }
    }
    y += RANK_GAP;
  }
  return {nodes, spans, bottom: y - RANK_GAP + 6};
}

function placeSpan(span, view) {
  const left = Math.max(GUTTER, view.x(span.begin)), end = Math.min(view.right, view.x(span.end));
  span.group.style.display = end <= GUTTER || left >= view.right ? 'none' : '';
  if (end < left) return;
  set(span.rect, {x: left, width: Math.max(.4, end - left - .6)});
  if (!span.text) return;
  const fits = end - left > DIGIT * span.number.length + 4;
  set(span.text, {x: left + (end - left) / 2, display: fits ? 'inline' : 'none'});
}

// The lines at the ends of the step. The texts of two ends are at different heights.
function endMarks(ends, view, bottom) {
  const last = Math.max(...ends.map(end => end.at));
  return ends.filter(end => view.x(end.at) >= GUTTER && view.x(end.at) <= view.right + 1).map(end => {
    const at = view.x(end.at);
    return shape('g', {class: 'end ' + end.name}, shape('line', {x1: at, x2: at, y1: TOP - 8, y2: bottom}),
      shape('text', {x: at - 5, y: end.at < last ? 21 : 8}, end.words));
  });
}

function secondsAxis(view, bottom) {
  const ticks = axisTicks(view.from, view.to, Math.max(3, Math.min(9, view.width / 120)));
  const texts = secondsTexts(ticks, view.to);
  return ticks.flatMap((tick, i) => {
    const at = view.x(tick);
    return [shape('line', {x1: at, x2: at, y1: TOP - 8, y2: bottom}),
      shape('text', {x: Math.min(at, view.right - 12), y: bottom + 17}, texts[i])];
  });
}

// Zooms by dragging, double-clicks and the wheel. Returns whether the pointer drags.
function listenToPointer(svg, brush, view, redraw) {
  let start = null;
  const pixel = event => event.clientX - svg.getBoundingClientRect().left;
  const cancel = () => { start = null; brush.setAttribute('width', 0); };
  svg.addEventListener('pointerdown', event => {
    if (event.button || pixel(event) < GUTTER) return;
    start = pixel(event);
    svg.setPointerCapture(event.pointerId);
    explain('');
  });
  svg.addEventListener('pointermove', event => {
    if (start === null) return;
    const now = Math.min(view.right, Math.max(GUTTER, pixel(event)));
    set(brush, {x: Math.min(start, now), width: Math.abs(now - start)});
  });
  svg.addEventListener('pointerup', event => {
    if (start === null) return;
    const end = pixel(event), [a, b] = [Math.min(start, end), Math.max(start, end)];
    cancel();
    if (b - a > 5) redraw(() => view.show(view.seconds(a), view.seconds(b)));
  });
  svg.addEventListener('pointercancel', cancel);
  svg.addEventListener('dblclick', () => redraw(() => view.show(0, view.total)));
  svg.addEventListener('wheel', event => {
    if (event.ctrlKey || event.metaKey) {
      redraw(() => view.scale(event.deltaY < 0 ? 1.25 : .8, view.seconds(pixel(event))));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const move = (event.deltaX || event.deltaY) / view.width * (view.to - view.from);
      redraw(() => view.show(view.from + move, view.to + move));
    } else return;
    event.preventDefault();
  }, {passive: false});
  return () => start !== null;
}

function zoomButtons(view, redraw) {
  const button = (text, change, label) => {
    const made = element('button', {'aria-label': label}, text);
    made.onclick = () => redraw(change);
    return made;
  };
  const scale = factor => () => view.scale(factor, (view.from + view.to) / 2);
  return element('div', {class: 'tools'}, button('+', scale(2), 'Zoom in'), button('\u2212', scale(.5), 'Zoom out'),
    button('Whole step', () => view.show(0, view.total)));
}

// Returns the drawing and its buttons.
function drawTimeline({seconds, ranks, ends}) {
  const view = new TimeView(seconds);
  let isDragged = () => false;
  const {nodes, spans, bottom} = timelineRows(ranks, () => isDragged());
  const axis = shape('g', {class: 'axis'}), marks = shape('g');
  const brush = shape('rect', {class: 'brush', y: 0, height: bottom, width: 0});
  const svg = shape('svg', {role: 'group', 'aria-label': 'Timeline of one step, predicted and measured, per rank'},
    hatch(), axis, nodes, marks, brush);
  const redraw = change => {
    change();
    svg.setAttribute('viewBox', `0 0 ${view.width} ${bottom + AXIS}`);
    for (const track of svg.querySelectorAll('.track')) track.setAttribute('width', view.right - GUTTER);
    for (const span of spans) placeSpan(span, view);
    axis.replaceChildren(...secondsAxis(view, bottom));
    marks.replaceChildren(...endMarks(ends, view, bottom));
  };
  isDragged = listenToPointer(svg, brush, view, redraw);
  const plot = element('div', {class: 'plot'}, svg);
  const update = drawAtWidth(plot, 320, width => redraw(() => { view.width = width; }));
  return {plot, update, tools: zoomButtons(view, redraw)};
}
